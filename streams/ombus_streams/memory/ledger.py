"""The ledger: everything a branch has recorded, and what has been dropped of it (S6)."""

from collections.abc import Iterable, Set

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.records import (
    Observation,
    ObservationsDropped,
    ObservationsRecorded,
    Reflection,
    ReflectionsRecorded,
    folded_of,
    record_of,
)

PRUNED = "pruned"
"""The reason of a drop that makes room; what rests on it stays (design.md section 12, row 14)."""


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """A fold of a branch; items are in first-seen order, each id once."""

    observations: tuple[Observation, ...] = ()
    """All that was ever recorded, dropped ones included."""
    reflections: tuple[Reflection, ...] = ()
    dropped_ids: tuple[str, ...] = ()
    """In first-dropped order; ids that nobody recorded are among them."""
    pruned_ids: frozenset[str] = frozenset()
    """Those that only records with the reason ``pruned`` have dropped."""
    observation_coverage_id: str | None = None
    reflection_coverage_id: str | None = None
    drop_coverage_id: str | None = None


def fold(entries: Iterable[Entry]) -> Ledger:
    """Return the ledger of ``entries``, read once in their order; total, never raises.

    The first record of an id wins, a drop is for ever, the last coverage mark counts.
    """
    observations: dict[str, Observation] = {}
    reflections: dict[str, Reflection] = {}
    dropped: dict[str, bool] = {}  # id: only ever pruned
    observed_to = reflected_to = dropped_to = None
    for entry in entries:
        folded = folded_of(entry)
        if folded is not None:
            for observation in folded.observations:
                observations.setdefault(observation.id, observation)
            for reflection in folded.reflections:
                reflections.setdefault(reflection.id, reflection)
            for item in folded.dropped_observation_ids:
                # A payload repeats drops it has read; it adds no reason of its own.
                dropped.setdefault(item, False)
        match record_of(entry):
            case ObservationsRecorded() as record:
                for observation in record.observations:
                    observations.setdefault(observation.id, observation)
                observed_to = _later(observed_to, record.covers_up_to_id)
            case ReflectionsRecorded() as record:
                for reflection in record.reflections:
                    reflections.setdefault(reflection.id, reflection)
                reflected_to = _later(reflected_to, record.covers_up_to_id)
            case ObservationsDropped() as record:
                pruned = record.reason == PRUNED
                for item in record.observation_ids:
                    dropped[item] = pruned and dropped.get(item, True)
                dropped_to = _later(dropped_to, record.covers_up_to_id)
            case None:
                pass
    return Ledger(
        observations=tuple(observations.values()),
        reflections=tuple(reflections.values()),
        dropped_ids=tuple(dropped),
        pruned_ids=frozenset(item for item, pruned in dropped.items() if pruned),
        observation_coverage_id=observed_to,
        reflection_coverage_id=reflected_to,
        drop_coverage_id=dropped_to,
    )


def active(ledger: Ledger) -> tuple[Observation, ...]:
    """Return the recorded observations that are not dropped, in ledger order."""
    dropped = frozenset(ledger.dropped_ids)
    return tuple(item for item in ledger.observations if item.id not in dropped)


def merge(ledgers: Iterable[Ledger]) -> Ledger:
    """Return the union: the first id wins from left to right, coverage is not carried."""
    observations: dict[str, Observation] = {}
    reflections: dict[str, Reflection] = {}
    dropped: dict[str, bool] = {}
    for ledger in ledgers:
        for observation in ledger.observations:
            observations.setdefault(observation.id, observation)
        for reflection in ledger.reflections:
            reflections.setdefault(reflection.id, reflection)
        for item in ledger.dropped_ids:
            dropped[item] = item in ledger.pruned_ids and dropped.get(item, True)
    return Ledger(
        observations=tuple(observations.values()),
        reflections=tuple(reflections.values()),
        dropped_ids=tuple(dropped),
        pruned_ids=frozenset(item for item, pruned in dropped.items() if pruned),
    )


def blocks_observation(ids: Set[str], observation: Observation) -> bool:
    """Say whether ``ids`` holds the observation or one of its sources."""
    return observation.id in ids or any(item in ids for item in observation.source_entry_ids)


def blocks_reflection(ids: Set[str], reflection: Reflection) -> bool:
    """Say whether ``ids`` holds the reflection or one of its supporting observations."""
    return reflection.id in ids or any(
        item in ids for item in reflection.supporting_observation_ids
    )


def _later(before: str | None, now: str | None) -> str | None:
    return before if now is None else now
