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
from ombus_streams.memory.head import AcceptedRow, InvalidationRow, LeafHead
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
    for row in _later_invalidations(session, record, ordinal):
        for name in row.ids:
            place = ordinal_of(session, leaf, name, ordinal)
            if place is not None and leaf.coverage_ordinal < place <= anchor:
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
    first = 0 if full else leaf.reflected_records
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
    return _unless_invalidated(session, leaf, record, ordinal, -1, leaf.n_records)


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
    for row in _later_invalidations(session, record, ordinal):
        ids = set(row.ids)
        for observation in record.memory.observations:
            if blocks_observation(ids, observation):
                return "invalidated"
        for reflection in record.memory.reflections:
            supports = reflection.supporting_observation_ids
            if reflection.id in ids or any(
                _is_hit(session, leaf, support, ids) for support in supports
            ):
                return "invalidated"
    return "accepted"


def _later_invalidations(
    session: Session, record: WorkerFields, ordinal: int
) -> list[InvalidationRow]:
    """Return the invalidations after ``seen`` that stand before the record."""
    if session.head.last_invalidation in (None, record.seen):
        return []
    rows = [row for row in session.invalidations() if row.ordinal <= ordinal]
    for index, row in enumerate(rows):
        if row.id == record.seen:
            return rows[index + 1 :]
    return rows


def _unless_invalidated(
    session: Session, leaf: LeafHead, record: WorkerFields, ordinal: int, after: int, up_to: int
) -> Verdict:
    """Judge by the observations of records after ``after`` up to ``up_to``: what the run read."""
    rows = _later_invalidations(session, record, ordinal)
    ids = {name for row in rows for name in row.ids}
    if ids:
        for held in observations(session, leaf, "invalidated"):
            if after < held.record_number <= up_to and blocks_observation(ids, held.item):
                return "invalidated"
    return "accepted"


def _is_hit(session: Session, leaf: LeafHead, memory_id: str, ids: set[str]) -> bool:
    if memory_id in ids:
        return True
    row = observation_row(session, leaf, name_of(session, leaf, memory_id))
    return row is not None and blocks_observation(ids, row.item)
