"""Observations that are about one thing: what ``extractive`` reflects on, and what it forgets.

A reflection gives the latest state first and keeps the identifiers; it carries the observations it
names as its support, and only those. Forgetting goes from the least relevant up and stops at what
the user requires and at finished work that no reflection carries (case B20).
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from ombus_schemas.records import Observation, Reflection

from ombus_streams.memory.tokens import item_tokens, text_tokens
from ombus_streams.providers.dialogue import shortened
from ombus_streams.providers.lines import (
    COMPLETIONS,
    IDENTIFIER,
    MAX_CHARS,
    RANK,
    STANDING,
    TALK,
    body_of,
    kind_of,
    shorten,
    words,
)

Theme = tuple[str, tuple[str, ...]]
"""A reflection in the making: its content, and the ids it rests on."""

MAX_ITEM_CHARS: Final = 110
"""Of one observation inside a reflection."""
MIN_THEME: Final = 2
MAX_THEME: Final = 8
"""A word that more observations share than this says nothing about any of them."""
MIN_WORD: Final = 5

_COMMAND: Final = re.compile(r"`([^`]+)`")
_FINISHED: Final = re.compile(r"^(?:done|completed?|finished|fixed|implemented)\b", re.I)
_USER_RULE: Final = re.compile(
    r"^(?:the )?user\b.*\b(?:must|never|always|do(?:es)? not|don'?t|only|wants?|requires?|"
    r"prefers?)\b",
    re.I,
)


def reflections(observations: Sequence[Observation], max_lines: int) -> list[Theme]:
    """Return the themes of ``observations``; each observation is in one theme at most.

    Standing rules first, then files, commands, finished work, and whatever shares a telling word.
    Talk is only shortened: who said what is not brought together with what others said.
    """
    left = list({item.id: item for item in observations}.values())
    talk = [item for item in left if kind_of(item.content) in TALK]
    left = [item for item in left if kind_of(item.content) not in TALK]
    themes: list[Theme] = shortened(talk)
    for title_of in (_rule_title, _file_title, _command_title, _done_title):
        groups: dict[str, list[Observation]] = {}
        for item in left:
            title = title_of(item)
            if title:
                groups.setdefault(title, []).append(item)
        taken: set[str] = set()
        for title, group in groups.items():
            if len(group) >= MIN_THEME:
                themes += _written(title, group)
                taken.update(item.id for item in group)
        left = [item for item in left if item.id not in taken]
    themes += _by_word([item for item in left if kind_of(item.content) != "names"])
    return themes[:max_lines]


def droppable(
    observations: Sequence[Observation],
    carrying: Sequence[Reflection],
    target_tokens: int | float,
) -> list[str]:
    """Return the ids to forget until the rest weighs ``target_tokens``, or nothing else may go.

    The least relevant first; among equals what a reflection carries, then the oldest.
    """
    carried = {item for one in carrying for item in one.supporting_observation_ids}
    free = [
        (RANK[item.relevance], item.id not in carried, place)
        for place, item in enumerate(observations)
        if not is_standing(item) and (item.id in carried or not is_completion(item))
    ]
    total = item_tokens(observations)
    gone: list[str] = []
    for _, _, place in sorted(free):
        if total <= target_tokens:
            break
        gone.append(observations[place].id)
        total = total - observations[place].token_count
    return gone


def is_standing(item: Observation) -> bool:
    """Say whether ``item`` is what the user requires, in our words or another provider's."""
    kind = kind_of(item.content)
    if kind is not None:
        return kind in STANDING
    return item.relevance == "critical" or bool(_USER_RULE.search(item.content))


def is_completion(item: Observation) -> bool:
    """Say whether ``item`` states finished work."""
    kind = kind_of(item.content)
    return kind in COMPLETIONS if kind is not None else bool(_FINISHED.search(item.content))


def _rule_title(item: Observation) -> str:
    return "Standing user rules" if is_standing(item) else ""


def _file_title(item: Observation) -> str:
    if kind_of(item.content) == "names":
        return ""  # an index names many files and says nothing about any
    for found in IDENTIFIER.findall(item.content):
        name = found.rsplit("/", 1)[-1]
        if (
            "." in name.strip(".")
            and not found.startswith(("http", "`", "#"))
            and name[0].isalpha()
        ):
            return str(name)
    return ""


def _command_title(item: Observation) -> str:
    if kind_of(item.content) not in ("ran", "failed", "tests"):
        return ""
    command = _COMMAND.search(item.content)
    # Two words name a command: its options tell runs apart, not things.
    return f"`{' '.join(command[1].split()[:2])}`" if command else ""


def _done_title(item: Observation) -> str:
    return "Finished work" if is_completion(item) else ""


def _by_word(left: Sequence[Observation]) -> Iterator[Theme]:
    """Yield themes around the words that bring most of the remaining observations together."""
    said = {
        item.id: [word for word in words(body_of(item.content)) if len(word) >= MIN_WORD]
        for item in left
    }
    counts = Counter(word for found in said.values() for word in dict.fromkeys(found))
    free = {item.id: item for item in left}
    for word, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        if not MIN_THEME <= count <= MAX_THEME:
            continue
        group = [item for item in free.values() if word in said[item.id]]
        if len(group) >= MIN_THEME:
            yield from _written(f"About {word}", group)
            for item in group:
                del free[item.id]


def _written(title: str, group: Sequence[Observation]) -> Iterator[Theme]:
    """Yield the group in as many lines as it needs, the latest state first."""
    is_rules = title == "Standing user rules"
    texts: list[str] = []
    held: list[Observation] = []
    room = MAX_CHARS + 40
    for item in reversed(group):
        text = shorten(body_of(item.content), MAX_CHARS if is_rules else MAX_ITEM_CHARS)
        if held and len(title) + sum(map(len, texts)) + 2 * len(texts) + len(text) > room:
            yield from _theme(title, texts, held)
            texts, held = [], []
        texts.append(text)
        held.append(item)
    yield from _theme(title, texts, held)


def _theme(title: str, texts: Sequence[str], held: Sequence[Observation]) -> Iterator[Theme]:
    joint = "; " if title in ("Standing user rules", "Finished work") else "; before: "
    content = f"{title}: {joint.join([texts[0], '; '.join(texts[1:])] if texts[1:] else texts)}"
    if len(held) >= MIN_THEME and text_tokens(content) < item_tokens(held):
        yield content, tuple(item.id for item in held)
