"""The bounds of what a compaction carries, and of the observation pool (S12, S15).

Trimming takes one order, fixed up front, and the sizes are kept up to date while it goes, so a
payload of n observations costs O(n log n) (design.md section 12, row 6).
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from ombus_schemas.jsontext import json_text, utf8_length
from ombus_schemas.records import RELEVANCES, Observation, Reflection, observation_json

from ombus_streams.memory.errors import SizeExceeded
from ombus_streams.memory.projection import folded_json
from ombus_streams.memory.tokens import item_tokens

POOL_MAX_TOKENS: Final = 20_000
MAX_BYTES: Final = 524_288
"""Cap of the payload's JSON text."""

_encode: Final = msgspec.json.Encoder().encode
_EXTRA_BYTES: Final = len(b',"extra":{}')
_RANK: Final = {relevance: rank for rank, relevance in enumerate(RELEVANCES)}


class Bounded(msgspec.Struct, frozen=True, kw_only=True):
    """A payload that fits."""

    full_fold: bool
    """Whether anything had to go, or the pool was over its tokens."""
    observations: tuple[Observation, ...]
    reflections: tuple[Reflection, ...]
    dropped_ids: tuple[str, ...]


def removal_order(observations: Sequence[Observation]) -> list[int]:
    """Return the places of ``observations`` in the order they are given up.

    The least relevant first, of those the smallest, of those the first recorded.
    """
    return sorted(
        range(len(observations)),
        key=lambda i: (_RANK[observations[i].relevance], observations[i].token_count),
    )


def bound(
    observations: Sequence[Observation],
    reflections: Sequence[Reflection],
    dropped_ids: Sequence[str],
    max_tokens: float = POOL_MAX_TOKENS,
    max_bytes: float = MAX_BYTES,
) -> Bounded:
    """Return the payload without what had to go to reach both limits; equality is within.

    Tokens are judged before bytes. Reflections and dropped ids are never trimmed: raises
    ``SizeExceeded`` when they alone are too large.
    """
    total = item_tokens(observations)
    full_fold = total > max_tokens
    twins = _twins(observations)
    n_kept, is_gone = len(observations), bytearray(len(observations))
    order = removal_order(observations)
    n_given_up = 0
    while n_kept and total > max_tokens:  # what goes here is never weighed in bytes
        place = order[n_given_up]
        n_given_up += 1
        for gone in twins.get(observations[place].id, (place,)):
            n_kept -= not is_gone[gone]
            is_gone[gone] = True
        total = total - observations[place].token_count
    sizes = {at: _json_bytes(observations[at]) for at, gone in enumerate(is_gone) if not gone}
    kept_bytes = sum(sizes.values())
    frame_bytes = {
        flag: utf8_length(json_text(folded_json(flag, (), reflections, dropped_ids)))
        for flag in (False, True)
    }
    size = frame_bytes[full_fold] + kept_bytes + max(0, n_kept - 1)
    for place in order[n_given_up:]:
        if not n_kept or (total <= max_tokens and size <= max_bytes):
            break
        for gone in twins.get(observations[place].id, (place,)):
            if not is_gone[gone]:
                is_gone[gone] = True
                n_kept -= 1
                kept_bytes -= sizes[gone]
        total = total - observations[place].token_count
        full_fold = True
        size = frame_bytes[True] + kept_bytes + max(0, n_kept - 1)
    if size > max_bytes:
        raise SizeExceeded("folded payload", max_bytes, size)
    return Bounded(
        full_fold=full_fold,
        observations=tuple(
            item for item, gone in zip(observations, is_gone, strict=True) if not gone
        ),
        reflections=tuple(reflections),
        dropped_ids=tuple(dropped_ids),
    )


def drop_to_target(observations: Sequence[Observation], target: float) -> tuple[str, ...]:
    """Return the ids to drop, in removal order, until the rest weighs ``target`` at most."""
    total = item_tokens(observations)
    gone: list[str] = []
    for place in removal_order(observations):
        if total <= target:
            break
        gone.append(observations[place].id)
        total = total - observations[place].token_count
    return tuple(gone)


def _twins(observations: Sequence[Observation]) -> dict[str, list[int]]:
    """Return the places of each id that is listed more than once; they go together."""
    if len({item.id for item in observations}) == len(observations):
        return {}
    places_by_id: dict[str, list[int]] = {}
    for place, item in enumerate(observations):
        places_by_id.setdefault(item.id, []).append(place)
    return {name: places for name, places in places_by_id.items() if len(places) > 1}


def _json_bytes(item: Observation) -> int:
    """Return the size of the item's JSON text; msgspec writes text as JavaScript does."""
    if type(item.token_count) is int and not item.extra:
        try:
            return len(_encode(item)) - _EXTRA_BYTES
        except UnicodeEncodeError:  # lone surrogates, which JavaScript escapes
            pass
    return utf8_length(json_text(observation_json(item)))
