"""Known secrets out of rendered texts, and cuts that never split a character.

Whoever renders redacts first and cuts after (design.md section 12, row 1): a secret that a cut
would have halved is gone before the cut, and the result fits its cap. ``redact`` and
``redact_text`` are those of the wire, which admission uses as well.
"""

from collections.abc import Sequence

from ombus_schemas.jsontext import JsonValue, json_text, utf8_length, utf16_length
from ombus_schemas.redaction import MARKER, redact, redact_text

__all__ = [
    "MARKER",
    "cut_utf8",
    "cut_utf16",
    "redact",
    "redact_rendered",
    "redact_text",
    "redacted_json_text",
]


def redacted_json_text(value: JsonValue, secrets: Sequence[str]) -> str:
    """Return the JSON text of ``value``, redacted as decoded strings, however deep it is.

    So a secret that JSON would escape is found, and the text stays JSON (design row 1).
    """
    return json_text(redact(value, secrets, None) if any(secrets) else value)


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
