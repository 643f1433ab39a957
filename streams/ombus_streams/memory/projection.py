"""What of a ledger is visible: to a context, to a compaction, to a view (S8)."""

from collections.abc import Iterable, Sequence, Set

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.records import (
    FOLDED,
    FoldedMemory,
    FoldedThrough,
    Observation,
    Reflection,
    compaction_of,
    folded_of,
    observation_json,
    record_of,
    reflection_json,
)

from ombus_streams.memory.ledger import Ledger, blocks_observation, blocks_reflection, fold, merge


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """The visible memory beside the ledger it was taken from."""

    full: Ledger
    """Never filtered, for audit."""
    observations: tuple[Observation, ...]
    reflections: tuple[Reflection, ...]
    dropped_ids: tuple[str, ...]
    """What is dropped, then what an invalidation hides, each once."""
    folded: FoldedMemory | None = None
    """The payload that the visible memory starts from, if it does."""


def project(
    entries: Sequence[Entry],
    boundary_id: str | None = None,
    invalidated_ids: Set[str] = frozenset(),
) -> Projection:
    """Return what is visible before ``boundary_id``, or at the end of ``entries``.

    With a boundary that is found: the fold of what stands before it. Without: the latest folded
    payload, and after one that names ``foldedThrough`` the records after that (design.md section
    9); else the fold of everything. A reflection is hidden with a support that is dropped, but
    not with one that was only pruned (section 12, row 14), and always with an invalidated one.
    """
    full = fold(entries)
    boundary = _index(entries, boundary_id)
    folded, own = (None, False) if boundary is not None else _latest_payload(entries)
    if boundary is not None:
        visible = fold(entries[:boundary])
    elif folded is not None:
        visible = _from_payload(entries, folded)
    else:
        visible = full
    hidden = [item.id for item in visible.observations if blocks_observation(invalidated_ids, item)]
    dropped = tuple(dict.fromkeys((*visible.dropped_ids, *hidden)))
    blocking = {item for item in dropped if item not in full.pruned_ids}
    blocking.update(hidden, invalidated_ids)
    for item in full.observations:
        # A pruned or trimmed support is not among the visible ones; its sources still count.
        if (own or item.id in full.pruned_ids) and blocks_observation(invalidated_ids, item):
            blocking.add(item.id)
    gone = frozenset(dropped)
    return Projection(
        full=full,
        observations=tuple(item for item in visible.observations if item.id not in gone),
        reflections=tuple(
            item for item in visible.reflections if not blocks_reflection(blocking, item)
        ),
        dropped_ids=dropped,
        folded=folded,
    )


def folded_json(
    full_fold: bool,
    observations: Iterable[Observation],
    reflections: Iterable[Reflection],
    dropped_ids: Iterable[str],
) -> JsonObject:
    """Return the folded payload as a compaction carries it, keys in the order of S8."""
    return {
        "type": FOLDED,
        "version": 1,
        "fullFold": full_fold,
        "observations": [observation_json(item) for item in observations],
        "reflections": [reflection_json(item) for item in reflections],
        "droppedObservationIds": list(dropped_ids),
    }


def _index(entries: Sequence[Entry], entry_id: str | None) -> int | None:
    if not entry_id:
        return None
    return next((i for i, entry in enumerate(entries) if entry.id == entry_id), None)


def _latest_payload(entries: Sequence[Entry]) -> tuple[FoldedMemory | None, bool]:
    """Return the last payload, and whether it is one of ours, which says what it has folded."""
    for entry in reversed(entries):
        folded = folded_of(entry)
        if folded is not None:
            compaction = compaction_of(entry)
            return folded, compaction is not None and compaction.folded_through is not None
    return None, False


def _from_payload(entries: Sequence[Entry], folded: FoldedMemory) -> Ledger:
    payload = Ledger(
        observations=folded.observations,
        reflections=folded.reflections,
        dropped_ids=folded.dropped_observation_ids,
    )
    for entry in reversed(entries):
        if folded_of(entry) is not None:
            compaction = compaction_of(entry)
            if compaction is None or compaction.folded_through is None:
                return payload  # repeats inside an imported payload stay
            return merge((payload, fold(_records_after(entries, compaction.folded_through))))
    return payload


def _records_after(entries: Sequence[Entry], through: FoldedThrough) -> list[Entry]:
    """Return the records of each kind that stand after the last one folded of that kind."""
    marks = {
        "om.observations.recorded": through.observations,
        "om.reflections.recorded": through.reflections,
        "om.observations.dropped": through.drops,
    }
    reached = {kind: mark is None for kind, mark in marks.items()}
    after: list[Entry] = []
    for entry in entries:
        kind = entry.data_type
        if kind in reached and record_of(entry) is not None:
            if reached[kind]:
                after.append(entry)
            elif entry.id == marks[kind]:
                reached[kind] = True
    return after
