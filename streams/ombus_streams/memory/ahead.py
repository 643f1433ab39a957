"""What the observer may prepare before its threshold is reached (design.md section 5).

A prepared run covers the shortest prefix that reaches a share of the threshold; the next one begins
where it ends. Its record says what any record of that span says, and is appended only when an
obligation has come, or the session rests: acceptance judges it by its ``base`` like every other,
and what is left up to the obligation is a run of its own. So coverage has neither gap nor overlap
for having been prepared.
"""

from ombus_schemas.codec import decode
from ombus_schemas.ids import result_entry_id, run_id
from ombus_schemas.settings import MemorySettings, chunk_max_tokens

from ombus_streams.memory.coverage import is_eligible
from ombus_streams.memory.effects import PrepareObserver, RunObserver
from ombus_streams.memory.head import LeafHead
from ombus_streams.memory.observer import THRESHOLD
from ombus_streams.memory.session import Session, chain
from ombus_streams.memory.terms import scope_at, settings_of


def prepare(
    session: Session, leaf: LeafHead, share: float, before: tuple[PrepareObserver, ...] = ()
) -> PrepareObserver | None:
    """Return the run to prepare after those prepared ``before``, or nothing yet."""
    settings = settings_of(session, leaf)
    wanted = share * settings.observation.message_tokens
    prepared = sum(each.tokens for each in before)
    if settings.passive or leaf.pending_tokens - prepared < wanted:
        return None
    after = before[-1].through_ordinal if before else leaf.coverage_ordinal
    base = before[-1].run.anchor_id if before else leaf.coverage_id
    invalid, most = session.invalid_from(), chunk_max_tokens(settings)
    sources: list[str] = []
    tokens = 0
    for at, row in chain(session, leaf.lineage, after):
        entry = decode(row.value)
        if not is_eligible(entry):
            continue
        if sources and tokens + row.tokens > most:
            return None  # the obligation's own chunks are as good
        sources.append(entry.id)
        tokens += row.tokens
        if tokens >= wanted:
            kept = tuple(each for each in sources if each not in invalid)
            if not kept:
                return None
            seen = session.head.last_invalidation
            run = RunObserver(
                run_id=run_id(
                    "observer", session.tenant_id, session.session_id,
                    THRESHOLD, base, seen, entry.id, tuple(sources),
                ),
                tenant_id=session.tenant_id,
                session_id=session.session_id,
                segment=leaf.segment,
                base=base,
                seen=seen,
                cause=THRESHOLD,
                anchor_id=entry.id,
                scope_id=scope_at(session, leaf, at) if leaf.n_scopes else None,
                source_ids=kept,
            )  # fmt: skip
            return PrepareObserver(
                run=run,
                through_ordinal=at,
                tokens=tokens,
                before=tuple(each.run.run_id for each in before),
                settings=settings,
                n_scopes=leaf.n_scopes,
            )
    return None


def is_current(session: Session, leaf: LeafHead, first: PrepareObserver) -> bool:
    """Say whether the oldest prepared run is still what an obligation would ask for.

    It began at what is covered now, nothing was invalidated since, the settings and scopes it was
    made under are in force, and no branch has put its record where this one rejects it.
    """
    settings: MemorySettings = settings_of(session, leaf)
    return (
        first.run.base == leaf.coverage_id
        and first.run.seen == session.head.last_invalidation
        and first.settings == settings
        and first.n_scopes == leaf.n_scopes
        and session.place_of(result_entry_id("observer", first.run.run_id)) is None
    )
