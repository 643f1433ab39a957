"""What two people say to each other, as lines of what was said: verbatim spans within a budget.

A conversation has no outcomes to report and few rules; its facts stand anywhere. So every turn is
weighed word by word (``weights``) and the spans that tell most for their length are kept
(``spans``). Neighbouring turns share a line, three sources at most: a question gives its answer
sense.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.records import Observation, Relevance

from ombus_streams.memory.tokens import text_tokens
from ombus_streams.providers.lines import TEMPLATES, Line, Seen, body_of, clean, write
from ombus_streams.providers.names import n_names
from ombus_streams.providers.spans import GAP, Turn, fitted
from ombus_streams.providers.speech import spoken
from ombus_streams.providers.tuning import DEFAULT, Tuning
from ombus_streams.providers.weights import Rarity, chunks, plain

MIN_TURNS: Final = 8
MAX_MEAN_CHARS: Final = 500
"""Of a turn: people who talk to each other do not hold lectures."""
MAX_MEAN_NAMES: Final = 0.3
"""Of a turn: paths and symbols are work, not talk."""
MAX_LINE_CHARS: Final = 420
MAX_DISTANCE: Final = 2
"""Between turns that share a line."""
JOINT: Final = " | "
MARK_CHARS: Final = 3
"""Of ``U: `` and ``A: ``, which stand before what each of the two said."""
SHORTER: Final = 0.5
"""What a reflection may weigh of the line it stands for."""

_RULE: Final = re.compile(
    r"^(?:please )?(?:never|always|do not|don'?t|make sure|remember to|only use|avoid)\b"
    r"(?:\W+\w+){4,}[^!?]*$",
    re.I,
)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+")


class _Said(msgspec.Struct, frozen=True):
    """One turn of the conversation."""

    place: int
    entry_id: str
    is_user: bool
    text: str


def is_dialogue(sources: Sequence[Entry]) -> bool:
    """Say whether the sources are people talking, not an agent at work.

    No tool, no code, few names, both sides, and turns as long as speech is.
    """
    n_by_role = {"user": 0, "assistant": 0}
    n_chars = n_named = 0
    for entry in sources:
        if entry.message is None:
            continue
        for block in entry.message.content:
            if block.get("type") != "text":
                return False
            text = block.get("text")
            if isinstance(text, str):
                if "```" in text or "<system-reminder>" in text:
                    return False
                n_chars += len(text)
                n_named += n_names(text)
        if entry.message.role not in n_by_role:
            return False
        n_by_role[entry.message.role] += 1
    n_turns = sum(n_by_role.values())
    return (
        n_turns >= MIN_TURNS
        and min(n_by_role.values()) * 4 >= n_turns
        and n_chars <= MAX_MEAN_CHARS * n_turns
        and n_named <= MAX_MEAN_NAMES * n_turns
    )


def dialogue_lines(
    sources: Sequence[Entry],
    active: Sequence[Observation],
    budget: float,
    max_lines: int,
    tuning: Tuning = DEFAULT,
) -> list[Line]:
    """Return the lines of a conversation that fit ``budget`` tokens, in the order they were said.

    A rule the user gives is kept whole and first; a sentence that was said before is not said
    again.
    """
    said = _said(sources)
    lines: list[Line] = []
    seen = Seen((item.content for item in active), tuning.alike)
    for turn in said:
        for sentence in _SENTENCE_END.split(turn.text) if turn.is_user else ():
            content = write("rule", sentence)
            cost = text_tokens(content)
            if _RULE.match(sentence) and cost <= budget / 4 and not seen.has(content):
                seen.add(content)
                budget -= cost
                lines.append(_rule(turn, content))
    rarity = Rarity([*(item.content for item in active), *(turn.text for turn in said)])
    repeated = {plain(body_of(line.content)) for line in lines}
    turns = [Turn(turn.text, chunks(turn.text, rarity, repeated, tuning)) for turn in said]
    kept = fitted(turns, budget, lambda texts: _weighed(said, texts, tuning), tuning)
    densities = [_density(turn, text) for turn, text in zip(turns, kept, strict=True)]
    found = [
        _line(group, kept, densities)
        for group in _groups(said, kept, tuning)[: max_lines - len(lines)]
    ]
    return sorted([*lines, *found], key=lambda line: line.place)


def shortened(observations: Sequence[Observation]) -> list[tuple[str, tuple[str, ...]]]:
    """Return each line of talk cut once more to its most telling spans, with what it stands for.

    A line that does not get shorter is left out.
    """
    rarity = Rarity([item.content for item in observations])
    found: list[tuple[str, tuple[str, ...]]] = []
    for item in observations:
        parts = [
            (part[:MARK_CHARS], span)
            for part in item.content.split(JOINT)
            for span in part[MARK_CHARS:].split(GAP)
        ]
        turns = [Turn(span, chunks(span, rarity)) for _, span in parts]

        def joined(texts: Sequence[str], parts: Sequence[tuple[str, str]] = parts) -> str:
            content, last = "", ""
            for (mark, _), text in zip(parts, texts, strict=True):
                if text:
                    joint = GAP if mark == last else f"{JOINT if content else ''}{mark}"
                    content, last = f"{content}{joint}{text}", mark
            return content

        def weigh(texts: Sequence[str], joined: Callable[[Sequence[str]], str] = joined) -> int:
            return text_tokens(joined(texts))

        content = joined(fitted(turns, SHORTER * item.token_count, weigh))
        if content and text_tokens(content) < item.token_count:
            found.append((content, (item.id,)))
    return found


def _said(sources: Sequence[Entry]) -> list[_Said]:
    found: list[_Said] = []
    for place, entry in enumerate(sources):
        if entry.message is None:
            continue
        texts = [block.get("text") for block in entry.message.content]
        text = clean(" ".join(spoken(text) for text in texts if isinstance(text, str)))
        if text:
            is_user = entry.message.role == "user"
            found.append(_Said(place=place, entry_id=entry.id, is_user=is_user, text=text))
    return found


def _rule(turn: _Said, content: str) -> Line:
    return Line(
        kind="rule",
        content=content,
        source_ids=(turn.entry_id,),
        relevance="critical",
        place=turn.place,
    )


def _weighed(said: Sequence[_Said], texts: Sequence[str], tuning: Tuning) -> int:
    return sum(text_tokens(_content(group, texts)) for group in _groups(said, texts, tuning))


def _groups(
    said: Sequence[_Said], texts: Sequence[str], tuning: Tuning
) -> list[list[tuple[int, _Said]]]:
    """Return which turns share a line."""
    groups: list[list[tuple[int, _Said]]] = []
    n_chars = 0
    for number, turn in enumerate(said):
        if not texts[number]:
            continue
        n_chars += len(texts[number]) + len(JOINT)
        if (
            not groups
            or len(groups[-1]) == tuning.max_sources
            or n_chars > MAX_LINE_CHARS
            or turn.place - groups[-1][-1][1].place > MAX_DISTANCE
        ):
            groups.append([])
            n_chars = len(texts[number])
        groups[-1].append((number, turn))
    return groups


def _content(group: Sequence[tuple[int, _Said]], texts: Sequence[str]) -> str:
    return JOINT.join(
        TEMPLATES["heard" if turn.is_user else "told"].format(texts[number])
        for number, turn in group
    )


def _line(
    group: Sequence[tuple[int, _Said]], texts: Sequence[str], densities: Sequence[float]
) -> Line:
    best = max(densities[number] for number, _ in group)
    ranked = sorted(density for density in densities if density > 0)
    relevance: Relevance = "low"
    if best >= ranked[len(ranked) // 3]:
        relevance = "high" if best >= ranked[2 * len(ranked) // 3] else "medium"
    return Line(
        kind="heard" if group[0][1].is_user else "told",
        content=_content(group, texts),
        source_ids=tuple(turn.entry_id for _, turn in group),
        relevance=relevance,
        place=group[-1][1].place,
        score=best,
    )


def _density(turn: Turn, text: str) -> float:
    """Return how much the turn tells for its length, ``0`` if nothing of it is kept."""
    if not text:
        return 0.0
    return sum(chunk.weight for chunk in turn.chunks) / (20 + len(turn.text))
