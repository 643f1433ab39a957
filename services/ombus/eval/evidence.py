"""Is what a question needs still there? The measure ``eval evidence``, and its table.

A question counts if it has evidence turns that exist, its category is not 5 and its answer shares a
content word with one of them. It is *held* when for each evidence turn either the turn is in the
window, or a line names it among its first three sources and contains every content word of the
answer that occurs in that turn (where none does: at least two content words of the turn).
Source: issue D. The memory never sees a question.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from ombus_streams.memory.tokens import text_tokens
from ombus_streams.providers.dialogue import JOINT
from ombus_streams.providers.lines import SPOKEN, clean, kind_of
from ombus_streams.providers.spans import GAP, MIN_WORDS

from ombus.eval.locomo import Conversation, Question, Turn, entries_of
from ombus.eval.remembering import (
    KEEP_RECENT,
    SESSION,
    TENANT,
    UNCHANGED,
    Plan,
    Remembered,
    Shown,
    remember,
)

MEASURE: Final = "evidence/1"
BUDGET: Final = 0.3
LEFT_OUT_CATEGORY: Final = 5
"""Questions without an answer."""
MAX_NAMED_SOURCES: Final = 3
MIN_SHARED_WORDS: Final = 2

_WORD: Final = re.compile(r"[^\W_]+")
_MARK: Final = re.compile(r"^[UA]: ")
_STOP_WORDS: Final = """\
a about after again all also am an and any are as at be because been before being but by can could
d did do does doing down during each few for from further had has have having he her here hers him
himself his how i if in into is it its itself just ll m me more most my myself no nor not now of
off on once only or other our ours out over own re s same she should so some such t than that the
their theirs them themselves then there these they this those through to too under until up us ve
very was we were what when where which while who whom why will with would you your yours"""
STOP_WORDS: Final = frozenset(_STOP_WORDS.split())
"""Published: what is no content word. Everything else that is alphanumeric is one."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many questions of some kind are held by the memory and by the window."""

    questions: int = 0
    held: float = 0.0
    window: float = 0.0


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The report; ``--json`` prints these fields."""

    held: float
    window: float
    ratio: float
    """Tokens really used, window included, over those of the conversations."""
    questions: int
    left_out: int
    readable: float
    by_category: dict[str, Counts]
    budget: float
    lines: int
    overhead: float
    """Ids, relevance tags and titles, as a share of the conversations' tokens, beside the ratio."""
    window_ratio: float
    seconds: float
    measure: str = MEASURE


class _Tally(msgspec.Struct):
    """What one conversation adds."""

    n: dict[int, int]
    held: dict[int, int]
    window: dict[int, int]
    n_left_out: int = 0
    used: int = 0
    window_used: int = 0
    total: int = 0
    overhead: int = 0
    n_lines: int = 0
    n_readable: int = 0
    seconds: float = 0.0


def content_words(text: str) -> frozenset[str]:
    """Return the lower-cased alphanumeric words of ``text`` that are no stop words."""
    return frozenset(_WORD.findall(text.lower())) - STOP_WORDS


def measured(
    conversations: Iterable[Conversation], budget: float = BUDGET, variant: Plan = UNCHANGED
) -> Evidence:
    """Return how much of what the questions need is held at ``budget``.

    ``variant`` differs from the usual plan in anything but its budget and its window.
    """
    return report([tally(one, budget, variant) for one in conversations], budget)


def tally(one: Conversation, budget: float, variant: Plan = UNCHANGED) -> _Tally:
    """Run the memory over a conversation and count what it holds."""
    turns = one.turns
    entries, ids = entries_of(one, TENANT, SESSION)
    weights = [text_tokens(turn.text) for turn in turns]
    most = budget * sum(weights)
    keep = _window_size(weights, most)
    shown = set(range(len(turns))[-keep:])
    # The user's newest message is always in the window, wherever it stands.
    shown.update([place for place, one in enumerate(turns) if one.speaker == turns[0].speaker][-1:])
    room = max(0.0, most - sum(weights[place] for place in shown))
    plan = msgspec.structs.replace(variant, line_tokens=room, keep_recent=keep)
    found = remember(entries, plan)
    place_by_id = {entry_id: place for place, entry_id in enumerate(ids)}
    window = frozenset(place_by_id[entry_id] for entry_id in found.window_ids)
    equal = frozenset(_recent(weights, most))
    lines_by_place = _lines_by_place(found, place_by_id)
    result = _Tally(n={}, held={}, window={}, n_left_out=0)
    for question in one.questions:
        places = _evidence(question, turns)
        if not _counts(question, places, turns):
            result.n_left_out += 1
            continue
        kind = question.category
        result.n[kind] = result.n.get(kind, 0) + 1
        if all(
            place in window
            or _is_held(question.answer, turns[place], lines_by_place.get(place, ()))
            for place in places
        ):
            result.held[kind] = result.held.get(kind, 0) + 1
        if all(place in equal for place in places):
            result.window[kind] = result.window.get(kind, 0) + 1
    said_by_id = {entry_id: turn.text for entry_id, turn in zip(ids, turns, strict=True)}
    result.total = sum(weights)
    result.used = found.memory_tokens + sum(weights[place] for place in window)
    result.window_used = sum(weights[place] for place in equal)
    result.overhead = found.overhead_tokens
    result.n_lines = len(found.lines)
    result.n_readable = sum(is_readable(line, said_by_id) for line in found.lines)
    result.seconds = found.seconds
    return result


def report(tallies: Sequence[_Tally], budget: float) -> Evidence:
    """Return the sum of conversations: every question weighs the same."""
    kinds = sorted({kind for one in tallies for kind in one.n})
    total = sum(one.total for one in tallies)
    n_lines = sum(one.n_lines for one in tallies)

    def counts(*wanted: int) -> Counts:
        n = sum(one.n.get(kind, 0) for one in tallies for kind in wanted)
        held = sum(one.held.get(kind, 0) for one in tallies for kind in wanted)
        window = sum(one.window.get(kind, 0) for one in tallies for kind in wanted)
        return Counts(questions=n, held=_share(held, n), window=_share(window, n))

    every = counts(*kinds)
    return Evidence(
        held=every.held,
        window=every.window,
        ratio=_share(sum(one.used for one in tallies), total),
        questions=every.questions,
        left_out=sum(one.n_left_out for one in tallies),
        readable=_share(sum(one.n_readable for one in tallies), n_lines) if n_lines else 1.0,
        by_category={str(kind): counts(kind) for kind in kinds},
        budget=budget,
        lines=n_lines,
        overhead=_share(sum(one.overhead for one in tallies), total),
        window_ratio=_share(sum(one.window_used for one in tallies), total),
        seconds=round(sum(one.seconds for one in tallies), 3),
    )


def is_readable(line: Shown, said_by_id: Mapping[str, str]) -> bool:
    """Say whether a line is made of verbatim spans of its sources, one of them of four words.

    A line of a template that states an outcome is readable as it is.
    """
    kind = kind_of(line.content)
    if kind is not None and kind not in SPOKEN:
        return True
    said = [clean(said_by_id[name]) for name in line.source_ids if name in said_by_id]
    longest = 0
    is_quote = kind is None or kind in ("heard", "told")
    body = line.content if is_quote else line.content.partition(": ")[2]
    for part in body.split(JOINT):
        for span in _MARK.sub("", part).split(GAP):
            if not any(span in text for text in said):
                return False
            longest = max(longest, len(span.split()))
    return longest >= MIN_WORDS


def _window_size(weights: Sequence[int], most: float) -> int:
    """Return how many turns the window keeps: as many as a tenth of the budget holds, few."""
    return max(1, min(KEEP_RECENT, len(list(_recent(weights, most / 10)))))


def _recent(weights: Sequence[int], most: float) -> Sequence[int]:
    """Return the places of the last turns that fit ``most`` together."""
    used, first = 0, len(weights)
    while first > 0 and used + weights[first - 1] <= most:
        first -= 1
        used += weights[first]
    return range(first, len(weights))


def _lines_by_place(found: Remembered, place_by_id: Mapping[str, int]) -> dict[int, list[str]]:
    lines: dict[int, list[str]] = {}
    for line in found.lines:
        for name in line.source_ids[:MAX_NAMED_SOURCES]:
            lines.setdefault(place_by_id[name], []).append(line.content)
    return lines


def _evidence(question: Question, turns: Sequence[Turn]) -> list[int]:
    place_by_name: dict[str, int] = {}
    for place, turn in enumerate(turns):
        place_by_name.setdefault(turn.dia_id, place)
    return [place_by_name[name] for name in question.evidence if name in place_by_name]


def _counts(question: Question, places: Sequence[int], turns: Sequence[Turn]) -> bool:
    answer = content_words(question.answer)
    return question.category != LEFT_OUT_CATEGORY and any(
        answer & content_words(turns[place].text) for place in places
    )


def _is_held(answer: str, turn: Turn, lines: Sequence[str]) -> bool:
    said = content_words(turn.text)
    needed = content_words(answer) & said
    for line in lines:
        words = content_words(line)
        if needed:
            if needed <= words:
                return True
        elif len(words & said) >= MIN_SHARED_WORDS:
            return True
    return False


def _share(part: float, whole: float) -> float:
    return round(part / whole, 4) if whole else 0.0
