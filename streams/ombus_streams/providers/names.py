"""Names that will be needed exactly again: paths, symbols, addresses, hashes, as an index.

What an agent names itself, and what comes back in several entries, is likely to be named again; the
latest most of all. The index fills only what better lines leave of a budget.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue

from ombus_streams.memory.coverage import NOT_SOURCES
from ombus_streams.memory.tokens import text_tokens
from ombus_streams.providers.lines import TEMPLATES, Line, clean
from ombus_streams.providers.speech import spoken

MAX_SOURCES: Final = 3
MAX_LINE_CHARS: Final = 240
MAX_READ_CHARS: Final = 8_000
"""Of one text, head and tail each."""
MAX_NAME_CHARS: Final = 120
MIN_NAME_CHARS: Final = 4

_NAME: Final = re.compile(
    r"""
    https?://[^\s)>\]"'`\\,;]+
    | (?<![\w/.-])(?:~|\.{1,2})?/?(?:[\w.@+-]+/)+[\w.@+-]*\w
    | (?<![\w/.-])[\w-]+\.(?:py|tsx?|jsx?|mjs|json|md|toml|ya?ml|rs|go|java|rb|css|html|sql|sh|txt
      |lock|cgi|pl)\b(?!/)
    | (?<![\w/.-])[A-Za-z]+(?:_[A-Za-z0-9]+)+\b
    | (?<![\w/.-])(?:[a-z]+(?:[A-Z][a-z0-9]+)+|(?:[A-Z][a-z0-9]+){2,})\b
    | \b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b
    | \b[A-Z]\w*(?:Error|Exception):\ [^\n"'\\]{8,80}
    | (?<![\w.])\d+(?:\.\d+)?\s?(?:%|ms|[kKMG]i?B|px|MB|tokens|lines)\b
    """,
    re.X,
)
_TO_A_MODEL: Final = re.compile(r"\b(?:ignore|instructions?|you must|system prompt)\b", re.I)


class _Name(msgspec.Struct):
    """A name and where it was seen."""

    text: str
    place: int
    """Of the entry that named it last."""
    n_entries: int = 0
    n_used: int = 0
    """Entries in which somebody said or called it, instead of a tool printing it."""

    def score(self, n_places: int) -> float:
        """Return how likely it is named again, for its length."""
        used = 1 + 1.5 * min(self.n_used, 4)
        recent = 0.35 + (self.place + 1) / n_places
        return used * math.log(1 + self.n_entries) * recent / math.sqrt(len(self.text) + 2)


def name_lines(
    sources: Sequence[Entry], known: Iterable[str], budget: float, max_lines: int
) -> list[Line]:
    """Return lines of names that stand in no ``known`` line, within ``budget`` tokens."""
    said = "\n".join(known)
    found: dict[str, _Name] = {}
    for place, entry in enumerate(sources):
        if entry.origin in NOT_SOURCES:
            continue
        for name, is_used in _named(entry).items():
            one = found.setdefault(name, _Name(name, place))
            one.place = place
            one.n_entries += 1
            one.n_used += is_used
    fresh = [one for one in found.values() if one.text not in said]
    fresh.sort(key=lambda one: (-one.score(len(sources)), one.text))
    room = 4 * budget
    chosen: list[_Name] = []
    for one in fresh:
        if room < len(one.text) + 8:
            break
        chosen.append(one)
        room -= len(one.text) + 3
    lines = _lines(sources, chosen)
    lines.sort(key=lambda line: -line.score)
    return _within(lines[:max_lines], budget)


def n_names(text: str) -> int:
    """Return how many names stand in ``text``, repeats included."""
    return sum(1 for _ in _NAME.finditer(_ends(text)))


def _within(lines: list[Line], budget: float) -> list[Line]:
    kept: list[Line] = []
    for line in lines:
        cost = text_tokens(line.content)
        if cost <= budget:
            kept.append(line)
            budget -= cost
    return sorted(kept, key=lambda line: line.place)


def _lines(sources: Sequence[Entry], chosen: Sequence[_Name]) -> list[Line]:
    by_place: dict[int, list[_Name]] = {}
    for one in chosen:
        by_place.setdefault(one.place, []).append(one)
    lines: list[Line] = []
    names: list[_Name] = []
    places: list[int] = []
    n_chars = 0
    for place in sorted(by_place):
        for one in sorted(by_place[place], key=lambda one: one.text):
            is_new = place not in places
            if names and (
                n_chars + len(one.text) > MAX_LINE_CHARS or (is_new and len(places) == MAX_SOURCES)
            ):
                lines.append(_line(sources, names, places))
                names, places, n_chars = [], [], 0
            if place not in places:
                places.append(place)
            names.append(one)
            n_chars += len(one.text) + 2
    if names:
        lines.append(_line(sources, names, places))
    return lines


def _line(sources: Sequence[Entry], names: Sequence[_Name], places: Sequence[int]) -> Line:
    n_places = len(sources)
    return Line(
        kind="names",
        content=TEMPLATES["names"].format(", ".join(one.text for one in names)),
        source_ids=tuple(sources[place].id for place in places),
        relevance="low",
        place=places[-1],
        score=sum(one.score(n_places) for one in names) / len(names),
    )


def _named(entry: Entry) -> dict[str, bool]:
    """Return the names in an entry, and whether somebody used each."""
    found: dict[str, bool] = {}
    for block in entry.message.content if entry.message is not None else ():
        for key, is_used in (
            ("text", True),
            ("arguments", True),
            ("result", False),
            ("error", False),
        ):
            for text in _strings(block, key):
                read = spoken(text) if key == "text" else text
                for name in _NAME.findall(_ends(read)):
                    name = clean(name).strip(".,;:")
                    if MIN_NAME_CHARS <= len(name) <= MAX_NAME_CHARS and not (
                        " " in name and _TO_A_MODEL.search(name)
                    ):
                        found[name] = found.get(name, False) or is_used
    return found


def _ends(text: str) -> str:
    if len(text) <= 2 * MAX_READ_CHARS:
        return text
    return f"{text[:MAX_READ_CHARS]}\n{text[-MAX_READ_CHARS:]}"


def _strings(block: JsonObject, key: str) -> list[str]:
    found: list[str] = []
    waiting: list[JsonValue] = [block.get(key)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
    return found
