"""What a parent's delegations are owed at an instant: pure, from the state alone.

Asking again asks for the same: events have ids that follow from their content, and the fold takes
the first. ``now_ms`` only says what is due; whether a lease is lost is judged again by append time
in the fold, so a fast clock ends nothing.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec
from ombus_schemas.supervision import (
    ChildFailed,
    DelegationCancelled,
    DelegationError,
    ParentGone,
    SupervisionEvent,
)

from ombus_streams.supervision.handle import LEASE_LOST, LIVE, Handle, is_lost
from ombus_streams.supervision.parent import Parent

MAX_EPOCHS: Final = 16
"""Children that may be lost for one delegation, before it fails."""


class Answer(msgspec.Struct, frozen=True):
    """Check a request and append what comes of it."""

    delegation_id: str


class Tell(msgspec.Struct, frozen=True):
    """Append events under the parent's key; ``parts`` make their ids."""

    events: tuple[SupervisionEvent, ...]
    parts: tuple[str | int, ...] = ()


Decision: TypeAlias = Answer | Tell


def decide(parent: Parent, handles: Mapping[str, Handle], now_ms: int) -> tuple[Decision, ...]:
    """Return what is due, in the order of the requests."""
    if (
        parent.alive_ms is not None
        and parent.gone is None
        and now_ms > parent.alive_ms + parent.lease_ms
    ):
        gone = ParentGone(reason=LEASE_LOST, after_ms=parent.alive_ms)
        return (Tell((gone,), (parent.alive_ms,)),)
    found: list[Decision] = []
    for delegation in parent.open_ids:
        decision = _decide_one(parent, handles[delegation], now_ms)
        if decision is not None:
            found.append(decision)
    return tuple(found)


def next_due_ms(parent: Parent, handles: Mapping[str, Handle]) -> int | None:
    """Return the first instant at which time alone makes something due."""
    times: list[int] = []
    if parent.alive_ms is not None and parent.gone is None:
        times.append(parent.alive_ms + parent.lease_ms + 1)
    for handle in handles.values():
        if handle.deadline_ms is not None:
            times.append(handle.deadline_ms)
        if handle.lease is not None and _fails_when_lost(handle):
            times.append(handle.lease.expires_ms + 1)
    return min(times, default=None)


def _decide_one(parent: Parent, handle: Handle, now_ms: int) -> Decision | None:
    end = parent.end
    if end is not None and handle.lifetime == "task":
        return Tell((_cancelled(handle, end),))
    if handle.state == "requested":
        return Answer(handle.id)
    assert handle.state in LIVE
    if handle.failure is not None:
        return Tell((_error(handle, handle.failure),))
    deadline_ms = handle.deadline_ms
    if deadline_ms is not None and now_ms >= deadline_ms:
        reason = "timeout"
        limit: str | None = "timeoutMs"
    elif is_lost(handle, now_ms) and _fails_when_lost(handle):
        reason, limit = LEASE_LOST, None
    else:
        return None
    failed = ChildFailed(
        child_id=handle.child_id,
        delegation_id=handle.id,
        depth=handle.depth,
        reason=reason,
        status="failed",
        limit=limit,
    )
    # Only a lease that is lost for the log, too, fails the child; its error follows from the state.
    follows = () if reason == LEASE_LOST else (_error(handle, reason),)
    seen_ms = handle.lease.seen_ms if handle.lease is not None else 0
    return Tell((failed, *follows), (reason, seen_ms))


def _fails_when_lost(handle: Handle) -> bool:
    assert handle.lease is not None
    return handle.on_lost == "fail" or handle.lease.epoch >= MAX_EPOCHS


def _error(handle: Handle, reason: str) -> DelegationError:
    return DelegationError(
        child_id=handle.child_id, delegation_id=handle.id, depth=handle.depth, error=reason
    )


def _cancelled(handle: Handle, reason: str) -> DelegationCancelled:
    return DelegationCancelled(
        child_id=handle.child_id, delegation_id=handle.id, depth=handle.depth, reason=reason
    )
