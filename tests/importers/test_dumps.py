"""Message dumps of APIs, web exports, flat shapes, and the sessions of Prism and of ourselves."""

import json

import msgspec
from ombus.importers import open_transcripts
from ombus_schemas.entries import Entry, Message
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.ledger import fold

from tests.importers.conftest import Written
from tests.importers.reading import imported, links, parted, texts


def test_openai_messages_with_calls(written: Written) -> None:
    messages: list[JsonObject] = [
        {"role": "system", "content": "You are"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": '{"a":1}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        {"role": "assistant", "content": "It is 42."},
    ]
    for dump in (
        json.dumps({"model": "m", "messages": messages}),
        json.dumps(messages, indent=1),
        "\n".join(map(json.dumps, messages)),
    ):
        transcript, entries, skipped = imported(written(dump.encode()))

        assert transcript.format == "messages"
        assert [entry.message.role for entry in entries if entry.message] == [
            "system",
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        assert links(entries) == {"L1": None, "L2": "L1", "L3": "L2", "L4": "L3", "L5": "L4"}
        result = entries[3].message
        assert result is not None
        assert result.content[0]["name"] == "f"
        assert skipped == []


def test_anthropic_messages_with_results_in_the_users_turn(written: Written) -> None:
    messages: list[JsonObject] = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "t1", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "seen"},
                {"type": "text", "text": "<system-reminder>x</system-reminder>"},
                {"type": "text", "text": "and now?"},
            ],
        },
    ]
    transcript, entries, _ = imported(written(json.dumps({"messages": messages}).encode()))

    assert [entry.origin for entry in entries] == ["human", "model", "tool", "injected", "human"]
    assert transcript.report.calls == transcript.report.results == 1


def test_conversations_a_line_are_sessions(written: Written) -> None:
    one: JsonObject = {"messages": [{"role": "user", "content": "one"}]}
    two: JsonObject = {"conversations": [{"from": "human", "value": "two"}]}

    transcripts = list(open_transcripts(written(one, two), tenant="acme"))

    assert [texts(parted(each)[0][0]) for each in transcripts] == [["one"], ["two"]]
    assert len({each.session_id for each in transcripts}) == 2


def test_a_web_session_is_a_chain_with_its_compaction(written: Written) -> None:
    rows: list[JsonObject] = [
        {"type": "user", "message": {"role": "user", "content": "one"}},
        {
            "type": "user",
            "isCompactSummary": True,
            "message": {"role": "user", "content": "summary"},
        },
        {"type": "assistant", "message": {"role": "assistant", "content": "two"}},
    ]
    transcript, entries, _ = imported(written(json.dumps({"loglines": rows}, indent=2).encode()))

    assert transcript.format == "anthropic-web"
    assert [entry.kind for entry in entries] == ["message", "compaction", "message"]
    assert links(entries) == {"L1": None, "L2": "L1", "L3": "L2"}


def test_unknown_shapes_with_a_role_and_a_text_are_messages(written: Written) -> None:
    path = written(
        {"type": "message", "role": "user", "timestamp": 1_777_000_000_000, "text": "hi"},
        {"speaker": "Bot", "body": "hello"},
        {"author": {"role": "assistant"}, "content": {"parts": ["again"]}},
        {"weather": "fine"},
    )

    _, entries, skipped = imported(path)

    assert [texts(entry) for entry in entries] == [["hi"], ["hello"], ["again"]]
    assert entries[0].timestamp == "2026-04-24T03:06:40.000Z"
    assert [item.line for item in skipped] == [4]


def test_a_file_of_nothing_is_a_session_of_nothing(written: Written) -> None:
    for content in (b"", b"hello", b"{", b"[]", b'"x"', b"\xff\xfe", b"\n\n"):
        transcript, entries, skipped = imported(written(content))

        assert entries == []
        assert len(skipped) == transcript.n_rows


def test_the_old_marker_names_of_prism_become_ours(written: Written) -> None:
    path = written(
        {
            "sessionId": "s1",
            "kind": "message",
            "id": "o1",
            "message": {"role": "user", "content": [{"type": "text", "text": "set up CI"}]},
        },
        {
            "sessionId": "s1",
            "kind": "custom",
            "parentId": "o1",
            "id": "o2",
            "data": {
                "type": "observations_recorded",
                "coversUpToId": "o1",
                "observations": [
                    {
                        "id": "a1b2c3d4e5f6",
                        "content": "CI",
                        "timestamp": "t",
                        "relevance": "low",
                        "sourceEntryIds": ["o1"],
                        "tokenCount": 1,
                    }
                ],
            },
        },
        {
            "sessionId": "s1",
            "kind": "custom",
            "parentId": "o2",
            "id": "o3",
            "data": {"type": "observations_dropped", "observationIds": ["deadbeefdead"]},
        },
    )

    transcript, entries, _ = imported(path)

    assert (transcript.format, transcript.session_id) == ("prism", "s1")
    ledger = fold(entries)
    assert [item.id for item in ledger.observations] == ["a1b2c3d4e5f6"]
    assert tuple(ledger.dropped_ids) == ("deadbeefdead",)


def test_our_own_export_comes_back_as_it_was(written: Written) -> None:
    entries = [
        Entry(
            id="u1",
            session_id="s1",
            tenant_id="acme",
            parent_id=None,
            kind="message",
            schema_version=1,
            message=Message(role="user", content=[{"type": "text", "text": "one\u2028two"}]),
            origin="human",
            metadata={"mine": True},
        ),
        Entry(
            id="om:observer:0123456789abcdef01234567",
            session_id="s1",
            tenant_id="acme",
            parent_id="u1",
            kind="custom",
            schema_version=1,
            data={
                "type": "om.observations.recorded",
                "observations": [],
                "coversUpToId": "u1",
                "base": None,
            },
            origin="worker",
            side=True,
        ),
        Entry(
            id="u2",
            session_id="s1",
            tenant_id="acme",
            parent_id="u1",
            kind="message",
            schema_version=1,
            message=Message(role="assistant"),
        ),
    ]
    path = written(*map(msgspec.json.encode, entries))

    transcript, again, _ = imported(path)

    assert (transcript.format, transcript.session_id) == ("ombus", "s1")
    assert again == entries
    moved = imported(path, session="other")[1]
    assert {entry.session_id for entry in moved} == {"other"}
