"""The lines ``extractive`` writes: fixed templates around spans of the source, and what is alike.

Every line is one of ``TEMPLATES`` filled with a verbatim span or with identifiers. So it can be
read alone, traced to its words, and recognised again by the reflector and the dropper.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal

import msgspec
from ombus_schemas.records import Relevance

Kind = Literal[
    "rule",
    "correction",
    "decision",
    "request",
    "statement",
    "paste",
    "done",
    "finding",
    "remark",
    "question",
    "copied",
    "heard",
    "told",
    "changed",
    "created",
    "deleted",
    "committed",
    "tests",
    "ran",
    "failed",
    "read",
    "names",
]

TEMPLATES: Final[dict[Kind, str]] = {
    "rule": "User rule: {0}",
    "correction": "User correction: {0}",
    "decision": "User decided: {0}",
    "request": "User asked: {0}",
    "statement": "User said: {0}",
    "paste": "User pasted: {0}",
    "done": "Done: {0}",
    "finding": "Found: {0}",
    "remark": "Assistant: {0}",
    "question": "Assistant asked: {0}",
    "copied": "From another session: {0}",
    "heard": "U: {0}",
    "told": "A: {0}",
    "changed": "Changed {0}",
    "created": "Created {0}",
    "deleted": "Deleted {0}",
    "committed": "Committed {0}",
    "tests": "Tests `{0}`: {1}",
    "ran": "Ran `{0}`: {1}",
    "failed": "Failed `{0}`: {1}",
    "read": "Read {0}",
    "names": "Named: {0}",
}
"""Published: a line of another shape is not ours."""

WORDS_OF_THE_USER: Final[frozenset[Kind]] = frozenset(
    {"rule", "correction", "decision", "request", "statement", "paste"}
)
SPOKEN: Final = WORDS_OF_THE_USER | {
    "done",
    "finding",
    "remark",
    "question",
    "copied",
    "heard",
    "told",
}
"""Lines whose template only says who speaks."""
TALK: Final[frozenset[Kind]] = frozenset({"heard", "told"})
"""Lines of a conversation between two people."""
STANDING: Final[frozenset[Kind]] = frozenset({"rule", "correction"})
"""What the user requires; never forgotten while it is not revoked."""
COMPLETIONS: Final[frozenset[Kind]] = frozenset(
    {"done", "changed", "created", "deleted", "committed"}
)
"""Finished work; forgotten only when a reflection carries it (case B20)."""

RANK: Final[dict[Relevance, int]] = {"low": 0, "medium": 1, "high": 2, "critical": 3}

ALIKE: Final = 0.8
"""Shared words over all words, from which two lines say the same."""

MAX_CHARS: Final = 280
"""Of one line: about 70 tokens."""

_PREFIXES: Final = tuple((template.partition("{")[0], kind) for kind, template in TEMPLATES.items())
_UNSEEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]+"
)
"""What a reader cannot see but a model can: controls, direction marks, tag characters."""
COLOUR: Final = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")
_BLANKS: Final = re.compile(r"\s+")
_WORD: Final = re.compile(r"\w+(?:['’.:/_-]+\w+)*")
IDENTIFIER: Final = re.compile(
    r"""
    https?://[^\s)>\]"'`]+                          # addresses
    | (?:[\w.@~-]*/)+[\w.@-]+                       # paths
    | \b[\w-]+\.(?:py|tsx?|jsx?|mjs|json|md|toml|ya?ml|rs|go|java|rb|css|html|sql|sh|txt|lock)\b
    | \#[0-9a-fA-F]{3,8}\b                          # colours, issue numbers
    | \b[0-9a-f]{7,40}\b(?<![a-f]{7})               # hashes
    | \b\d+(?:[.,:]\d+)*\s?(?:%|ms|s|[kKMG]i?B|px|MB|tokens?)?
    | \b[a-zA-Z]+_[a-zA-Z_0-9]+\b                   # snake case
    | \b[a-z]+[A-Z]\w+\b | \b[A-Z][a-z0-9]+[A-Z]\w* # camel case
    | `[^`\n]{1,60}`
    """,
    re.X,
)
_STOP_WORDS: Final = """\
a about after again all also am an and any are as at be because been before being but by can
could did do does doing done for from get go going got had has have having he her here him his
how i if in into is it its just like me more most my no not now of off on once one only or other
our out over own please really same she should so some such than that the their them then there
these they thing this those through to too up us very was we well were what when where which
while who why will with would yes you your let ok okay use using make want need"""
STOP_WORDS: Final = frozenset(_STOP_WORDS.split())


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One observation in the making."""

    kind: Kind
    content: str
    source_ids: tuple[str, ...]
    relevance: Relevance
    place: int
    """Position of the latest source; lines are recorded in this order."""
    score: float = 0.0
    """Which goes first among equals in relevance."""


def write(kind: Kind, *parts: str) -> str:
    """Return the template of ``kind`` filled with ``parts``, one line within ``MAX_CHARS``.

    The last part gives way: it is cut between words and keeps the identifiers of what is cut.
    """
    room = MAX_CHARS - len(TEMPLATES[kind]) - sum(map(len, parts[:-1]))
    return TEMPLATES[kind].format(*map(clean, parts[:-1]), shorten(clean(parts[-1]), room))


def kind_of(content: str) -> Kind | None:
    """Return the template ``content`` was written with, ``None`` if it is not ours."""
    return next((kind for prefix, kind in _PREFIXES if content.startswith(prefix)), None)


def body_of(content: str) -> str:
    """Return ``content`` without the words of its template that stand before the span."""
    kind = kind_of(content)
    if kind is None or kind not in SPOKEN:
        return content
    return content[len(TEMPLATES[kind].partition("{")[0]) :]


def clean(text: str) -> str:
    """Return ``text`` as one line without characters that only a machine would notice."""
    if not text.isprintable():
        text = _UNSEEN.sub(" ", COLOUR.sub("", text))
    return _BLANKS.sub(" ", text).strip()


def shorten(text: str, max_chars: int) -> str:
    """Return ``text`` cut between words, followed by identifiers that the cut would lose."""
    if len(text) <= max_chars:
        return text
    room = max(24, max_chars - 40)
    head = text[:room].rsplit(" ", 1)[0] if " " in text[:room] else text[:room]
    found = (item.strip(" ;:,.") for item in IDENTIFIER.findall(text[len(head) :]))
    lost = dict.fromkeys(item for item in found if item not in head and _is_telling(item))
    kept: list[str] = []
    left = max_chars - len(head) - 4
    for item in lost:
        if len(item) + 2 <= left:
            kept.append(item)
            left -= len(item) + 2
    return f"{head} …" + (f" {', '.join(kept)}" if kept else "")


def _is_telling(identifier: str) -> bool:
    """Say whether an identifier means something outside its sentence: a short number does not."""
    return len(identifier) > 2 and (
        len(identifier) > 5 or not identifier.replace(",", "").isdigit()
    )


def words(text: str) -> list[str]:
    """Return the content words of ``text``, lower-cased."""
    found = (word.casefold() for word in _WORD.findall(text))
    return [word for word in found if word not in STOP_WORDS]


class Seen:
    """Lines already written, to tell when a new one says the same again."""

    def __init__(self, contents: Iterable[str] = (), alike: float = ALIKE) -> None:
        self._alike = alike
        self._words: list[frozenset[str]] = []
        self._places: dict[str, list[int]] = {}
        for content in contents:
            self.add(content)

    def add(self, content: str) -> None:
        """Remember ``content``."""
        found = frozenset(words(body_of(content)))
        for word in found:
            self._places.setdefault(word, []).append(len(self._words))
        self._words.append(found)

    def has(self, content: str) -> bool:
        """Say whether a remembered line has nearly the words of ``content``.

        A number or name that differs makes a difference: a later state is not a repetition.
        """
        found = frozenset(words(body_of(content)))
        if not found:
            return True
        shared: Counter[int] = Counter()
        for word in found:
            shared.update(self._places.get(word, ()))
        for place, count in shared.most_common(5):
            other = self._words[place]
            if count / (len(found) + len(other) - count) < self._alike:
                continue
            if not any(any(char.isdigit() for char in word) for word in found ^ other):
                return True
        return False
