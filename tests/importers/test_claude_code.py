"""Claude Code sessions: rows of one message, parallel calls, rewinds, sub-agents, injections."""

from ombus.importers import open_transcripts
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import compaction_of

from tests.importers.conftest import Written
from tests.importers.reading import assert_accounted, chain, imported, links, parted, texts


def row(uuid: str, parent: str | None, kind: str, **fields: JsonValue) -> JsonObject:
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "type": kind,
        "uuid": uuid,
        "timestamp": "2026-05-01T08:00:00.000Z",
        "sessionId": "s-1",
        "cwd": "/work",
        **fields,
    }


def user(uuid: str, parent: str | None, content: JsonValue, **fields: JsonValue) -> JsonObject:
    return row(uuid, parent, "user", message={"role": "user", "content": content}, **fields)


def block(
    uuid: str, parent: str | None, message: str, content: JsonObject, **fields: JsonValue
) -> JsonObject:
    body: JsonObject = {
        "id": message,
        "role": "assistant",
        "model": "m",
        "content": [content],
        "usage": {"output_tokens": 9},
    }
    return row(uuid, parent, "assistant", message=body, **fields)


def text(words: str) -> JsonObject:
    return {"type": "text", "text": words}


def call(call_id: str) -> JsonObject:
    return {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": "ls"}}


def result(call_id: str, content: JsonValue, is_error: bool = False) -> JsonObject:
    return {
        "type": "tool_result",
        "tool_use_id": call_id,
        "content": content,
        "is_error": is_error,
    }


def test_the_rows_of_one_message_become_one_entry(written: Written) -> None:
    path = written(
        user("u1", None, "go"),
        block("a1", "u1", "m1", {"type": "thinking", "thinking": "hm", "signature": "sig"}),
        block("a2", "a1", "m1", text("going")),
        block("a3", "a2", "m1", call("t1")),
        user("r1", "a3", [result("t1", "fine")]),
    )

    transcript, entries, skipped = imported(path)

    assert links(entries) == {"u1": None, "a1": "u1", "r1": "a1"}
    message = entries[1].message
    assert message is not None
    assert [item["type"] for item in message.content] == ["thinking", "text", "tool_call"]
    assert message.metadata == {"model": "m", "usage": {"output_tokens": 9}}
    assert [(item.line, item.reason) for item in skipped] == [
        (3, "part of the message at 2"),
        (4, "part of the message at 2"),
    ]
    assert transcript.report.merged == 2
    assert_accounted(transcript)


def test_parallel_calls_are_no_fork(written: Written) -> None:
    path = written(
        user("u1", None, "go"),
        block("a1", "u1", "m1", call("t1")),
        user("r1", "a1", [result("t1", "one")]),
        block("a2", "a1", "m1", call("t2")),
        row("p1", "a2", "progress", data={"type": "hook_progress"}),
        user("r2", "p1", [result("t2", [text("two")], is_error=True)]),
        block("a3", "r1", "m2", text("both")),
    )

    transcript, entries, skipped = imported(path)

    assert chain(entries, "a3") == ["u1", "a1", "r1", "r2", "a3"]
    assert transcript.report.forks == 0
    message = entries[3].message
    assert message is not None
    assert message.content == [
        {"type": "tool_result", "toolCallId": "t2", "name": "Bash", "error": "two"}
    ]
    assert [(item.line, item.cause) for item in skipped] == [(4, "merged"), (5, "left_out")]


def test_a_rewind_is_a_fork(written: Written) -> None:
    path = written(
        user("u1", None, "go"),
        block("a1", "u1", "m1", text("where?")),
        row("s1", "a1", "system", subtype="turn_duration", durationMs=5),
        user("u2", "s1", "left"),
        block("a2", "u2", "m2", text("left it is")),
        user("u3", "a1", "right"),
        block("a3", "u3", "m3", text("right it is")),
    )

    transcript, entries, _ = imported(path)

    assert chain(entries, "a2") == ["u1", "a1", "s1", "u2", "a2"]
    assert chain(entries, "a3") == ["u1", "a1", "u3", "a3"]
    assert transcript.report.forks == 1


def test_rows_that_name_no_parents_are_a_chain(written: Written) -> None:
    path = written(
        user("u1", None, "one"),
        block("a1", None, "m1", text("two")),
        user("u2", None, "three"),
    )

    _, entries, _ = imported(path)

    assert links(entries) == {"u1": None, "a1": "u1", "u2": "a1"}


def test_a_parent_may_come_later(written: Written) -> None:
    path = written(
        user("u1", None, "one"),
        user("r1", "a1", [result("t1", "fine")]),
        block("a1", "u1", "m1", call("t1")),
    )

    _, entries, _ = imported(path)

    assert links(entries) == {"u1": None, "r1": "a1", "a1": "u1"}


def test_a_compaction_follows_its_logical_parent(written: Written) -> None:
    path = written(
        user("u1", None, "one"),
        block("a1", "u1", "m1", text("two")),
        row(
            "b1",
            None,
            "system",
            subtype="compact_boundary",
            logicalParentUuid="a1",
            compactMetadata={"trigger": "auto", "preTokens": 9},
        ),
        user("k1", "b1", "This session is being continued from ...", isCompactSummary=True),
        user("u2", "k1", "three"),
    )

    _, entries, _ = imported(path)

    assert chain(entries, "u2") == ["u1", "a1", "b1", "k1", "u2"]
    compaction = compaction_of(entries[3])
    assert compaction is not None
    assert compaction.through_entry_id == "b1"
    assert entries[3].origin == "summary"


def test_only_the_users_words_are_the_users(written: Written) -> None:
    injected = [
        "<task-notification>done</task-notification>",
        "<command-name>/clear</command-name>",
        "<local-command-stdout>ok</local-command-stdout>",
        "Caveat: The messages below were generated by the user while running local commands.",
    ]
    rows = [user(f"i{n}", None, words) for n, words in enumerate(injected)]
    path = written(
        *rows,
        user("i9", None, "skill text", isMeta=True),
        user("s9", None, "This session is being continued from a previous conversation that ..."),
        row(
            "q1",
            None,
            "attachment",
            attachment={"type": "queued_command", "prompt": "and test", "commandMode": "prompt"},
        ),
        row(
            "q2",
            None,
            "attachment",
            attachment={
                "type": "queued_command",
                "prompt": "task done",
                "commandMode": "task-notification",
            },
        ),
        row("f1", None, "attachment", attachment={"type": "file", "content": "x"}),
        user("u9", None, "real"),
    )

    _, entries, _ = imported(path)

    origins = {entry.id: entry.origin for entry in entries}
    assert {name for name, origin in origins.items() if origin == "human"} == {"q1", "u9"}
    assert origins["s9"] == "summary"
    assert all((entry.metadata or {}).get("originRule") for entry in entries)


def test_a_row_of_results_and_text_becomes_an_entry_each(written: Written) -> None:
    path = written(
        user("u1", None, "go"),
        block("a1", "u1", "m1", call("t1")),
        user(
            "r1",
            "a1",
            [result("t1", "x"), result("t2", "y"), text("[Request interrupted by user]")],
        ),
        user("u2", "r1", "again"),
    )

    transcript, entries, _ = imported(path)

    assert links(entries) == {
        "u1": None,
        "a1": "u1",
        "r1.1": "a1",
        "r1.2": "r1.1",
        "r1": "r1.2",
        "u2": "r1",
    }
    assert [entry.origin for entry in entries[2:5]] == ["tool", "tool", "injected"]
    assert transcript.report.extra == 2
    assert_accounted(transcript)


def test_sub_agents_are_sessions_linked_to_theirs(written: Written) -> None:
    path = written(
        user("u1", None, "go"),
        block("a1", "u1", "m1", call("t1")),
        user("x1", None, "explore the code", isSidechain=True),
        block("x2", "x1", "m2", text("explored"), isSidechain=True),
        user("r1", "a1", [result("t1", "explored")], toolUseResult={"agentId": "k7"}),
        user("y1", None, "other", isSidechain=True, agentId="k8"),
    )

    main, first, second = open_transcripts(path, tenant="acme")
    (entries, _), (own, _), (other, _) = parted(main), parted(first), parted(second)

    assert links(entries) == {"u1": None, "a1": "u1", "r1": "a1"}
    assert (entries[2].metadata or {})["agentId"] == "k7"
    assert first.session_id == "s-1:agent-x1"
    assert links(own) == {"x1": None, "x2": "x1"}
    assert own[0].origin == "model"
    facts = (own[0].metadata or {})["session"]
    assert isinstance(facts, dict)
    assert facts["parentSession"] == "s-1"
    assert second.session_id == "s-1:agent-k8"
    assert len(other) == 1
    assert sum(each.report.lines for each in (main, first, second)) == 6


def test_a_file_of_one_sub_agent_names_the_session_above_it(written: Written) -> None:
    path = written(user("y1", None, "look", isSidechain=True, agentId="k8"))

    transcript, entries, _ = imported(path)

    assert transcript.session_id == "s-1:agent-k8"
    facts = (entries[0].metadata or {})["session"]
    assert isinstance(facts, dict)
    assert facts["parentSession"] == "s-1"


def test_the_first_row_of_an_id_wins(written: Written) -> None:
    path = written(user("u1", None, "first"), user("u1", None, "second"))

    transcript, entries, skipped = imported(path)

    assert [texts(entry) for entry in entries] == [["first"]]
    assert [(item.line, item.cause) for item in skipped] == [(2, "duplicate")]
    assert transcript.report.duplicates == 1


def test_media_become_references(written: Written) -> None:
    png = "aGVsbG8="
    image: JsonObject = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": png},
    }
    path = written(
        user("u1", None, [text("see"), image]),
        block("a1", "u1", "m1", call("t1")),
        user("r1", "a1", [result("t1", [text("shot"), image])]),
    )

    _, entries, _ = imported(path)

    reference = {
        "type": "image",
        "mimeType": "image/png",
        "sha256": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
        "bytes": 5,
    }
    message, answer = entries[0].message, entries[2].message
    assert message is not None
    assert answer is not None
    assert message.content[1] == reference
    assert answer.content[0]["result"] == [{"type": "text", "text": "shot"}, reference]


def test_bookkeeping_rows_are_left_out_and_counted(written: Written) -> None:
    path = written(
        {"type": "file-history-snapshot", "snapshot": {}},
        user("u1", None, "go"),
        {"type": "queue-operation", "operation": "enqueue", "content": "x"},
        {"type": "summary", "summary": "a title", "leafUuid": "u1"},
        {"type": "of-the-future", "x": 1},
    )

    transcript, entries, _ = imported(path)

    assert len(entries) == 1
    assert transcript.report.left_out == {
        "file-history-snapshot": 1,
        "queue-operation": 1,
        "summary": 1,
        "row of type of-the-future": 1,
    }
    assert_accounted(transcript)
