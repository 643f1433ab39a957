"""Known secrets leave text and structures before anything is logged, sent to a model or shown.

Exact matches on decoded strings and keys, never on JSON text, so the result is always a value of
the same shape (S9; design.md section 12 row 1, cases.md B39). Redact first, cut afterwards.
"""

from collections.abc import Sequence
from typing import Final

from ombus_schemas.jsontext import JsonObject, JsonValue

MARKER: Final = "[REDACTED]"
TOO_DEEP: Final = "[MaxDepth]"
MAX_DEPTH: Final = 32
"""Containers this deep or deeper are replaced, unless the caller knows the depth (S9)."""


def redact_text(text: str, secrets: Sequence[str]) -> str:
    """Return ``text`` with every literal occurrence of each secret replaced, in their order.

    Case counts, an empty secret is none, and a later secret sees the markers of earlier ones (S9).
    """
    for secret in secrets:
        if secret:
            text = text.replace(secret, MARKER)
    return text


def redact(
    value: JsonValue, secrets: Sequence[str], max_depth: int | None = MAX_DEPTH
) -> JsonValue:
    """Return ``value`` with its strings and object keys redacted.

    Keys that become equal get ``__2``, ``__3``…; what lies ``max_depth`` deep becomes
    ``[MaxDepth]``, and nothing does with ``None``, for values whose depth was checked (S9).
    """
    if isinstance(value, str):
        return redact_text(value, secrets)
    if not isinstance(value, list | dict):
        return value
    if max_depth == 0:
        return TOO_DEEP
    below = None if max_depth is None else max_depth - 1
    if isinstance(value, list):
        return [redact(item, secrets, below) for item in value]
    result: JsonObject = {}
    for key, item in value.items():
        result[free_key(redact_text(key, secrets), result)] = redact(item, secrets, below)
    return result


def free_key(key: str, taken: JsonObject) -> str:
    """Return ``key``, or with the first suffix ``__2``, ``__3``… that is not ``taken``."""
    name, n = key, 1
    while name in taken:
        n += 1
        name = f"{key}__{n}"
    return name
