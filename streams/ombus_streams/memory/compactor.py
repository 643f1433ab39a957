"""When a session is compacted, and what the compaction says: a fold, no model call (section 9).

The boundary never passes the coverage or the recent window, so nothing unobserved is folded away.
What is rendered is always records, never an earlier summary.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

import msgspec
from ombus_schemas.codec import decode
from ombus_schemas.entries import Entry
from ombus_schemas.ids import run_id
from ombus_schemas.jsontext import JsonObject

from ombus_streams.memory.effects import RefuseCompaction, RunCompactor
from ombus_streams.memory.head import EntryRow, LeafHead
from ombus_streams.memory.items import ACTIVE, name_of, observations, reflections
from ombus_streams.memory.pairing import closure, pair
from ombus_streams.memory.payload import MAX_BYTES, bound
from ombus_streams.memory.projection import folded_json
from ombus_streams.memory.reading import Memory, scoped
from ombus_streams.memory.recent import window_start
from ombus_streams.memory.render import render_memory
from ombus_streams.memory.session import Session, chain, chain_backwards
from ombus_streams.memory.terms import is_run_active, settings_of
from ombus_streams.memory.tokens import item_tokens

STRATEGY: Final = "observational-memory"
MAX_LOOK_BACK: Final = 1_000
"""Entries before the boundary among which what kept calls and results need is looked for."""


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a compaction entry that the fold of the memory gives."""

    summary: str
    data: JsonObject
    n_observations: int
    n_trimmed: int
    n_reflections: int


def decide(session: Session, leaf: LeafHead) -> RunCompactor | RefuseCompaction | None:
    """Return the compaction the leaf has earned or was asked for, its refusal, or nothing.

    A request waits for the flushes before it, and for the end of the host's run. The threshold
    waits for what the observer owes: with a backlog each of its runs would earn a compaction.
    """
    settings = settings_of(session, leaf)
    request = leaf.compact_requests[0] if leaf.compact_requests else None
    if settings.passive and request is not None:
        return _refusal(session, leaf, request.cause, "passive")
    if settings.passive or is_run_active(session, leaf):
        return None
    if request is None and (
        leaf.chain_tokens < settings.context.compact_after_tokens
        or leaf.threshold_ordinal > leaf.coverage_ordinal
    ):
        return None
    if request is not None and leaf.flushes:
        return None
    keep = settings.context.recent_messages
    if request is not None and request.keep_recent is not None:
        keep = request.keep_recent
    through = _through(session, leaf, keep)
    if not leaf.n_active and next(reflections(session, leaf, "visible"), None) is None:
        reason = "nothing_folded"
    elif through is None:
        reason = "no_progress"
    else:
        cause = request.cause if request is not None else "threshold"
        seen = session.head.last_invalidation
        return RunCompactor(
            run_id=run_id(
                "compactor",
                session.tenant_id,
                session.session_id,
                cause,
                leaf.compaction_id,
                seen,
                leaf.tip_id,
                (through, leaf.last_record or "", leaf.reflection_id or "", leaf.drop_id or ""),
            ),
            tenant_id=session.tenant_id,
            session_id=session.session_id,
            segment=leaf.segment,
            base=leaf.compaction_id,
            seen=seen,
            cause=cause,
            anchor_id=leaf.tip_id,
            through_id=through,
            trigger="threshold" if request is None else request.trigger,
        )
    return None if request is None else _refusal(session, leaf, request.cause, reason)


def compact(
    session: Session, leaf: LeafHead, run: RunCompactor, secrets: Sequence[str] = ()
) -> Compacted:
    """Return the compaction of the leaf's memory as it stands.

    Raises ``SizeExceeded`` when the reflections alone do not fit the payload's cap.
    """
    context = settings_of(session, leaf).context
    pool = tuple(row.item for row in observations(session, leaf, *ACTIVE))
    kept_reflections = tuple(row.item for row in reflections(session, leaf, "visible"))
    supports = dict.fromkeys(
        support for item in kept_reflections for support in item.supporting_observation_ids
    )
    dropped = tuple(support for support in supports if name_of(session, leaf, support).dropped)
    bounded = bound(
        pool, kept_reflections, dropped, context.observations_pool_max_tokens, MAX_BYTES
    )
    full = bounded.full_fold or item_tokens(pool) > context.observations_pool_max_tokens
    shown = scoped(
        session, leaf, Memory(observations=bounded.observations, reflections=kept_reflections)
    )
    place = session.place_of(run.through_id)
    through_ordinal = place.ordinal if place is not None else leaf.through_ordinal
    folded: JsonObject = {}
    for kind, last in (
        ("observations", leaf.last_record),
        ("reflections", leaf.reflection_id),
        ("drops", leaf.drop_id),
    ):
        if last is not None:
            folded[kind] = last
    return Compacted(
        summary=render_memory(
            shown.observations, shown.reflections, shown.outline, secrets, advisory="when_any"
        ),
        data={
            "throughEntryId": run.through_id,
            "keepEntryIds": list(_needed(session, leaf, through_ordinal)),
            "strategy": STRATEGY,
            "trigger": run.trigger,
            "memory": folded_json(
                full, bounded.observations, bounded.reflections, bounded.dropped_ids
            ),
            "foldedThrough": folded,
        },
        n_observations=len(bounded.observations),
        n_trimmed=len(pool) - len(bounded.observations),
        n_reflections=len(kept_reflections),
    )


def _refusal(session: Session, leaf: LeafHead, request_id: str, reason: str) -> RefuseCompaction:
    return RefuseCompaction(
        tenant_id=session.tenant_id,
        session_id=session.session_id,
        segment=leaf.segment,
        request_id=request_id,
        reason=reason,
    )


def _through(session: Session, leaf: LeafHead, keep: int) -> str | None:
    """Return the last entry that may be folded away, if that moves the boundary forward."""
    last = min(window_start(session, leaf, keep) - 1, leaf.coverage_ordinal)
    for ordinal, row in chain_backwards(session, leaf.lineage, last):
        return decode(row.value).id if ordinal > leaf.through_ordinal else None
    return None


def _needed(session: Session, leaf: LeafHead, through: int) -> list[str]:
    """Return the entries up to the boundary that kept calls and results need (row 22)."""
    kept = _messages(chain(session, leaf.lineage, through))
    if not pair(kept).orphans:
        return []
    back = chain_backwards(session, leaf.lineage, through)
    older = _messages(islice(back, MAX_LOOK_BACK))[::-1]
    needed = closure([*older, *kept], range(len(older), len(older) + len(kept)))
    return [entry.id for place, entry in enumerate(older) if place in needed]


def _messages(rows: Iterable[tuple[int, EntryRow]]) -> list[Entry]:
    entries = (decode(row.value) for _, row in rows)
    return [entry for entry in entries if entry.message is not None]
