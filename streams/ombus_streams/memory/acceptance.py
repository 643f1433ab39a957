"""Which worker records a view accepts (design.md section 5). The rules are wire semantics.

A record of ours names the state its run started from (``base``), the last invalidation applied to
its input (``seen``), and what it read. In each view, in view order, one that does not fit what has
been reached there folds to nothing and is counted. Records without ``base`` are imports.
"""

from typing import Literal

from msgspec import UNSET
from ombus_schemas.records import (
    Compaction,
    FoldedThrough,
    ObservationsDropped,
    ObservationsRecorded,
    ReflectionsRecorded,
    WorkerFields,
)

from ombus_streams.memory import keys
from ombus_streams.memory.coverage import is_eligible
from ombus_streams.memory.head import AcceptedRow, LeafHead
from ombus_streams.memory.items import name_of, observation_row, observations
from ombus_streams.memory.ledger import blocks_observation
from ombus_streams.memory.session import Session, is_on

Verdict = Literal[
    "accepted",
    "stale_base",
    "bad_anchor",
    "not_accepted",
    "invalidated",
    "superseded",
    "no_progress",
]
"""Everything but ``accepted`` is the name of its counter in ``Rejections``."""


def ordinal_of(session: Session, leaf: LeafHead, entry_id: str, before: int) -> int | None:
    """Return where an entry of this view lies, or ``None`` if it did not stand before ``before``.

    A side record stands for its anchor.
    """
    place = session.place_of(entry_id)
    if place is None or place.place not in ("chain", "side") or place.ordinal > before:
        return None
    if not is_on(leaf.lineage, place.anchor_segment, place.anchor_ordinal):
        return None
    return place.anchor_ordinal


def accepted_number(session: Session, leaf: LeafHead, kind: str, record_id: str) -> int | None:
    """Return the number of a record this view accepts, or ``None``."""
    key = keys.named(session.prefix, b"a", leaf.segment, record_id)
    row = session.read(key, AcceptedRow)
    return row.number if row is not None and row.kind == kind else None


def judge_observations(
    session: Session, leaf: LeafHead, record: ObservationsRecorded, anchor: int, ordinal: int
) -> Verdict:
    """Judge an observer's record anchored at ``anchor`` that attached at ``ordinal``."""
    if record.base is UNSET:
        return "accepted"
    if record.base != leaf.coverage_id:
        return "stale_base"
    covers = record.covers_up_to_id
    covered = ordinal_of(session, leaf, covers, ordinal) if covers is not None else None
    if covered != anchor or anchor <= leaf.coverage_ordinal:
        return "bad_anchor"
    _, fresh = _invalidated(session, record, ordinal)
    for name in sorted(fresh):
        place = ordinal_of(session, leaf, name, ordinal)
        if place is not None and leaf.coverage_ordinal < place <= anchor:
            entry = session.entry(name)
            if entry is not None and not entry.side and is_eligible(entry):
                return "invalidated"
    return "accepted"


def judge_reflections(
    session: Session, leaf: LeafHead, record: ReflectionsRecorded, ordinal: int
) -> Verdict:
    """Judge a reflector's record."""
    if record.base is UNSET:
        return "accepted"
    if record.base != leaf.reflection_id:
        return "stale_base"
    through = leaf.n_records
    if record.through is not None:
        number = accepted_number(session, leaf, "observations", record.through)
        if number is None:
            return "not_accepted"
        through = number
    full = any(flush.cause == record.cause and flush.full for flush in leaf.flushes)
    first = -1 if full else leaf.reflected_records
    return _unless_invalidated(session, leaf, record, ordinal, first, through)


def judge_drops(
    session: Session, leaf: LeafHead, record: ObservationsDropped, ordinal: int
) -> Verdict:
    """Judge a dropper's record: the first per reflection counts, and none under a host scope."""
    if record.base is UNSET:
        return "accepted"
    if record.base != leaf.reflection_id or record.base is None:
        return "stale_base"
    if record.base == leaf.dropped_for or leaf.n_scopes:
        return "superseded"
    return _unless_invalidated(session, leaf, record, ordinal, -1, leaf.pool_records)


def judge_compaction(
    session: Session, leaf: LeafHead, record: Compaction, anchor: int, ordinal: int
) -> Verdict:
    """Judge a compactor's entry."""
    if record.base is UNSET:
        return "accepted"
    if record.base != leaf.compaction_id:
        return "stale_base"
    folded = record.folded_through or FoldedThrough()
    kinds = {
        "observations": folded.observations,
        "reflections": folded.reflections,
        "drops": folded.drops,
    }
    for kind, last in kinds.items():
        if last is not None and accepted_number(session, leaf, kind, last) is None:
            return "not_accepted"
    through_id = record.through_entry_id
    through = ordinal_of(session, leaf, through_id, ordinal) if through_id is not None else None
    if through is None or through > anchor or record.memory is None:
        return "bad_anchor"
    if through <= leaf.through_ordinal:
        return "no_progress"
    _, fresh = _invalidated(session, record, ordinal)
    if fresh:
        for observation in record.memory.observations:
            if blocks_observation(fresh, observation):
                return "invalidated"
        for reflection in record.memory.reflections:
            supports = reflection.supporting_observation_ids
            if reflection.id in fresh or any(
                _is_hit(session, leaf, support, fresh) for support in supports
            ):
                return "invalidated"
    return "accepted"


def _invalidated(session: Session, record: WorkerFields, ordinal: int) -> tuple[set[str], set[str]]:
    """Return the ids the run knew to be invalid, and those that became so before its record."""
    known: set[str] = set()
    fresh: set[str] = set()
    if session.head.last_invalidation in (None, record.seen):
        return known, fresh
    for row in session.invalidations():
        if row.ordinal > ordinal:
            break
        fresh.update(row.ids)
        if row.id == record.seen:
            known, fresh = fresh, set()
    return known, fresh - known


def _unless_invalidated(
    session: Session, leaf: LeafHead, record: WorkerFields, ordinal: int, after: int, up_to: int
) -> Verdict:
    """Judge by the observations of records after ``after`` up to ``up_to``: what the run read."""
    known, fresh = _invalidated(session, record, ordinal)
    if fresh:
        for held in observations(session, leaf, "invalidated"):
            if (
                after < held.record_number <= up_to
                and blocks_observation(fresh, held.item)
                and not blocks_observation(known, held.item)
            ):
                return "invalidated"
    return "accepted"


def _is_hit(session: Session, leaf: LeafHead, memory_id: str, ids: set[str]) -> bool:
    if memory_id in ids:
        return True
    row = observation_row(session, leaf, name_of(session, leaf, memory_id))
    return row is not None and blocks_observation(ids, row.item)
