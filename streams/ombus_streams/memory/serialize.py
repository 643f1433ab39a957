"""Entries as JSON values, and as the one-line evidence that prompts and recall show (S14)."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from ombus_schemas.entries import Entry, Message
from ombus_schemas.jsontext import JsonObject, JsonValue, utf8_length

from ombus_streams.memory.errors import SizeExceeded
from ombus_streams.memory.redact import redact_rendered, redact_text, redacted_json_text

_MAX_SAFE: Final = 2**53 - 1
_LABEL: Final = "Observational memory source"


def entry_json(entry: Entry) -> JsonObject:
    """Return the wire object of ``entry``: declaration order, absent fields left out."""
    value: JsonObject = msgspec.to_builtins(entry)
    if entry.message is not None:
        value["message"] = message_json(entry.message)
    return value


def message_json(message: Message) -> JsonObject:
    """Return the wire object of ``message``; empty content is written."""
    value: JsonObject = {"role": message.role, "content": list[JsonValue](message.content)}
    if message.id is not None:
        value["id"] = message.id
    if message.metadata is not None:
        value["metadata"] = message.metadata
    return value


def serialize_entry(
    entry: Entry, secrets: Sequence[str] = (), max_bytes: float | None = None
) -> str:
    """Return ``[<id>] <kind>: <payload>``, redacted.

    The payload is the first of message, summary, data, event and metadata that is there; a text
    stands as it is, anything else as JSON text. Raises ``SizeExceeded`` over ``max_bytes`` and
    ``ValueError`` when that is no whole number from 0.
    """
    payload = _payload(entry)
    if isinstance(payload, str):
        line = redact_text(f"[{entry.id}] {entry.kind}: {payload}", secrets)
    else:
        text = redacted_json_text(payload, secrets)
        line = redact_rendered(f"[{entry.id}] {entry.kind}: {text}", secrets)
    if max_bytes is not None:
        _check(line, max_bytes)
    return line


def serialize_entries(
    entries: Iterable[Entry], secrets: Sequence[str] = (), max_bytes: float | None = None
) -> str:
    """Return the lines of ``entries``, joined by newlines, all within ``max_bytes``."""
    lines: list[str] = []
    left = max_bytes
    for entry in entries:
        if left is not None and lines:
            if left < 1:
                raise SizeExceeded(_LABEL, max_bytes or 0, (max_bytes or 0) + 1)
            left -= 1
        line = serialize_entry(entry, secrets, left)
        if left is not None:
            left -= utf8_length(line)
        lines.append(line)
    return "\n".join(lines)


def _payload(entry: Entry) -> JsonValue:
    if entry.message is not None:
        return message_json(entry.message)
    for value in (entry.summary, entry.data, entry.event, entry.metadata):
        if value is not None:
            return value
    return {}


def _check(line: str, max_bytes: float) -> None:
    if max_bytes != int(max_bytes) or not 0 <= max_bytes <= _MAX_SAFE:
        raise ValueError(f"max_bytes is {max_bytes}: give a whole number from 0")
    size = utf8_length(line)
    if size > max_bytes:
        raise SizeExceeded(_LABEL, max_bytes, size)
