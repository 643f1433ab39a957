"""Sizes at the edge: JSON measured before it is sent, text joined and cut under a cap.

Everything fails early: a value is never serialised whole only to learn that it is too large (S15).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from ombus_schemas.concealment import conceal_text
from ombus_schemas.jsontext import JsonObject, JsonValue, json_text, utf8_length
from ombus_schemas.resolution import resolve_settings

from ombus_streams.memory.redact import cut_utf8
from ombus_streams.runtime.errors import LimitExceeded

MAX_DEPTH: Final = 64
"""Nesting of a measured value; the root is depth 0."""

_OWN_PREFIXES: Final = ("Observational memory", "Unknown observational")


def measure(value: object, max_bytes: int, label: str) -> int:
    """Return the UTF-8 size of the compact JSON text of ``value``.

    ``UNSET`` members are left out and ``UNSET`` items count as ``null``, like JavaScript's
    ``undefined``.

    Raises:
        LimitExceeded: larger than ``max_bytes``, deeper than 64, a non-finite number, or not JSON.
    """
    size = 0
    stack: list[tuple[object, int]] = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise LimitExceeded(label, f"exceeds JSON depth {MAX_DEPTH}", MAX_DEPTH)
        match item:
            case Mapping():
                members = [(key, child) for key, child in item.items() if child is not UNSET]
                size += 2 + max(0, len(members) - 1)
                for key, child in members:
                    if not isinstance(key, str):
                        raise LimitExceeded(label, "is not JSON: a key is not text")
                    size += 1 + _text_size(key)
                    stack.append((child, depth + 1))
            case list() | tuple():
                size += 2 + max(0, len(item) - 1)
                stack.extend((None if child is UNSET else child, depth + 1) for child in item)
            case _:
                size += _scalar_size(item, label)
        if size > max_bytes:
            raise LimitExceeded(label, f"exceeds {max_bytes} bytes", max_bytes)
    return size


def join(parts: Iterable[str], max_bytes: int, label: str) -> str:
    """Return ``parts`` joined by newlines; none stands before the first text that is not empty.

    Raises:
        LimitExceeded: the text would be larger than ``max_bytes``.
    """
    kept: list[str] = []
    size = 0
    for part in parts:
        size += utf8_length(part) + (1 if kept else 0)
        if size > max_bytes:
            raise LimitExceeded(label, f"exceeds {max_bytes} bytes", max_bytes)
        if kept or part:
            kept.append(part)
    return "\n".join(kept)


def truncate(text: str, max_bytes: int) -> str:
    """Return the longest prefix that fits, cut between characters; what fits is untouched."""
    return cut_utf8(text, max_bytes)


def error_text(message: str, secrets: Sequence[str], max_bytes: int) -> str:
    """Return a failure's message as it may be shown: redacted, and cut unless it is ours (S15).

    Ours are redacted too: the name of an unknown tool is the model's text.
    """
    redacted = conceal_text(message, secrets)
    return redacted if message.startswith(_OWN_PREFIXES) else truncate(redacted, max_bytes)


def page_limit(value: JsonValue | UnsetType) -> int:
    """Return the page size a host asked for; absent means 20 (S17).

    Raises:
        SettingOutOfRange: null, not an integer, or below 1. There is no upper bound here: a page
            above 100 fails where it is used.
    """
    group: JsonObject = {} if isinstance(value, UnsetType) else {"pageLimit": value}
    return resolve_settings({"retrieval": group}).retrieval.page_limit


def _scalar_size(value: object, label: str) -> int:
    match value:
        case None | bool():
            return len(json_text(value))
        case str():
            return _text_size(value)
        case int() | float():
            try:
                finite = math.isfinite(value)
            except OverflowError:
                finite = False
            if finite:
                return len(json_text(value))
            raise LimitExceeded(label, "is not JSON: a number is not finite")
        case _:
            raise LimitExceeded(label, f"is not JSON: {type(value).__name__}")


def _text_size(text: str) -> int:
    try:
        return len(msgspec.json.encode(text))
    except UnicodeEncodeError:  # lone surrogates, which JavaScript escapes
        return utf8_length(json_text(text))
