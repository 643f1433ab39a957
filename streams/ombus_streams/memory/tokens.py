"""Token estimates: UTF-16 units of the JSON text, four to a token (S3).

Every fold weighs every entry, so lengths are added up without writing the text.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from ombus_schemas.entries import Entry, Message
from ombus_schemas.jsontext import JsonObject, JsonValue, json_text, utf16_length
from ombus_schemas.records import Observation, Reflection

from ombus_streams.memory.serialize import entry_json

ESTIMATOR: Final = "chars4/1"
"""Names this rule in ``producedBy``; another rule is another name."""

_encode: Final = msgspec.json.Encoder().encode


def text_tokens(text: str) -> int:
    """Return the estimate for ``text``: its UTF-16 length over four, rounded up."""
    return _tokens(utf16_length(text))


def message_tokens(message: Message) -> int:
    """Return the sum over the blocks, each rounded up; role, id and metadata weigh nothing."""
    total = 0
    for block in message.content:
        total -= -_object_units(block) // 4
    return total


def entry_tokens(entry: Entry) -> int:
    """Return the estimate of the entry's message, or of the whole entry if it has none."""
    if entry.message is not None:
        return message_tokens(entry.message)
    return _tokens(_units(entry_json(entry)))


def branch_tokens(entries: Iterable[Entry]) -> int:
    """Return the sum of the entries' estimates."""
    return sum(map(entry_tokens, entries))


def item_tokens(items: Iterable[Observation | Reflection]) -> int | float:
    """Return the sum of the recorded counts, added left to right as JavaScript adds them."""
    total: int | float = 0
    for item in items:
        total = total + item.token_count  # sum() compensates floats on newer Pythons
    return total


def _tokens(units: int) -> int:
    return -(-units // 4)


def _units(value: JsonValue) -> int:
    """Return the UTF-16 length of the JSON text of ``value``."""
    if isinstance(value, str):
        return _plain_units(value)
    if isinstance(value, dict):
        return _object_units(value)
    if isinstance(value, list):
        frame = 1 + len(value) if value else 2
        return frame + sum(map(_units, value))
    return len(json_text(value))


def _object_units(value: JsonObject) -> int:
    for item in value.values():
        if type(item) is not str:
            break
    else:
        return _plain_units(value)
    # braces, a colon to each key and a comma between two members
    frame = 1 + 2 * len(value) if value else 2
    return frame + sum(_plain_units(key) + _units(item) for key, item in value.items())


def _plain_units(value: str | JsonObject) -> int:
    """Return the length of a string, or of an object whose members are all strings: there msgspec
    writes what JSON.stringify does, but for the order of members."""
    try:
        raw = _encode(value)
    except UnicodeEncodeError:  # lone surrogates, which JavaScript escapes
        return utf16_length(json_text(value))
    return len(raw) if raw.isascii() else utf16_length(raw.decode())
