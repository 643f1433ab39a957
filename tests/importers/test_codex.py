"""Codex rollouts: modern, legacy, compacted."""

from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import compaction_of

from tests.importers.conftest import Written
from tests.importers.reading import assert_accounted, imported, links, texts

META: JsonObject = {
    "timestamp": "2026-05-01T08:00:00.000Z",
    "type": "session_meta",
    "payload": {"id": "019f15de", "cwd": "/work", "forked_from_id": "019f0000"},
}


def item(kind: str, **fields: JsonValue) -> JsonObject:
    at = "2026-05-01T08:00:01.000Z"
    return {"timestamp": at, "type": "response_item", "payload": {"type": kind, **fields}}


def said(role: str, text: str) -> JsonObject:
    return item("message", role=role, content=[{"type": "input_text", "text": text}])


def test_response_items_become_a_chain_and_events_do_not(written: Written) -> None:
    path = written(
        META,
        said("developer", "<permissions instructions>"),
        said("user", "# AGENTS.md instructions for /work"),
        said("user", "fix it"),
        {"type": "event_msg", "timestamp": "", "payload": {"type": "user_message"}},
        item("reasoning", summary=[{"type": "summary_text", "text": "hm"}], encrypted_content="x"),
        item("reasoning", summary=[], encrypted_content="x"),
        item("function_call", name="shell", arguments='{"command":"ls"}', call_id="c1"),
        item("custom_tool_call", name="patch", input="*** Begin", call_id="c2"),
        item("function_call_output", call_id="c1", output="Exit code: 2\nboom"),
        item(
            "custom_tool_call_output", call_id="c2", output=[{"type": "input_text", "text": "ok"}]
        ),
    )

    transcript, entries, _ = imported(path)

    assert transcript.session_id == "019f15de"
    assert list(links(entries)) == ["L2", "L3", "L4", "L6", "L8", "L9", "L10", "L11"]
    assert [entry.origin for entry in entries[:3]] == ["injected", "injected", "human"]
    calls = [message.content[0] for entry in entries[4:] if (message := entry.message)]
    assert calls[0]["arguments"] == {"command": "ls"}
    assert calls[1]["arguments"] == {"input": "*** Begin"}
    assert calls[2]["name"] == "shell"
    assert calls[3]["result"] == "ok"
    assert (entries[6].metadata or {})["exitCode"] == 2
    facts = (entries[0].metadata or {})["session"]
    assert isinstance(facts, dict)
    assert facts["parentSession"] == "019f0000"
    assert transcript.report.left_out == {
        "event_msg repeats response items": 1,
        "reasoning without text": 1,
    }
    assert_accounted(transcript)


def test_a_compacted_session_keeps_what_was_said_once(written: Written) -> None:
    path = written(
        META,
        said("user", "one"),
        said("assistant", "two"),
        {
            "timestamp": "2026-05-01T08:00:02.000Z",
            "type": "compacted",
            "payload": {
                "message": "They counted to two.",
                "replacement_history": [{"type": "message", "role": "user", "content": []}],
            },
        },
        said("user", "three"),
    )

    _, entries, _ = imported(path)

    compaction = compaction_of(entries[2])
    assert compaction is not None
    assert compaction.through_entry_id == "L3"
    assert entries[2].summary == "They counted to two."
    assert [texts(entry) for entry in entries if entry.message] == [["one"], ["two"], ["three"]]


def test_a_legacy_file_has_bare_items_between_state_records(written: Written) -> None:
    content: JsonValue = [{"type": "input_text", "text": "go"}]
    path = written(
        {"id": "old", "timestamp": "2025-09-01T08:00:00Z", "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": content},
        {"type": "function_call", "name": "shell", "arguments": "not json", "call_id": "c1"},
        {"record_type": "state"},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": '{"output":"x","metadata":{"exit_code":1}}',
        },
    )

    transcript, entries, _ = imported(path)

    assert transcript.session_id == "old"
    assert links(entries) == {"L3": None, "L4": "L3", "L6": "L4"}
    assert (entries[2].metadata or {})["exitCode"] == 1
    assert transcript.report.left_out == {"state record": 2}


def test_windows_line_ends_change_nothing(written: Written) -> None:
    path = written(META, said("user", "one"))
    plain = imported(path)[1]
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))

    assert imported(path)[1] == plain
