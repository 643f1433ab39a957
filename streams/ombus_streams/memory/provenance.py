"""Whose words an item rests on: stamped by code, kept in the record, shown to the rendered line.

An item that rests on sources of several origins has the one that is trusted least, so that text of
a tool never becomes the user's wish by standing beside one. What a model cites is its claim: an
item that repeats a run of words from an untrusted source which none of its cited sources has is
stamped with that source's origin (issue I).
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, get_args

from ombus_schemas.entries import Entry, Origin
from ombus_schemas.jsontext import JsonValue
from ombus_schemas.records import Observation, Reflection

KEY: Final = "origin"
"""The field of an item, among those readers of other releases keep."""
RUN_OF_WORDS: Final = 5
"""So many words in a row are no coincidence."""
FEWEST_WORDS: Final = 3
"""A shorter item is compared whole, down to this length."""

_ORIGINS: Final[tuple[Origin, ...]] = get_args(Origin)
_BY_ROLE: Final[dict[str, Origin]] = {"user": "human", "assistant": "model", "tool": "tool"}
_TRUST: Final[tuple[Origin, ...]] = (
    "human", "model", "worker", "summary", "injected", "other_session", "tool",
)  # fmt: skip
"""From the one whose word counts to the one whose does not."""
_UNTRUSTED: Final[frozenset[Origin]] = frozenset({"tool", "injected", "other_session"})
_WORD: Final = re.compile(r"\w+")
_INVISIBLE: Final = re.compile(
    "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)


def origin_of(entry: Entry) -> Origin | None:
    """Return who spoke: what the envelope says, else what the role implies."""
    role = entry.message.role if entry.message is not None else ""
    return entry.origin or _BY_ROLE.get(role)


def origin_of_item(item: Observation | Reflection) -> Origin | None:
    """Return the origin an item was stamped with; ``None`` for those of others."""
    found = item.extra.get(KEY)
    return next((each for each in _ORIGINS if each == found), None)


def origin_mark(item: Observation | Reflection) -> str:
    """Return the word that stands before an item whose content is nobody's wish; else nothing."""
    origin = origin_of_item(item)
    return origin if origin in _UNTRUSTED else ""


def least_trusted(origins: Iterable[Origin | None]) -> Origin:
    """Return the origin of what rests on all of these; an unknown one counts as a tool's."""
    ranks = [_TRUST.index(each) if each is not None else len(_TRUST) - 1 for each in origins]
    return _TRUST[max(ranks, default=len(_TRUST) - 1)]


def said_in(entry: Entry) -> str:
    """Return every text an entry holds, of calls and results too."""
    blocks: list[JsonValue] = list(entry.message.content) if entry.message is not None else []
    return "\n".join(_strings([*blocks, entry.data, entry.summary]))


def words_of(text: str) -> str:
    """Return the words of a text, each between blanks: what repeats it whatever its marks are."""
    return _spaced(_words(text))


class Quotable:
    """The texts a run was shown, by whose they are: finds out whom an item quotes."""

    def __init__(self, texts: Sequence[tuple[str, Origin | None, str]]) -> None:
        """``texts`` are (id, origin, text)."""
        self._origins = {name: origin for name, origin, _ in texts}
        self._texts = {name: text for name, _, text in texts}
        self._words: dict[str, str] = {}

    def origin(self, content: str, cited: Iterable[str]) -> Origin:
        """Return the origin to stamp on ``content`` that claims to rest on ``cited``."""
        names = [name for name in cited if name in self._origins]
        found = least_trusted(self._origins[name] for name in names)
        if found in _UNTRUSTED:
            return found
        runs = [run for run in _runs(content) if not any(run in self._of(name) for name in names)]
        quoted = [
            origin
            for name, origin in self._origins.items()
            if origin in _UNTRUSTED and any(run in self._of(name) for run in runs)
        ]
        return least_trusted([found, *quoted])

    def _of(self, name: str) -> str:
        words = self._words.get(name)
        if words is None:
            words = self._words[name] = words_of(self._texts[name])
        return words


def _runs(content: str) -> list[str]:
    words = _words(content)
    length = min(RUN_OF_WORDS, max(len(words), FEWEST_WORDS))
    return [_spaced(words[at : at + length]) for at in range(len(words) - length + 1)]


def _words(text: str) -> list[str]:
    """Return the words as they read, whatever invisible or look-alike forms they are written in."""
    if not text.isascii():
        text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
    return _WORD.findall(text.casefold())


def _spaced(words: Sequence[str]) -> str:
    return f" {' '.join(words)} "


def _strings(value: JsonValue) -> Iterator[str]:
    stack: list[JsonValue] = [value]
    while stack:
        item = stack.pop()
        match item:
            case str():
                yield item
            case list():
                stack += reversed(item)
            case dict():
                stack += reversed(list(item.values()))
            case _:
                pass
