"""Known secrets out of texts and JSON values, and cuts that never split a character.

Whoever renders redacts first and cuts after (design.md section 12, row 1): a secret that a cut
would have halved is gone before the cut, and the result fits its cap.
"""

from collections.abc import Sequence
from typing import Final

from ombus_schemas.jsontext import JsonObject, JsonValue, json_text, utf8_length, utf16_length

MARKER: Final = "[REDACTED]"
MAX_DEPTH: Final = 32
"""Containers this deep or deeper are replaced in redacted values (S9)."""
TOO_DEEP: Final = "[MaxDepth]"


def redact_text(text: str, secrets: Sequence[str]) -> str:
    """Return ``text`` with every literal occurrence of each secret replaced, in their order.

    Case counts, an empty secret is none, and a later secret sees the markers of earlier ones (S9).
    """
    for secret in secrets:
        if secret:
            text = text.replace(secret, MARKER)
    return text


def redact(value: JsonValue, secrets: Sequence[str]) -> JsonValue:
    """Return ``value`` with its strings and object keys redacted.

    Keys that become equal get ``__2``, ``__3``…; what lies 32 deep becomes ``[MaxDepth]`` (S9).
    """
    return _redact(value, secrets, MAX_DEPTH)


def redacted_json_text(value: JsonValue, secrets: Sequence[str]) -> str:
    """Return the JSON text of ``value``, redacted as decoded strings, however deep it is.

    So a secret that JSON would escape is found, and the text stays JSON (design row 1).
    """
    return json_text(_redact(value, secrets, None) if any(secrets) else value)


def redact_rendered(text: str, secrets: Sequence[str]) -> str:
    """Return ``text``, parts of which are redacted already, with the rest of it redacted.

    The markers that stand in it are kept, so no part is redacted twice.
    """
    if not any(secrets):
        return text
    return MARKER.join(redact_text(part, secrets) for part in text.split(MARKER))


def cut_utf8(text: str, max_bytes: float) -> str:
    """Return the longest prefix of whole characters that fits in ``max_bytes`` of UTF-8.

    A lone surrogate counts three bytes; a cut does not leave a first half at the end.
    """
    if utf8_length(text) <= max_bytes:
        return text
    raw = text.encode("utf-8", "surrogatepass")
    end = max(0, int(max_bytes))
    while end and raw[end] & 0xC0 == 0x80:
        end -= 1
    return _without_half(raw[:end].decode("utf-8", "surrogatepass"))


def cut_utf16(text: str, max_units: int) -> str:
    """Return the longest prefix of whole characters of at most ``max_units`` UTF-16 units."""
    if utf16_length(text) <= max_units:
        return text
    raw = text.encode("utf-16-le", "surrogatepass")
    cut = raw[: 2 * max(0, max_units)].decode("utf-16-le", "surrogatepass")
    return _without_half(cut)


def _without_half(cut: str) -> str:
    return cut[:-1] if cut and "\ud800" <= cut[-1] <= "\udbff" else cut


def _redact(value: JsonValue, secrets: Sequence[str], max_depth: int | None) -> JsonValue:
    if isinstance(value, str):
        return redact_text(value, secrets)
    if not isinstance(value, list | dict):
        return value
    if max_depth == 0:
        return TOO_DEEP
    below = None if max_depth is None else max_depth - 1
    if isinstance(value, list):
        return [_redact(item, secrets, below) for item in value]
    result: JsonObject = {}
    for key, item in value.items():
        result[_free_key(redact_text(key, secrets), result)] = _redact(item, secrets, below)
    return result


def _free_key(key: str, taken: JsonObject) -> str:
    if key not in taken:
        return key
    n = 2
    while f"{key}__{n}" in taken:
        n += 1
    return f"{key}__{n}"
