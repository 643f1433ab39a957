"""Verbatim spans of a conversation, chosen so that a budget holds as many telling words as it can.

A span is at least four words in a row, exactly as they were said. All turns share one price for a
character: whatever is worth more than it costs is kept, and the price is set so that the whole fits
its budget (a knapsack with one multiplier). Spans rather go from one clause boundary to another.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ombus_streams.providers.tuning import DEFAULT, Tuning
from ombus_streams.providers.weights import Chunk

MIN_WORDS: Final = 4
"""Of one span: less cannot be read."""
GAP: Final = " … "
_STEPS: Final = 16
"""Halvings of the price: enough to tell prices a hundred-thousandth apart."""
_MAX_FILLED: Final = 24
"""How many turns are tried for the last bit of a budget."""


class Turn(msgspec.Struct, frozen=True):
    """A turn to be cut."""

    text: str
    chunks: Sequence[Chunk]


def cut(turn: Turn, price: float, tuning: Tuning = DEFAULT) -> list[tuple[int, int]]:
    """Return the best spans of a turn at a price a character, as ranges of chunks."""
    n = len(turn.chunks)
    if n < MIN_WORDS:
        return []
    gains = [chunk.weight - price * (chunk.end - chunk.start + 1) for chunk in turn.chunks]
    sums = [0.0]
    for gain in gains:
        sums.append(sums[-1] + gain)
    # best[i]: the most the first i chunks can give; run[i]: with a span that ends at chunk i.
    best = [0.0] * (n + 1)
    came: list[int] = [-1] * (n + 1)
    opened, opened_at = float("-inf"), -1
    for end in range(1, n + 1):
        start = end - MIN_WORDS
        if start >= 0:
            chunk = turn.chunks[start]
            opening = best[start] - sums[start] - (0 if chunk.is_start else tuning.ragged)
            opening -= (tuning.gap + price * len(GAP)) if best[start] > 0 or start else 0.0
            if opening > opened:
                opened, opened_at = opening, start
        best[end] = best[end - 1]
        if opened_at >= 0:
            closing = 0 if turn.chunks[end - 1].is_end else tuning.ragged
            value = opened + sums[end] - closing
            if value > best[end]:
                best[end], came[end] = value, opened_at
    if best[n] <= tuning.turn:
        return []
    found: list[tuple[int, int]] = []
    end = n
    while end > 0:
        if came[end] >= 0 and best[end] > best[end - 1]:
            found.append((came[end], end))
            end = came[end]
        else:
            end -= 1
    return found[::-1]


def written(turn: Turn, spans: Sequence[tuple[int, int]]) -> str:
    """Return the spans of a turn as they were said, gaps marked."""
    texts = []
    for start, end in spans:
        text = turn.text[turn.chunks[start].start : turn.chunks[end - 1].end]
        texts.append(text.strip(" ,;:–—-"))
    return GAP.join(texts)


def fitted(
    turns: Sequence[Turn],
    budget: float,
    weigh: Callable[[Sequence[str]], int],
    tuning: Tuning = DEFAULT,
) -> list[str]:
    """Return what is kept of each turn, empty for nothing, so that ``weigh`` says it fits."""
    low, high = 0.0, 1.0
    more = [written(turn, cut(turn, low, tuning)) for turn in turns]
    if weigh(more) <= budget:
        return more
    kept = [""] * len(turns)
    for _ in range(_STEPS):
        price = (low + high) / 2
        tried = [written(turn, cut(turn, price, tuning)) for turn in turns]
        if weigh(tried) <= budget:
            kept, high = tried, price
        else:
            more, low = tried, price
    return _filled(kept, more, budget, weigh)


def _filled(
    kept: list[str], more: Sequence[str], budget: float, weigh: Callable[[Sequence[str]], int]
) -> list[str]:
    """Return ``kept`` with what still fits of ``more``, which costs a little less a character."""
    n_tried = 0
    for place, text in enumerate(more):
        if text == kept[place] or n_tried == _MAX_FILLED:
            continue
        n_tried += 1
        tried = [*kept[:place], text, *kept[place + 1 :]]
        if weigh(tried) <= budget:
            kept = tried
    return kept
