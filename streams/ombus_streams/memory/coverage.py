"""Which entries are sources, which of them have been read, and what a reflection has seen (S7)."""

from collections.abc import Sequence
from typing import Final, Literal

from ombus_schemas.entries import Entry
from ombus_schemas.records import (
    Observation,
    ObservationsRecorded,
    ReflectionsRecorded,
    record_of,
)

from ombus_streams.memory.ledger import active, fold

SOURCE_ROLES: Final = frozenset({"user", "assistant", "tool"})
NOT_SOURCES: Final = frozenset({"injected", "summary", "worker"})
"""Origins of text that memory itself, or the harness, has put into a session."""

Tier = Literal["none", "partial", "full"]


def is_eligible(entry: Entry) -> bool:
    """Say whether ``entry`` is a source of memory: a message somebody spoke (design.md section 5).

    An entry that names no origin counts as spoken.
    """
    return (
        entry.kind == "message"
        and entry.message is not None
        and entry.message.role in SOURCE_ROLES
        and entry.origin not in NOT_SOURCES
    )


def unscanned(entries: Sequence[Entry], coverage_id: str | None) -> Sequence[Entry]:
    """Return the entries after the first one with ``coverage_id``, of every kind.

    All of them when there is none: the pure function fails open (design.md section 12, row 5).
    """
    if coverage_id:
        for place, entry in enumerate(entries):
            if entry.id == coverage_id:
                return entries[place + 1 :]
    return entries


def eligible_sources(entries: Sequence[Entry], coverage_id: str | None) -> list[Entry]:
    """Return the sources among the unscanned entries."""
    return [entry for entry in unscanned(entries, coverage_id) if is_eligible(entry)]


def uncovered_observations(
    entries: Sequence[Entry], full_rebuild: bool = False
) -> tuple[Observation, ...]:
    """Return the active observations that the last reflection has not read, in ledger order.

    Those recorded after the record it names as ``through``, if it names one of these entries
    (design.md section 12, row 15), else those recorded after the reflection itself. All of them
    on a full rebuild or without a reflection.
    """
    observations = active(fold(entries))
    start = None if full_rebuild else _read_to(entries)
    if start is None:
        return observations
    fresh: set[str] = set()
    for entry in entries[start + 1 :]:
        record = record_of(entry)
        if isinstance(record, ObservationsRecorded):
            fresh.update(item.id for item in record.observations)
    return tuple(item for item in observations if item.id in fresh)


def tier(covered: float, total: float) -> Tier:
    """Return how much of ``total`` is covered."""
    if covered <= 0 or total <= 0:
        return "none"
    return "full" if covered >= total else "partial"


def _read_to(entries: Sequence[Entry]) -> int | None:
    """Return the place of what the last reflection read up to, or nothing without one."""
    for place in range(len(entries) - 1, -1, -1):
        record = record_of(entries[place])
        if isinstance(record, ReflectionsRecorded):
            if record.through is not None:
                for earlier in range(place):
                    if entries[earlier].id == record.through:
                        return earlier
            return place
    return None
