"""The memory a context, a compaction or a command may show (design.md section 12, rows 4 and 11).

Ours is all that is active: the payload of our last compaction and what was accepted after it, or
the whole ledger. The reference's is what was recorded before the window.
"""

from collections.abc import Sequence, Set
from typing import Literal

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.records import compaction_of, folded_of

from ombus_streams.memory.ledger import (
    Ledger,
    active,
    blocks_observation,
    blocks_reflection,
    fold,
)
from ombus_streams.memory.projection import project
from ombus_streams.memory.shared import SharedMemory, join

Alignment = Literal["active", "record"]
"""``active``: all active memory, wherever its sources are. ``record``: what stands before the first
kept message, as the reference has it."""


def visible(
    entries: Sequence[Entry],
    invalidated_ids: Set[str] = frozenset(),
    shared: SharedMemory | None = None,
    alignment: Alignment = "active",
    boundary_id: str | None = None,
) -> Ledger:
    """Return the visible memory as a ledger whose items may all be shown.

    ``boundary_id``, the first kept entry, counts for ``record`` alone.
    """
    if alignment == "record":
        projection = project(entries, boundary_id, invalidated_ids)
        if shared is not None:
            return join(projection, shared, invalidated_ids, "named")
    elif shared is None and _starts_elsewhere(entries):
        return all_active(fold(entries), invalidated_ids)
    else:
        projection = project(entries, None, invalidated_ids)
        if _starts_elsewhere(entries):
            whole = all_active(projection.full, invalidated_ids)
            projection = msgspec.structs.replace(
                projection,
                observations=whole.observations,
                reflections=whole.reflections,
                dropped_ids=whole.dropped_ids,
            )
        if shared is not None:
            return join(projection, shared, invalidated_ids)
    return Ledger(
        observations=projection.observations,
        reflections=projection.reflections,
        dropped_ids=projection.dropped_ids,
        pruned_ids=projection.full.pruned_ids,
    )


def all_active(ledger: Ledger, invalidated_ids: Set[str] = frozenset()) -> Ledger:
    """Return the ledger without what is dropped or invalidated, and what rests on either.

    A reflection on an observation that was merely pruned stays (row 14).
    """
    hit = {item.id for item in ledger.observations if blocks_observation(invalidated_ids, item)}
    blocking = (frozenset(ledger.dropped_ids) - ledger.pruned_ids) | hit | invalidated_ids
    return msgspec.structs.replace(
        ledger,
        observations=tuple(item for item in active(ledger) if item.id not in hit),
        reflections=tuple(
            item for item in ledger.reflections if not blocks_reflection(blocking, item)
        ),
    )


def _starts_elsewhere(entries: Sequence[Entry]) -> bool:
    """Say whether the last payload is imported: it does not say what it has folded."""
    for entry in reversed(entries):
        if folded_of(entry) is not None:
            compaction = compaction_of(entry)
            return compaction is None or compaction.folded_through is None
    return False
