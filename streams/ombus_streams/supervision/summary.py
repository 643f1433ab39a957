"""What a parent is told of its children, as a fold of the log alone (S23.2).

The failure radius is that of the most recent failure (design.md section 12, row 7): delegations
below the failed one that were alive at that moment.
"""

from collections.abc import Callable, Iterable

import msgspec

from ombus_streams.supervision.handle import Handle, child_session_id
from ombus_streams.supervision.parent import Parent, Tally

Children = Callable[[str], Iterable[Handle]]
"""The delegations of a session of the same tenant."""


class ChildSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One child id."""

    child_id: str
    attempts: int
    retries: int
    failures: int
    failure_radius: int
    outcome: str
    """``running`` while one is, else how the last one ended."""


def summary(parent: Parent, children: Children) -> tuple[ChildSummary, ...]:
    """Return a row for each child that was attempted or has failed, in the order of admission."""
    return tuple(
        ChildSummary(
            child_id=tally.child_id,
            attempts=tally.attempts,
            retries=tally.retries,
            failures=tally.failures,
            failure_radius=_radius(tally, children),
            outcome="running" if tally.n_live else tally.outcome or "running",
        )
        for tally in parent.tallies
        if tally.attempts or tally.failures
    )


def live_below(delegation: str, at_ms: int, children: Children) -> int:
    """Return how many delegations below this one were alive just before ``at_ms``."""
    total = 0
    for handle in children(child_session_id(delegation)):
        was_alive = handle.admitted_ms is not None and handle.admitted_ms <= at_ms
        if was_alive and (handle.ended_ms is None or handle.ended_ms >= at_ms):
            total += 1 + live_below(handle.id, at_ms, children)
    return total


def _radius(tally: Tally, children: Children) -> int:
    if tally.failed_id is None:
        return 0
    return live_below(tally.failed_id, tally.failed_ms, children)
