"""When the reflector runs, and over what (design.md section 5)."""

from ombus_schemas.codec import decode
from ombus_schemas.ids import run_id

from ombus_streams.memory import keys
from ombus_streams.memory.effects import RunReflector
from ombus_streams.memory.head import EntryRow, Flush, LeafHead
from ombus_streams.memory.items import ACTIVE, observations
from ombus_streams.memory.observer import THRESHOLD
from ombus_streams.memory.session import Session
from ombus_streams.memory.terms import scope_at, settings_of


def decide(session: Session, leaf: LeafHead) -> RunReflector | None:
    """Return the run the leaf has earned, or nothing.

    It reads the observations of the records up to the one that was the last when the threshold was
    reached, or when a flush had been covered; what is observed meanwhile waits for the next run.
    """
    if settings_of(session, leaf).passive:
        return None
    for cause, up_to, full in _obligations(session, leaf):
        first = 0 if full else leaf.reflected_records + 1
        ids = tuple(
            row.item.id
            for row in observations(session, leaf, *ACTIVE)
            if first <= row.record_number <= up_to
        )
        if ids:
            return _run(session, leaf, cause, up_to, ids)
    return None


def is_reflected(session: Session, leaf: LeafHead, flush: Flush) -> bool:
    """Say whether a flush has nothing left to reflect over."""
    if flush.reflect_to < 0:
        return False
    if flush.full:
        return leaf.n_active == 0
    if leaf.n_uncovered == 0 or flush.reflect_to <= leaf.reflected_records:
        return True
    return not any(
        leaf.reflected_records < row.record_number <= flush.reflect_to
        for row in observations(session, leaf, *ACTIVE)
    )


def _obligations(session: Session, leaf: LeafHead) -> list[tuple[str, int, bool]]:
    due: list[tuple[str, int, bool]] = []
    if leaf.reflect_to > leaf.reflected_records:
        due.append((THRESHOLD, leaf.reflect_to, False))
        due.append((THRESHOLD, leaf.n_records, False))
    for flush in leaf.flushes:
        if flush.reflect_to >= 0 and not is_reflected(session, leaf, flush):
            due.append((flush.cause, flush.reflect_to, flush.full))
    return due


def _run(
    session: Session, leaf: LeafHead, cause: str, up_to: int, ids: tuple[str, ...]
) -> RunReflector:
    through = session.rows.get(keys.item(session.prefix, b"n", leaf.segment, up_to))
    through_id = through.decode() if through is not None else None
    anchor_id, anchor_ordinal = leaf.reflection_tip_id or leaf.tip_id, leaf.tip_ordinal
    place = session.place_of(through_id) if through_id is not None else None
    if place is not None:
        row = session.read(
            keys.entry(session.prefix, place.anchor_segment, place.anchor_ordinal), EntryRow
        )
        if row is not None:  # an import may hang a record above every root
            anchor_id, anchor_ordinal = decode(row.value).id, place.anchor_ordinal
    seen = session.head.last_invalidation
    return RunReflector(
        run_id=run_id(
            "reflector",
            session.tenant_id,
            session.session_id,
            cause,
            leaf.reflection_id,
            seen,
            anchor_id,
            ids,
        ),
        tenant_id=session.tenant_id,
        session_id=session.session_id,
        segment=leaf.segment,
        base=leaf.reflection_id,
        seen=seen,
        cause=cause,
        anchor_id=anchor_id,
        scope_id=scope_at(session, leaf, anchor_ordinal) if leaf.n_scopes else None,
        observation_ids=ids,
        through=through_id,
    )
