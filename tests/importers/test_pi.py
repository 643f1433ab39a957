"""pi sessions: versions, branches, the ledger of pi-OM, what programs put into them."""

from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import compaction_of
from ombus_streams.memory.ledger import active, fold

from tests.importers.conftest import Written
from tests.importers.reading import assert_accounted, chain, imported, links, texts

HEADER: JsonObject = {
    "type": "session",
    "version": 3,
    "id": "0f8fad5b-d9cb-469f-a165-70867728950e",
    "timestamp": "2026-05-01T08:00:00.000Z",
    "cwd": "/work",
}


def row(entry_id: str, parent: str | None, body: JsonObject, kind: str = "message") -> JsonObject:
    at = "2026-05-01T08:00:01.000Z"
    return {"type": kind, "id": entry_id, "parentId": parent, "timestamp": at, **body}


def said(entry_id: str, parent: str | None, role: str, content: JsonValue) -> JsonObject:
    return row(entry_id, parent, {"message": {"role": role, "content": content}})


def called(entry_id: str, parent: str, call_id: str) -> JsonObject:
    block: JsonObject = {"type": "toolCall", "id": call_id, "name": "bash", "arguments": {"a": 1}}
    return said(entry_id, parent, "assistant", [block])


def answered(entry_id: str, parent: str, call_id: str, text: str = "ok") -> JsonObject:
    body: JsonObject = {"role": "toolResult", "toolCallId": call_id, "isError": False}
    return row(entry_id, parent, {"message": {**body, "content": [{"type": "text", "text": text}]}})


def test_a_session_becomes_a_chain_of_entries(written: Written) -> None:
    path = written(
        HEADER,
        said("a1", None, "user", "build it"),
        called("a2", "a1", "c1"),
        answered("a3", "a2", "c1", "done\u2028here"),
    )

    transcript, entries, skipped = imported(path)

    assert transcript.session_id == HEADER["id"]
    assert links(entries) == {"a1": None, "a2": "a1", "a3": "a2"}
    assert [entry.origin for entry in entries] == ["human", "model", "tool"]
    result = entries[2].message
    assert result is not None
    assert result.content == [
        {"type": "tool_result", "toolCallId": "c1", "name": "bash", "result": "done\u2028here"}
    ]
    first = entries[0].metadata or {}
    assert first["session"] == {"version": 3, "timestamp": HEADER["timestamp"], "cwd": "/work"}
    assert first["native"] == {"format": "pi", "type": "message", "line": 2, "version": 3}
    assert [(item.line, item.cause) for item in skipped] == [(1, "merged")]
    assert all(entry.tenant_id == "acme" and entry.schema_version == 1 for entry in entries)
    assert_accounted(transcript)


def test_a_rewind_opens_a_fork_at_the_shared_parent(written: Written) -> None:
    path = written(
        HEADER,
        said("a1", None, "user", "one"),
        said("a2", "a1", "assistant", "first answer"),
        said("a3", "a2", "user", "go left"),
        said("a4", "a3", "assistant", "left"),
        said("b3", "a2", "user", "go right"),
        said("b4", "b3", "assistant", "right"),
    )

    transcript, entries, _ = imported(path)

    assert chain(entries, "a4") == ["a1", "a2", "a3", "a4"]
    assert chain(entries, "b4") == ["a1", "a2", "b3", "b4"]
    assert transcript.report.forks == 1


def test_a_rewind_past_the_first_message_is_a_second_root(written: Written) -> None:
    path = written(
        HEADER,
        said("a1", None, "user", "one"),
        said("a2", "a1", "assistant", "answer"),
        said("b1", None, "user", "one, better"),
    )

    transcript, entries, _ = imported(path)

    assert links(entries) == {"a1": None, "a2": "a1", "b1": None}
    assert transcript.report.forks == 1


def test_a_branch_summary_before_the_new_text_belongs_to_the_new_branch(written: Written) -> None:
    path = written(
        HEADER,
        said("a1", None, "user", "one"),
        said("a2", "a1", "assistant", "answer"),
        said("a3", "a2", "user", "left"),
        row("s1", "a2", {"fromId": "a3", "summary": "went left"}, "branch_summary"),
        said("b3", "s1", "user", "right"),
    )

    transcript, entries, _ = imported(path)

    assert chain(entries, "b3") == ["a1", "a2", "s1", "b3"]
    summary = entries[3]
    assert (summary.kind, summary.summary, summary.origin) == ("summary", "went left", "summary")
    assert transcript.report.forks == 1


def test_results_that_share_a_parent_are_put_in_file_order(written: Written) -> None:
    path = written(
        HEADER,
        said("a1", None, "user", "one"),
        called("a2", "a1", "c1"),
        answered("r1", "a2", "c1"),
        answered("r2", "a2", "c2"),
        said("a3", "r1", "assistant", "both done"),
    )

    transcript, entries, _ = imported(path)

    assert chain(entries, "a3") == ["a1", "a2", "r1", "r2", "a3"]
    assert transcript.report.forks == 0


def test_a_rewind_keeps_the_results_that_stand_before_it(written: Written) -> None:
    path = written(
        HEADER,
        said("a1", None, "user", "one"),
        called("a2", "a1", "c1"),
        answered("r1", "a2", "c1"),
        said("u1", "a2", "user", "left"),
        said("u2", "a2", "user", "right"),
    )

    _, entries, _ = imported(path)

    assert chain(entries, "u1") == ["a1", "a2", "r1", "u1"]
    assert chain(entries, "u2") == ["a1", "a2", "r1", "u2"]


def test_the_ledger_of_pi_om_becomes_our_memory(written: Written) -> None:
    observation: JsonObject = {
        "id": "a1b2c3d4e5f6",
        "content": "The user wants it built.",
        "timestamp": "2026-05-01 08:00",
        "relevance": "high",
        "sourceEntryIds": ["a1"],
        "tokenCount": 7,
    }
    reflection: JsonObject = {
        "id": "f1e2d3c4b5a6",
        "content": "Building goes on.",
        "supportingObservationIds": ["a1b2c3d4e5f6"],
        "tokenCount": 4,
    }
    folded: JsonObject = {
        "type": "om.folded",
        "version": 1,
        "fullFold": False,
        "observations": [observation],
        "reflections": [reflection],
    }
    path = written(
        HEADER,
        said("a1", None, "user", "build it"),
        said("a2", "a1", "assistant", "building"),
        row(
            "o1",
            "a2",
            {
                "customType": "om.observations.recorded",
                "data": {"observations": [observation], "coversUpToId": "a2"},
            },
            "custom",
        ),
        row(
            "o2",
            "o1",
            {
                "customType": "om.reflections.recorded",
                "data": {"reflections": [reflection], "coversUpToId": "o1"},
            },
            "custom",
        ),
        said("a3", "o2", "user", "go on"),
        row(
            "k1",
            "a3",
            {
                "summary": "It is being built.",
                "firstKeptEntryId": "a3",
                "tokensBefore": 900,
                "details": folded,
                "fromHook": True,
            },
            "compaction",
        ),
        row(
            "o3",
            "k1",
            {
                "customType": "om.observations.dropped",
                "data": {"observationIds": ["a1b2c3d4e5f6"], "coversUpToId": "o2"},
            },
            "custom",
        ),
    )

    _, entries, _ = imported(path)

    before, after = fold(entries[:-1]), fold(entries)
    assert [item.id for item in active(before)] == ["a1b2c3d4e5f6"]
    assert before.observation_coverage_id == "a2"
    assert [item.id for item in after.reflections] == ["f1e2d3c4b5a6"]
    assert active(after) == ()
    compaction = compaction_of(entries[5])
    assert compaction is not None
    assert compaction.through_entry_id == "o2"
    assert compaction.memory is not None
    assert not any(entry.side for entry in entries)


def test_the_first_version_counts_kept_entries_by_index_with_the_header(written: Written) -> None:
    path = written(
        {"type": "session", "id": "old", "timestamp": "2025-01-01T00:00:00Z", "cwd": "/"},
        {"type": "message", "message": {"role": "user", "content": "one"}},
        b"{ not json",
        {"type": "message", "message": {"role": "assistant", "content": "two"}},
        {"type": "message", "message": {"role": "user", "content": "three"}},
        {"type": "compaction", "summary": "one and two", "firstKeptEntryIndex": 3},
    )

    transcript, entries, skipped = imported(path)

    assert links(entries) == {"L2": None, "L4": "L2", "L5": "L4", "L6": "L5"}
    compaction = compaction_of(entries[-1])
    assert compaction is not None
    assert compaction.through_entry_id == "L4"
    assert [item.line for item in skipped if item.cause == "bad"] == [3]
    assert (entries[0].metadata or {})["timestampQuality"] == "missing"
    assert_accounted(transcript)


def test_a_compaction_whose_first_kept_entry_is_lost_keeps_everything(written: Written) -> None:
    path = written(
        HEADER,
        said("a1", None, "user", "one"),
        row("k1", "a1", {"summary": "s", "firstKeptEntryId": "gone"}, "compaction"),
    )

    _, entries, _ = imported(path)

    compaction = compaction_of(entries[1])
    assert compaction is not None
    assert compaction.through_entry_id is None


def test_the_child_of_a_bad_row_hangs_on_the_row_before_it(written: Written) -> None:
    path = written(
        HEADER,
        said("a1", None, "user", "one"),
        b'{"type":"message","id":"a2","parentId":"a1","message":{"text":"\\***"}}',
        said("a3", "a2", "assistant", "three"),
    )

    transcript, entries, skipped = imported(path)

    assert links(entries) == {"a1": None, "a3": "a1"}
    assert (entries[1].metadata or {})["missingParent"] == "a2"
    assert transcript.report.missing_parents == 1
    assert [(item.line, item.reason) for item in skipped if item.cause == "bad"] == [
        (3, "not JSON: Invalid \\escape at character 63")
    ]


def test_what_programs_put_into_a_session_is_nobodys_wish(written: Written) -> None:
    path = written(
        HEADER,
        said("a1", None, "user", "<system-reminder>be brief</system-reminder>"),
        row(
            "a2",
            "a1",
            {"customType": "volatile-project-context", "content": "tree", "display": False},
            "custom_message",
        ),
        said("a3", "a2", "custom", "from an extension"),
        row(
            "a4",
            "a3",
            {
                "message": {
                    "role": "user",
                    "content": "[Compacted history content evicted: 3 kB]",
                },
                "evictedContent": {"payloads": {"message.content.0.text": {"ref": "blob:x"}}},
            },
        ),
        said("a5", "a4", "user", "my own words"),
    )

    _, entries, _ = imported(path)

    assert [entry.origin for entry in entries] == ["injected"] * 4 + ["human"]
    rules = [(entry.metadata or {})["originRule"] for entry in entries]
    assert rules == [
        "text.system_reminder",
        "pi.extension_message",
        "pi.extension_message",
        "pi.evicted_content",
        "role.user",
    ]
    assert "unavailable" in (entries[3].metadata or {})


def test_a_reminder_around_the_users_words_is_parted_from_them(written: Written) -> None:
    before, after = "<system-reminder>x</system-reminder>", "<system-reminder>y</system-reminder>"
    text = f"{before}\n\nfix the login\n{after}"
    path = written(HEADER, said("a1", None, "user", text), said("a2", "a1", "assistant", "ok"))

    _, entries, _ = imported(path)

    assert "".join(text for entry in entries[:3] for text in texts(entry)) == text
    assert [entry.origin for entry in entries] == ["injected", "human", "injected", "model"]
    assert links(entries) == {"a1.1": None, "a1.2": "a1.1", "a1": "a1.2", "a2": "a1"}


def test_a_command_the_user_ran_is_a_call_with_its_result(written: Written) -> None:
    body: JsonObject = {
        "role": "bashExecution",
        "command": "make",
        "output": "boom\n",
        "exitCode": 2,
        "cancelled": False,
        "truncated": False,
    }
    path = written(
        HEADER,
        said("a1", None, "user", "hi"),
        row("a2", "a1", {"message": body}),
        row("a3", "a2", {"message": {**body, "excludeFromContext": True}}),
    )

    transcript, entries, _ = imported(path)

    assert links(entries) == {"a1": None, "a2.1": "a1", "a2": "a2.1", "a3.1": "a2", "a3": "a3.1"}
    assert [entry.origin for entry in entries[1:]] == ["human", "tool", "injected", "injected"]
    assert (entries[2].metadata or {})["exitCode"] == 2
    assert (transcript.report.calls, transcript.report.results) == (2, 2)
    assert transcript.report.extra == 2


def test_settings_and_foreign_data_are_entries_and_no_sources(written: Written) -> None:
    path = written(
        HEADER,
        row("a1", None, {"model": "openrouter/some/model"}, "model_change"),
        row("a2", "a1", {"thinkingLevel": "high"}, "thinking_level_change"),
        row("a3", "a2", {"customType": "plan", "data": {"step": 1}}, "custom"),
        row("a4", "a3", {"targetId": "a1", "label": "start"}, "label"),
    )

    _, entries, _ = imported(path)

    assert [entry.kind for entry in entries] == ["model_change", "metadata", "custom", "label"]
    assert entries[0].model == {"provider": "openrouter", "model": "some/model"}
    assert entries[2].data == {"type": "pi.custom", "customType": "plan", "data": {"step": 1}}
    assert entries[3].label == "start"


def test_a_file_forked_from_another_is_a_branch_of_its_session(written: Written) -> None:
    rows = [
        said("a1", None, "user", "one"),
        said("a2", "a1", "assistant", "answer"),
        said("a3", "a2", "user", "left"),
    ]
    parent = written(HEADER, b"{ bad", *rows, name="parent.jsonl")
    header: JsonObject = {**HEADER, "id": "fork", "parentSession": "/elsewhere/parent.jsonl"}
    fork = written(header, *rows[:2], said("b3", "a2", "user", "right"), name="fork.jsonl")

    _, originals, _ = imported(parent)
    transcript, entries, _ = imported(fork)

    assert transcript.session_id == HEADER["id"]
    assert entries[:2] == originals[:2]  # the same entries: the log takes each once
    assert links(entries)["b3"] == "a2"
    facts = (entries[2].metadata or {})["session"]
    assert isinstance(facts, dict)
    assert facts["parentSession"] == "/elsewhere/parent.jsonl"

    parent.unlink()
    alone, _, _ = imported(fork)
    assert alone.session_id == "fork"
