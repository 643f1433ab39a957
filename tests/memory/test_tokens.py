"""S3 and S25."""

from hypothesis import given
from ombus_schemas.entries import Entry, Message
from ombus_schemas.jsontext import JsonValue, json_text, utf16_length
from ombus_streams.memory.tokens import (
    branch_tokens,
    entry_tokens,
    item_tokens,
    message_tokens,
    text_tokens,
)

from tests.support.ledgers import AT, entry, json_values, message, observation


def test_a_text_weighs_a_quarter_of_its_utf16_length_rounded_up() -> None:
    assert [text_tokens(text) for text in ("", "abcd", "abcde", "😀😀", "😀😀a")] == [0, 1, 2, 1, 2]


def test_blocks_are_rounded_one_by_one() -> None:
    one = message_tokens(Message(role="user", content=[{"a": 1}]))

    assert one == 2
    assert message_tokens(Message(role="user", content=[{"a": 1}, {"a": 1}])) == 4


def test_role_id_and_metadata_of_a_message_weigh_nothing() -> None:
    plain = Message(role="user", content=[{"type": "text", "text": "hi"}])
    loud = Message(role="assistant", content=plain.content, id="x" * 99, metadata={"k": "v" * 99})

    assert message_tokens(loud) == message_tokens(plain)


def test_an_entry_without_a_message_weighs_its_whole_text() -> None:
    text = f'{{"id":"e1","sessionId":"s1","timestamp":"{AT}","kind":"custom","data":5}}'

    assert entry_tokens(entry("e1", data=5)) == text_tokens(text)


def test_a_parent_that_is_null_is_part_of_the_text() -> None:
    absent = Entry(id="e1", session_id="s", kind="custom")
    root = Entry(id="e1", session_id="s", kind="custom", parent_id=None)

    assert entry_tokens(root) - entry_tokens(absent) == len(',"parentId":null') // 4


def test_a_branch_weighs_the_sum_of_its_entries() -> None:
    entries = [message("e1", "hello"), entry("x", data=[1.0])]

    assert branch_tokens(entries) == sum(map(entry_tokens, entries))


def test_counts_are_added_left_to_right_in_doubles() -> None:
    items = [observation(n, tokens=tokens) for n, tokens in enumerate([0.1] * 10)]

    assert item_tokens(items) == 0.9999999999999999


@given(json_values())
def test_the_weight_of_a_block_is_that_of_its_json_text(value: JsonValue) -> None:
    block: dict[str, JsonValue] = {"type": "x", "value": value}

    weight = message_tokens(Message(role="user", content=[block]))

    assert weight == -(-utf16_length(json_text(block)) // 4)
