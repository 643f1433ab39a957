"""Design.md section 8: results and their calls."""

from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.pairing import NO_RESULT_YET, closure, pair, shown

from tests.support.ledgers import message


def call(call_id: str) -> JsonObject:
    return {"type": "tool_call", "id": call_id, "name": "run", "arguments": {}}


def result(call_id: str) -> JsonObject:
    return {"type": "tool_result", "toolCallId": call_id, "name": "run", "result": 1}


def test_a_result_pairs_with_the_nearest_earlier_call_that_has_none() -> None:
    entries = [
        message("a", call("x"), role="assistant"),
        message("b", call("x"), role="assistant"),
        message("c", result("x"), result("x"), result("x"), role="tool"),
    ]

    pairs = pair(entries)

    assert pairs.call_by_result == {(2, 0): (1, 0), (2, 1): (0, 0)}
    assert pairs.orphans == {(2, 2)}


def test_keeping_a_result_keeps_its_call_and_every_result_of_that_message() -> None:
    entries = [
        message("a", "hi"),
        message("b", call("x"), call("y"), role="assistant"),
        message("c", result("x"), role="tool"),
        message("d", result("y"), role="tool"),
    ]

    assert closure(entries, [3]) == {1, 2, 3}


def test_a_result_without_its_call_is_taken_out_block_by_block() -> None:
    entries = [
        message("a", call("x"), role="assistant"),
        message("b", call("y"), role="assistant"),
        message("c", result("x"), result("y"), role="tool"),
        message("d", result("z"), role="tool"),
    ]

    kept, robbed = shown(entries, {1, 2, 3})

    assert sorted(kept) == [1, 2]
    assert blocks(kept[2]) == [result("y")]
    assert [entry.id for entry in robbed] == ["c", "d"]


def test_an_open_call_says_that_it_has_no_result_yet() -> None:
    kept, _ = shown([message("a", call("x"), role="assistant")], {0})

    assert blocks(kept[0])[1] == {"type": "text", "text": NO_RESULT_YET}


def blocks(entry: Entry) -> list[JsonObject]:
    assert entry.message is not None
    return entry.message.content
