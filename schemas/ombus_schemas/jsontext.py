"""JSON values, and the one JSON text that token counts, ids and rendered lines are made of.

The text is what JavaScript's ``JSON.stringify`` prints (S2): no spaces, non-ASCII kept, lone
surrogates escaped, integer-like keys first, numbers in shortest form.
"""

import re
import sys
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    JsonValue: TypeAlias = (
        "None | bool | int | float | str | list[JsonValue] | dict[str, JsonValue]"
    )
    JsonObject: TypeAlias = dict[str, JsonValue]
else:
    JsonValue = Any  # msgspec resolves no recursive alias
    JsonObject = dict[str, Any]

_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n"}
_SHORT.update({"\f": "\\f", "\r": "\\r"})
_ESCAPED: Final = re.compile('["\\\\\x00-\x1f\ud800-\udfff]')
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_MAX_INDEX: Final = 4_294_967_294
"""Largest key that counts as an array index in JavaScript."""
_BLANK: Final = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)


def json_text(value: JsonValue) -> str:
    """Return the compact JSON text of ``value``; total for every value a JSON decoder yields."""
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts)


def utf16_length(text: str) -> int:
    """Return the length JavaScript sees: characters beyond the basic plane count two."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf8_length(text: str) -> int:
    """Return the encoded size in bytes; a lone surrogate counts three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def trim(text: str) -> str:
    """Return ``text`` as JavaScript's ``trim`` leaves it; ``strip`` takes another set (S25)."""
    return text.strip(_BLANK)


def _write(value: JsonValue, parts: list[str]) -> None:
    match value:
        case None:
            parts.append("null")
        case bool():
            parts.append("true" if value else "false")
        case str():
            parts.append(_string(value))
        case int() | float():
            parts.append(_number(value))
        case list():
            parts.append("[")
            for index, item in enumerate(value):
                if index:
                    parts.append(",")
                _write(item, parts)
            parts.append("]")
        case _:
            parts.append("{")
            for index, (key, item) in enumerate(_in_javascript_order(value)):
                parts.append("," if index else "")
                parts.append(_string(key))
                parts.append(":")
                _write(item, parts)
            parts.append("}")


def _string(text: str) -> str:
    if not text.isascii():
        # Two halves that stand side by side are one character to JavaScript.
        text = _PAIR.sub(_joined, text)
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _joined(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    return _SHORT.get(char) or f"\\u{ord(char):04x}"


def _number(value: int | float) -> str:
    if isinstance(value, int):
        if abs(value) < 10**15:
            return str(value)
        if abs(value) > sys.float_info.max:
            return "null"  # infinite to JavaScript, which has doubles only
        value = float(value)
    if value != value or value in (float("inf"), float("-inf")):
        return "null"
    if value == 0:
        return "0"
    digits, exponent = _shortest(abs(value))
    sign = "-" if value < 0 else ""
    n, k = exponent, len(digits)
    if k <= n <= 21:
        return sign + digits + "0" * (n - k)
    if 0 < n <= 21:
        return f"{sign}{digits[:n]}.{digits[n:]}"
    if -6 < n <= 0:
        return f"{sign}0.{'0' * -n}{digits}"
    mantissa = digits[0] + (f".{digits[1:]}" if k > 1 else "")
    return f"{sign}{mantissa}e{'+' if n > 0 else '-'}{abs(n - 1)}"


def _shortest(value: float) -> tuple[str, int]:
    """Return the shortest round-trip digits and n, so that value = 0.digits x 10^n."""
    mantissa, _, exponent = repr(value).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0)
    point -= len(whole + fraction) - len((whole + fraction).lstrip("0"))
    return digits.rstrip("0"), point


def _in_javascript_order(value: JsonObject) -> list[tuple[str, JsonValue]]:
    items = list(value.items())
    if not any(key[:1].isdigit() for key in value):
        return items
    indices = [item for item in items if _is_index(item[0])]
    names = [item for item in items if not _is_index(item[0])]
    return sorted(indices, key=lambda item: int(item[0])) + names


def _is_index(key: str) -> bool:
    return _INDEX.fullmatch(key) is not None and int(key) <= _MAX_INDEX
