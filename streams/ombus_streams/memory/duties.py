"""What a session owes its workers, and putting its heads back with a mark that says so.

The mark is a row like any other, derived from the log: whoever opens a store finds the sessions
that have work due without looking at the others.
"""

from collections.abc import Mapping

from ombus_streams.memory import compactor, dropper, funnel, keys, observer, reflector
from ombus_streams.memory.effects import Effect
from ombus_streams.memory.head import LeafHead
from ombus_streams.memory.session import Session
from ombus_streams.memory.terms import settings_of

BRANCH_IDLE_MS = 86_400_000
"""A leaf that gained nothing for this much append time is served when read or flushed."""

Worker = str
WORKERS: tuple[Worker, ...] = ("observer", "reflector", "dropper", "compactor", "funnel")


class Standing:
    """What is known of a leaf's runs beyond the log: refused runs, parked workers."""

    def __init__(
        self, refused: frozenset[str] = frozenset(), parked: Mapping[Worker, str] | None = None
    ) -> None:
        self.refused = refused
        self.parked = parked or {}
        """Why each parked worker is not asked."""


def decide(
    session: Session, leaf: LeafHead, worker: Worker, standing: Standing | None = None
) -> Effect | None:
    """Return what one worker owes this leaf now, or nothing. Pure: asking twice asks the same."""
    known = standing or Standing()
    if leaf.conflict or not leaf.is_due or is_idle(session, leaf):
        return None
    match worker:
        case "observer":
            return observer.decide(session, leaf, known.refused)
        case "reflector":
            return reflector.decide(session, leaf)
        case "dropper":
            # A compactor that is parked holds up no stage of a flush.
            failures = (why for name, why in known.parked.items() if name != "compactor")
            failure = next(failures, None)
            return dropper.decide(session, leaf, failure)
        case "funnel":
            return funnel.decide(session, leaf)
        case _:
            return compactor.decide(session, leaf)


def is_idle(session: Session, leaf: LeafHead) -> bool:
    """Say whether the leaf waits to be read or flushed (design.md section 4)."""
    asked = leaf.flushes or leaf.compact_requests
    return not asked and session.head.at_ms - leaf.at_ms > BRANCH_IDLE_MS


def save(session: Session) -> None:
    """Put the changed heads and the marks into the rows."""
    leaves, head_changed = session.take_changes()
    was_due = session.head.n_due > 0
    for leaf in leaves:
        due = not leaf.conflict and _is_due(session, leaf)
        if due != leaf.is_due:
            leaf.is_due = due
            session.head.n_due += 1 if due else -1
            head_changed = True
        session.write(keys.leaf(session.prefix, leaf.segment), leaf)
    if head_changed:
        session.write(keys.head(session.prefix), session.head)
        if session.is_new:
            session.is_new = False
            session.rows.put(keys.session_mark(session.key), b"")
    if was_due != (session.head.n_due > 0):
        mark = keys.due_mark(session.key)
        if was_due:
            session.rows.delete(mark)
        else:
            session.rows.put(mark, b"")


def _is_due(session: Session, leaf: LeafHead) -> bool:
    if leaf.flushes or leaf.compact_requests:
        return True
    settings = settings_of(session, leaf)
    return (
        leaf.threshold_ordinal > leaf.coverage_ordinal
        or leaf.reflect_to > leaf.reflected_records
        or leaf.chain_tokens >= settings.context.compact_after_tokens
        or (
            leaf.reflection_items > 0
            and leaf.reflection_id != leaf.dropped_for
            and leaf.active_tokens > settings.dropper.target_tokens
            and not leaf.n_scopes
        )
        or funnel.is_due(session, leaf)
    )
