"""S14, serialised sources, and row 1 of design.md section 12."""

import msgspec
import pytest
from ombus_schemas.entries import Entry, Message
from ombus_streams.memory.errors import SizeExceeded
from ombus_streams.memory.redact import MARKER
from ombus_streams.memory.serialize import entry_json, serialize_entries, serialize_entry

from tests.support.ledgers import entry, message


def test_a_text_stands_as_it_is_and_anything_else_as_json() -> None:
    assert serialize_entry(entry("e", data="a\nb")) == "[e] custom: a\nb"
    assert serialize_entry(entry("e", data=[1.0, None])) == "[e] custom: [1,null]"
    assert serialize_entry(entry("e", data=False)) == "[e] custom: false"


def test_the_first_payload_that_is_there_is_shown() -> None:
    summary = Entry(id="e", session_id="s", kind="summary", summary="", data=1)
    label = Entry(id="e", session_id="s", kind="label", label="x")

    assert serialize_entry(summary) == "[e] summary: "
    assert serialize_entry(label) == "[e] label: {}"


def test_an_empty_message_keeps_its_content_on_the_wire() -> None:
    empty = Entry(id="e", session_id="s", kind="message", message=Message(role="user"))

    assert serialize_entry(empty) == '[e] message: {"role":"user","content":[]}'
    assert entry_json(empty)["message"] == {"role": "user", "content": []}
    assert msgspec.convert(entry_json(empty), Entry) == empty


def test_a_budget_counts_newlines_and_bytes() -> None:
    entries = [entry("a", data="é"), entry("b", data="x")]

    lines = serialize_entries(entries, max_bytes=28)

    assert lines == "[a] custom: é\n[b] custom: x"
    with pytest.raises(SizeExceeded):
        serialize_entries(entries, max_bytes=27)
    with pytest.raises(SizeExceeded):
        serialize_entries(entries, max_bytes=14)


@pytest.mark.parametrize("max_bytes", [1.5, -1, 2**60])
def test_a_budget_is_a_whole_number(max_bytes: float) -> None:
    with pytest.raises(ValueError, match="whole number"):
        serialize_entry(entry("a"), max_bytes=max_bytes)


def test_a_secret_that_json_escapes_is_redacted() -> None:
    assert MARKER in serialize_entry(message("m", 'a"b'), ['a"b'])
    assert serialize_entry(entry("e1", data=16), ["e1", "16"]) == f"[{MARKER}] custom: {MARKER}"
