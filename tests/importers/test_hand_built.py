"""Sessions built by hand from formats.md, through the engine: their branches and their memory."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from ombus.operator.verification import verify_folder
from ombus_schemas.codec import decode
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory.session import Session, chain

from tests.exporters.folders import Folder, leaf_of, memory_of
from tests.importers.conftest import Written
from tests.importers.test_pi import HEADER, answered, called, row, said

PI = b"acme/" + str(HEADER["id"]).encode()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    with closing(Folder(tmp_path / "data")) as opened:
        yield opened
        assert verify_folder(opened.desk.engine).is_equal


def branches(session: Session) -> set[tuple[str, ...]]:
    """Return the chain of every leaf."""
    return {
        tuple(decode(row.value).id for _, row in chain(session, session.leaf(each).lineage))
        for each in session.segments()
    }


def observation(memory_id: str, source: str, content: str = "A fact.") -> JsonObject:
    return {
        "id": memory_id,
        "content": content,
        "timestamp": "2026-05-01 08:00",
        "relevance": "high",
        "sourceEntryIds": [source],
        "tokenCount": 3,
    }


def recorded(entry_id: str, parent: str, covers: str, *items: JsonValue) -> JsonObject:
    data: JsonObject = {"observations": list(items), "coversUpToId": covers}
    return row(entry_id, parent, {"customType": "om.observations.recorded", "data": data}, "custom")


def test_a_fork_in_pi_shares_the_memory_before_it_and_no_more(
    folder: Folder, written: Written
) -> None:
    folder.imports(
        written(
            HEADER,
            said("a1", None, "user", "start"),
            said("a2", "a1", "assistant", "ok"),
            recorded("m1", "a2", "a2", observation("00000000000a", "a1")),
            said("l1", "m1", "user", "left"),
            said("l2", "l1", "assistant", "left done"),
            recorded("m2", "l2", "l2", observation("00000000000b", "l1")),
            said("r1", "m1", "user", "right"),
            said("r2", "r1", "assistant", "right done"),
            recorded("m3", "r2", "r2", observation("00000000000c", "r1")),
        )
    )

    with folder.session(PI) as session:
        assert branches(session) == {
            ("a1", "a2", "m1", "l1", "l2", "m2"),
            ("a1", "a2", "m1", "r1", "r2", "m3"),
        }
        held = {
            session.leaf(each).tip_id: memory_of(session, session.leaf(each))["active"]
            for each in session.segments()
        }
        assert held == {
            "m2": ["00000000000a", "00000000000b"],
            "m3": ["00000000000a", "00000000000c"],
        }
        assert leaf_of(session).tip_id == "m3"


def test_a_rewind_in_pi_leaves_the_old_end_and_goes_on_at_the_new_one(
    folder: Folder, written: Written
) -> None:
    folder.imports(
        written(
            HEADER,
            said("a1", None, "user", "start"),
            called("a2", "a1", "c1"),
            answered("a3", "a2", "c1"),
            said("a4", "a3", "user", "wrong way"),
            recorded("m1", "a4", "a4", observation("00000000000a", "a4")),
            row("s1", "a3", {"fromId": "a4", "summary": "went wrong"}, "branch_summary"),
            said("b4", "s1", "user", "right way"),
            said("b5", "b4", "assistant", "done"),
        )
    )

    with folder.session(PI) as session:
        assert branches(session) == {
            ("a1", "a2", "a3", "a4", "m1"),
            ("a1", "a2", "a3", "s1", "b4", "b5"),
        }
        assert leaf_of(session).tip_id == "b5"
        # What was remembered on the way that was left is no memory of the other one.
        assert memory_of(session, leaf_of(session))["active"] == []
        assert leaf_of(session).n_pending == 5


def test_a_pi_session_with_a_ledger_has_its_memory_at_once(
    folder: Folder, written: Written
) -> None:
    reflection: JsonObject = {
        "id": "00000000000f",
        "content": "Building goes on.",
        "supportingObservationIds": ["00000000000a"],
        "tokenCount": 4,
    }
    first, second = observation("00000000000a", "a1"), observation("00000000000b", "a2")
    folded: JsonObject = {
        "type": "om.folded",
        "version": 1,
        "fullFold": False,
        "observations": [first, second],
        "reflections": [reflection],
    }
    folder.imports(
        written(
            HEADER,
            said("a1", None, "user", "build it"),
            said("a2", "a1", "assistant", "building"),
            recorded("m1", "a2", "a2", first, second),
            row(
                "m2",
                "m1",
                {
                    "customType": "om.reflections.recorded",
                    "data": {"reflections": [reflection], "coversUpToId": "m1"},
                },
                "custom",
            ),
            said("a3", "m2", "user", "go on"),
            row(
                "k1",
                "a3",
                {
                    "summary": "It is being built.",
                    "firstKeptEntryId": "a3",
                    "tokensBefore": 9,
                    "details": folded,
                },
                "compaction",
            ),
            row(
                "m3",
                "k1",
                {
                    "customType": "om.observations.dropped",
                    "data": {"observationIds": ["00000000000b"], "coversUpToId": "m2"},
                },
                "custom",
            ),
        )
    )

    with folder.session(PI) as session:
        leaf = leaf_of(session)
        assert branches(session) == {("a1", "a2", "m1", "m2", "a3", "k1", "m3")}
        held = memory_of(session, leaf)
        assert (held["active"], held["dropped"]) == (["00000000000a"], ["00000000000b"])
        assert held["reflections"] == ["00000000000f"]
        assert leaf.coverage_id == "a2"
        assert leaf.through_id == "m2"
        assert leaf.n_pending == 1  # a3 alone: nothing that pi-OM observed is observed again


def claude(uuid: str, parent: str | None, kind: str, content: JsonValue, **more: str) -> JsonObject:
    message: JsonObject = {"role": kind, "content": content}
    if "mid" in more:
        message["id"] = more["mid"]
    return {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "cc-1",
        "timestamp": "2026-05-01T08:00:00.000Z",
        "message": message,
    }


def use(call_id: str) -> JsonValue:
    return [{"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": call_id}}]


def done(call_id: str) -> JsonValue:
    return [{"type": "tool_result", "tool_use_id": call_id, "content": f"{call_id} done"}]


def test_parallel_calls_in_claude_code_are_one_message_and_no_fork(
    folder: Folder, written: Written
) -> None:
    folder.imports(
        written(
            claude("u1", None, "user", "look at both"),
            claude("a1", "u1", "assistant", [{"type": "text", "text": "both"}], mid="m1"),
            claude("a2", "a1", "assistant", use("c1"), mid="m1"),
            claude("a3", "a2", "assistant", use("c2"), mid="m1"),
            claude("r1", "a2", "user", done("c1")),
            claude("r2", "a3", "user", done("c2")),
            claude("a4", "r2", "assistant", "both seen", mid="m2"),
        )
    )

    with folder.session(b"acme/cc-1") as session:
        assert branches(session) == {("u1", "a1", "r1", "r2", "a4")}
        entry = session.entry("a1")
        assert entry is not None
        assert entry.message is not None
        kinds = [block["type"] for block in entry.message.content]
        assert kinds == ["text", "tool_call", "tool_call"]
        assert leaf_of(session).n_pending == 5


def test_a_rewind_in_claude_code_is_two_branches(folder: Folder, written: Written) -> None:
    folder.imports(
        written(
            claude("u1", None, "user", "start"),
            claude("a1", "u1", "assistant", use("c1"), mid="m1"),
            claude("r1", "a1", "user", done("c1")),
            claude("a2", "r1", "assistant", "ready", mid="m2"),
            claude("u2", "a2", "user", "go left"),
            claude("a3", "u2", "assistant", "left", mid="m3"),
            claude("u3", "a2", "user", "no, go right"),
            claude("a4", "u3", "assistant", "right", mid="m4"),
        )
    )

    with folder.session(b"acme/cc-1") as session:
        assert branches(session) == {
            ("u1", "a1", "r1", "a2", "u2", "a3"),
            ("u1", "a1", "r1", "a2", "u3", "a4"),
        }
        assert leaf_of(session).tip_id == "a4"
        assert leaf_of(session).n_pending == 6


def test_a_compacted_codex_session_is_one_chain_with_a_boundary(
    folder: Folder, written: Written
) -> None:
    def item(**payload: JsonValue) -> JsonObject:
        return {"timestamp": "2026-05-01T08:00:00Z", "type": "response_item", "payload": payload}

    def text(role: str, words: str) -> JsonObject:
        kind = "output_text" if role == "assistant" else "input_text"
        return item(type="message", role=role, content=[{"type": kind, "text": words}])

    old: JsonObject = {"type": "message", "role": "user", "content": []}
    folder.imports(
        written(
            {"timestamp": "t", "type": "session_meta", "payload": {"id": "cx-1", "cwd": "/w"}},
            text("user", "<environment_context>x</environment_context>"),
            text("user", "build it"),
            item(type="function_call", name="shell", arguments='{"a":1}', call_id="c1"),
            item(type="function_call_output", call_id="c1", output="ok"),
            text("assistant", "built"),
            {
                "timestamp": "2026-05-01T08:00:01Z",
                "type": "compacted",
                "payload": {"message": "It was built.", "replacement_history": [old]},
            },
            text("user", "now test it"),
            text("assistant", "tested"),
        )
    )

    with folder.session(b"acme/cx-1") as session:
        (only,) = branches(session)
        leaf = leaf_of(session)
        entries = [session.entry(name) for name in only]
        kinds = [entry.kind for entry in entries if entry is not None]
        assert kinds.count("compaction") == 1
        assert "replacement_history" not in str(entries)
        at = kinds.index("compaction")
        assert leaf.through_id == only[at - 1]
        # An import says nothing of what it observed: all that was said is still to be observed.
        assert leaf.coverage_id is None
        assert leaf.n_pending == 6
