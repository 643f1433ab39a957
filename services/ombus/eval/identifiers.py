"""What an agent must name exactly: six published expressions, and what of a session they find.

An identifier counts by its text. Case matters, and so does every character between its ends.
"""

import re
from collections.abc import Iterator
from typing import Final

from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonValue

EXPRESSIONS: Final[dict[str, re.Pattern[str]]] = {
    "path": re.compile(r"(?<![\w/.:-])(?:~|\.{1,2})?/?(?:[\w.@+-]+/)+[\w.@+-]*\w"),
    "symbol": re.compile(
        r"(?<![\w/.-])(?:[A-Za-z]+(?:_[A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+|"
        r"(?:[A-Z][a-z0-9]+){2,}|[\w-]+\.(?:py|tsx?|jsx?|mjs|json|md|toml|ya?ml|rs|go|css|html|"
        r"sql|sh|txt|lock|cgi|pl))(?![\w/])"
    ),
    "number": re.compile(r"(?<![\w.])\d+(?:\.\d+)?\s?(?:%|ms|s|[kKMG]i?B|px|MB|GB|tokens|lines)\b"),
    "url": re.compile(r"https?://[^\s)>\]\"'`\\]+[^\s)>\]\"'`\\.,;:]"),
    "hash": re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b"),
    "error": re.compile(r"\b[A-Z]\w*(?:Error|Exception): [^\n\"'\\]{8,80}"),
}
"""Published: the kinds of ``eval reuse``."""
MAX_SCANNED_CHARS: Final = 200_000
"""Of one text."""


def identifiers_of(text: str) -> dict[str, str]:
    """Return the identifiers in ``text`` in their order, with the kind of each."""
    found: dict[str, str] = {}
    for kind, expression in EXPRESSIONS.items():
        for match in expression.finditer(text[:MAX_SCANNED_CHARS]):
            found.setdefault(match[0].strip(), kind)
    return found


def texts_of(entry: Entry) -> Iterator[str]:
    """Yield every text of a message: what is said, called and answered."""
    for block in entry.message.content if entry.message is not None else ():
        for key in ("text", "arguments", "result", "error", "name"):
            if key in block:
                yield from _strings(block[key])


def _strings(value: JsonValue) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _strings(item)
        case dict():
            for item in value.values():
                yield from _strings(item)
        case _:
            return
