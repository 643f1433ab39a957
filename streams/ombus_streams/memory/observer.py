"""When the observer runs, and over what (design.md section 5).

An obligation (a threshold reached, a flush) fixes the last entry to cover. It is worked off oldest
first, in chunks; each chunk is a run of its own.
"""

from collections.abc import Set as AbstractSet

from ombus_schemas.codec import decode
from ombus_schemas.ids import result_entry_id, run_id
from ombus_schemas.settings import chunk_max_tokens

from ombus_streams.memory.coverage import is_eligible
from ombus_streams.memory.effects import RunObserver
from ombus_streams.memory.head import LeafHead
from ombus_streams.memory.session import Session, chain
from ombus_streams.memory.terms import scope_at, settings_of

THRESHOLD = "threshold"


def decide(
    session: Session, leaf: LeafHead, refused: AbstractSet[str] = frozenset()
) -> RunObserver | None:
    """Return the run the leaf has earned, or nothing.

    Entries that arrive while it is under way ask for the same run again. ``refused`` names runs a
    provider refuses for good: such a span is halved, and a single refused source is passed over.
    """
    settings = settings_of(session, leaf)
    target = _obligation(leaf)
    if target is None or settings.passive:
        return None
    ordinal, cause = target
    sources: list[tuple[str, int]] = []
    last_id, last_ordinal, tokens = "", 0, 0
    most = chunk_max_tokens(settings)
    for at, row in chain(session, leaf.lineage, leaf.coverage_ordinal, ordinal):
        entry = decode(row.value)
        if is_eligible(entry):
            if sources and tokens + row.tokens > most:
                last_id, last_ordinal = sources[-1]
                break
            sources.append((entry.id, at))
            tokens += row.tokens
        last_id, last_ordinal = entry.id, at
    if not last_id:
        return None
    reason = None
    while True:
        ids = tuple(entry_id for entry_id, _ in sources)
        run, because = _run(session, leaf, cause, last_id, ids)
        if run not in refused:
            break
        if len(sources) == 1:
            reason = "refused"
            break
        sources = sources[: len(sources) // 2]
        last_id, last_ordinal = sources[-1]
    invalid = session.invalid_from()
    kept = tuple(entry_id for entry_id in ids if entry_id not in invalid)
    if reason is None and ids and not kept:
        reason = "invalidated"
    last_source = sources[-1][1] if sources else last_ordinal
    return RunObserver(
        run_id=run,
        tenant_id=session.tenant_id,
        session_id=session.session_id,
        segment=leaf.segment,
        base=leaf.coverage_id,
        seen=session.head.last_invalidation,
        cause=because,
        anchor_id=last_id,
        scope_id=scope_at(session, leaf, last_source) if leaf.n_scopes else None,
        source_ids=() if reason else kept,
        reason=reason,
    )


def is_obliged(leaf: LeafHead) -> bool:
    """Say whether a threshold or a flush obliges to cover something."""
    return _obligation(leaf) is not None


def _obligation(leaf: LeafHead) -> tuple[int, str] | None:
    """Return the nearest entry that must be covered, and why."""
    due = [
        (flush.ordinal, flush.cause)
        for flush in leaf.flushes
        if flush.ordinal > leaf.coverage_ordinal
    ]
    if leaf.threshold_ordinal > leaf.coverage_ordinal:
        due.append((leaf.threshold_ordinal, THRESHOLD))
    return min(due, key=lambda target: target[0], default=None)


def _run(
    session: Session, leaf: LeafHead, cause: str, anchor_id: str, ids: tuple[str, ...]
) -> tuple[str, str]:
    """Return the run's id and its cause.

    A branch may have asked for the same run before this one had come to its base: that record is
    void here for ever, and another under its id would only repeat it. It is the cause of the next.
    """
    while True:
        run = run_id(
            "observer",
            session.tenant_id,
            session.session_id,
            cause,
            leaf.coverage_id,
            session.head.last_invalidation,
            anchor_id,
            ids,
        )
        answer = result_entry_id("observer", run)
        if session.place_of(answer) is None:
            return run, cause
        cause = answer
