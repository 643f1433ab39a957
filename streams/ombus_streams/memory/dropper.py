"""When the dropper runs: once per accepted reflection that said something (design.md section 5).

It alone ends a flush, because it is the last stage.
"""

from ombus_schemas.ids import run_id

from ombus_streams.memory.effects import EndFlush, RunDropper
from ombus_streams.memory.head import Flush, LeafHead
from ombus_streams.memory.items import ACTIVE, observations
from ombus_streams.memory.reflector import is_reflected
from ombus_streams.memory.session import Session
from ombus_streams.memory.terms import settings_of


def decide(
    session: Session, leaf: LeafHead, failure: str | None = None
) -> RunDropper | EndFlush | None:
    """Return the drop the leaf has earned, else the flush that has come to its end, or nothing.

    ``failure`` says why some worker of the leaf is parked: its flushes then end as failed.
    """
    if settings_of(session, leaf).passive:
        failure = "passive"
    if failure is not None:
        return _ended(session, leaf, leaf.flushes[0], failure) if leaf.flushes else None
    return _drop(session, leaf) or _end(session, leaf)


def _drop(session: Session, leaf: LeafHead) -> RunDropper | None:
    settings = settings_of(session, leaf)
    earned = leaf.reflection_id
    if earned is None or earned == leaf.dropped_for or not leaf.reflection_items or leaf.n_scopes:
        return None
    target = settings.dropper.target_tokens
    if leaf.active_tokens <= target:
        return None
    pool = [
        row.item
        for row in observations(session, leaf, *ACTIVE)
        if row.record_number <= leaf.pool_records
    ]
    if sum(observation.token_count for observation in pool) <= target:
        return None
    ids = tuple(observation.id for observation in pool)
    # At the deciding leaf, not where the reflection hangs: a sibling has a pool of its own.
    seen, anchor_id = session.head.last_invalidation, leaf.tip_id
    return RunDropper(
        run_id=run_id(
            "dropper", session.tenant_id, session.session_id, earned, earned, seen, anchor_id, ids
        ),
        tenant_id=session.tenant_id,
        session_id=session.session_id,
        segment=leaf.segment,
        base=earned,
        seen=seen,
        cause=earned,
        anchor_id=anchor_id,
        observation_ids=ids,
        target_tokens=target,
        uses_model=settings.dropper.policy == "model",
    )


def _end(session: Session, leaf: LeafHead) -> EndFlush | None:
    for flush in leaf.flushes:
        if _is_over(session, leaf, flush) and not _elsewhere(session, leaf, flush):
            return _ended(session, leaf, flush, None)
    return None


def _is_over(session: Session, leaf: LeafHead, flush: Flush) -> bool:
    return flush.ordinal <= leaf.coverage_ordinal and is_reflected(session, leaf, flush)


def _elsewhere(session: Session, leaf: LeafHead, flush: Flush) -> bool:
    """Say whether another branch still works on the flush: it hangs on what they share."""
    others = (session.leaf(segment) for segment in session.segments())
    return any(
        not _is_over(session, other, its)
        for other in others
        if other.segment != leaf.segment and not other.conflict
        for its in other.flushes
        if its.cause == flush.cause
    )


def _ended(session: Session, leaf: LeafHead, flush: Flush, failure: str | None) -> EndFlush:
    return EndFlush(
        tenant_id=session.tenant_id,
        session_id=session.session_id,
        segment=leaf.segment,
        flush_id=flush.cause,
        n_observations=flush.n_observations,
        n_reflections=flush.n_reflections,
        n_dropped=flush.n_dropped,
        failure=failure,
    )
