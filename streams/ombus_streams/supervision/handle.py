"""One delegation, folded from its events in the order of the log.

``step`` is total: an event that does not fit changes nothing and says why, so that it can be
counted. The first end wins; after it only news of the child (milestones trail the child's end)
still counts, and never moves the state. Times are append times.
"""

from typing import Final, Literal, TypeAlias

import msgspec
from ombus_schemas.ids import delegation_id
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.supervision import (
    ChildEvent,
    ChildEventsCapped,
    ChildEventsClosed,
    ChildEventsCoalesced,
    ChildFailed,
    ChildMilestone,
    DelegationAdmitted,
    DelegationCancelled,
    DelegationError,
    DelegationFinished,
    DelegationHeartbeat,
    DelegationRejected,
    DelegationRequested,
    DelegationStarted,
    Lifetime,
    Mode,
    OnLost,
    Permission,
    Report,
    ReportPolicy,
    SupervisionEvent,
)

from ombus_streams.supervision.limits import HARD

LOUDNESS: Final[tuple[Report, ...]] = ("on-complete", "milestones", "stream")
State = Literal["requested", "admitted", "started", "rejected", "failed", "finished", "cancelled"]
TERMINAL: Final[frozenset[State]] = frozenset({"rejected", "failed", "finished", "cancelled"})
LIVE: Final[frozenset[State]] = frozenset({"admitted", "started"})
"""States that hold a slot."""

Ignored: TypeAlias = Literal["unknown", "repeated", "late", "illegal", "stale"]
"""``unknown``: of no request. ``repeated``: said before. ``late``: after the end. ``illegal``: not
in this state. ``stale``: of a lease that somebody else holds, or of a place already passed."""

MIN_LEASE_MS: Final = 250
MAX_LEASE_MS: Final = 300_000
DEFAULT_LEASE_MS: Final = 15_000
LEASE_LOST: Final = "lease_lost"
"""Reason of a failure that only holds if the lease is lost by its own append time."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who runs the child."""

    epoch: int
    holder: str
    lease_ms: int
    seen_ms: int
    """Append time of the claim or the last heartbeat."""

    @property
    def expires_ms(self) -> int:
        """From here on another child may take over."""
        return self.seen_ms + self.lease_ms


class News(msgspec.Struct, frozen=True, kw_only=True):
    """What was told of the child."""

    ordinal: int = -1
    n: int = -1
    """Highest place seen; what is not above it is a repeat."""
    n_events: int = 0
    n_coalesced: int = 0
    is_capped: bool = False
    milestone: JsonObject | None = None
    """The last one."""
    turn: int = 0
    at_ms: int = 0
    offered: int | None = None
    """Of the closing event: what the child had to tell in all."""
    n_after_cap: int = 0


class Handle(msgspec.Struct, frozen=True, kw_only=True):
    """A delegation as it stands."""

    id: str
    request_id: str
    child_id: str
    state: State
    input: str = ""
    """Kept until the end, for whoever claims it."""
    input_bytes: int = 0
    mode: Mode = "sync"
    lifetime: Lifetime = "task"
    policy: ReportPolicy = ReportPolicy()
    limits: dict[str, int] = msgspec.field(default_factory=dict)
    """Those of the request until it is admitted, then the effective ones."""
    budget_share: float | None = None
    on_lost: OnLost = "takeover"
    permissions: tuple[Permission, ...] = ()
    depth: int = 1
    thread_id: str | None = None
    has_owner: bool = False
    requested_ms: int
    admitted_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    lease: Lease | None = None
    failure: str | None = None
    """Why its child failed; the end follows."""
    failed_ms: int | None = None
    reason: str | None = None
    """Of the end: a code, or what the child said."""
    status: str | None = None
    output: str | None = None
    total_tokens: int = 0
    usage: JsonObject | None = None
    news: News = News()

    @property
    def child_session_id(self) -> str:
        return child_session_id(self.id)

    @property
    def is_over(self) -> bool:
        return self.state in TERMINAL

    @property
    def deadline_ms(self) -> int | None:
        """When a task child is over time; a session child lives until it is cancelled."""
        timeout_ms = self.limits.get("timeoutMs")
        if self.lifetime == "session" or self.admitted_ms is None or not timeout_ms:
            return None
        return self.admitted_ms + timeout_ms


def child_session_id(delegation: str) -> str:
    """Return the session a delegation's child writes (S23.2)."""
    return f"{delegation}-session"


def opened(
    tenant: str,
    session: str,
    entry_id: str,
    event: DelegationRequested,
    at_ms: int,
    *,
    has_owner: bool = False,
) -> Handle | Ignored:
    """Return the delegation a request opens under the parent ``tenant``/``session``."""
    expected = delegation_id(tenant, session, event.request_entry_id)
    if event.delegation_id != expected or event.request_entry_id != entry_id:
        return "illegal"
    n_bytes = event.input_bytes
    return Handle(
        id=event.delegation_id,
        request_id=entry_id,
        child_id=event.child_id,
        state="requested",
        input=event.input,
        input_bytes=len(event.input.encode()) if n_bytes is None else n_bytes,
        mode=event.mode,
        lifetime=event.lifetime,
        policy=event.policy,
        limits=dict(event.limits),
        budget_share=event.budget_share,
        on_lost=event.on_lost,
        thread_id=event.thread_id,
        has_owner=has_owner,
        requested_ms=at_ms,
    )


def step(handle: Handle, event: SupervisionEvent, at_ms: int) -> Handle | Ignored:
    """Return the delegation after ``event``, or why the event changes nothing."""
    match event:
        case ChildEvent() | ChildMilestone() | ChildEventsCapped():
            return _told(handle, event, at_ms)
        case ChildEventsCoalesced() | ChildEventsClosed():
            return _told(handle, event, at_ms)
        case DelegationRequested():
            return "repeated"
    if handle.is_over:
        return "late"
    match event:
        case DelegationAdmitted():
            return _admitted(handle, event, at_ms)
        case DelegationRejected(reason=reason):
            if handle.state != "requested":
                return "illegal"
            return _ended(handle, "rejected", at_ms, reason=reason)
        case DelegationStarted():
            return _claimed(handle, event, at_ms)
        case DelegationHeartbeat():
            return _seen(handle, event, at_ms)
        case ChildFailed():
            return _failed(handle, event, at_ms)
        case DelegationFinished():
            if handle.state != "started" or handle.failure is not None:
                return "illegal"
            if not _speaks(handle, event):
                return "stale"
            return _ended(
                handle,
                "finished",
                at_ms,
                status=event.status,
                output=event.output,
                total_tokens=event.total_tokens,
            )
        case DelegationError(error=reason):
            if handle.state not in LIVE:
                return "illegal"
            if not _speaks(handle, event):
                return "stale"
            return _ended(handle, "failed", at_ms, reason=reason)
        case DelegationCancelled(reason=reason):
            return _ended(handle, "cancelled", at_ms, reason=reason)
        case _:
            return "illegal"


def _admitted(handle: Handle, event: DelegationAdmitted, at_ms: int) -> Handle | Ignored:
    if handle.state != "requested":
        return "repeated"
    return msgspec.structs.replace(
        handle,
        state="admitted",
        admitted_ms=at_ms,
        input=handle.input if event.input is None else event.input,
        lifetime=event.lifetime,
        policy=event.policy,
        limits=dict(event.limits),
        permissions=event.permissions,
        depth=event.depth,
        thread_id=event.thread_id,
    )


def _claimed(handle: Handle, event: DelegationStarted, at_ms: int) -> Handle | Ignored:
    if handle.state not in LIVE or handle.failure is not None:
        return "illegal"
    held = handle.lease
    if held is None:
        if event.epoch != 1:
            return "stale"
    elif event.epoch != held.epoch + 1:
        return "stale"
    elif handle.on_lost != "takeover" or at_ms <= held.expires_ms:
        return "illegal"
    lease = Lease(
        epoch=event.epoch,
        holder=event.holder,
        lease_ms=min(max(event.lease_ms or DEFAULT_LEASE_MS, MIN_LEASE_MS), MAX_LEASE_MS),
        seen_ms=at_ms,
    )
    return msgspec.structs.replace(handle, state="started", started_ms=at_ms, lease=lease)


def _seen(handle: Handle, event: DelegationHeartbeat, at_ms: int) -> Handle | Ignored:
    if handle.lease is None:
        return "illegal"
    if event.epoch != handle.lease.epoch:
        return "stale"
    lease = msgspec.structs.replace(handle.lease, seen_ms=max(at_ms, handle.lease.seen_ms))
    return msgspec.structs.replace(handle, lease=lease)


def _failed(handle: Handle, event: ChildFailed, at_ms: int) -> Handle | Ignored:
    if handle.state not in LIVE:
        return "illegal"
    if not _speaks(handle, event):
        return "stale"
    if handle.failure is not None:
        return "repeated"
    if event.reason == LEASE_LOST and not is_lost(handle, at_ms):
        return "stale"
    return msgspec.structs.replace(
        handle, failure=event.reason, failed_ms=at_ms, usage=event.usage, status=event.status
    )


def is_lost(handle: Handle, now_ms: int) -> bool:
    """Say whether whoever runs the child has lost its lease by ``now_ms``."""
    return handle.lease is not None and now_ms > handle.lease.expires_ms


def _speaks(handle: Handle, event: ChildFailed | DelegationFinished | DelegationError) -> bool:
    """Say whether an event is that of the lease, and of its holder if it names one.

    Epoch 0 is the host's.
    """
    if not event.epoch:
        return True
    lease = handle.lease
    return lease is not None and event.epoch == lease.epoch and event.holder in ("", lease.holder)


def _ended(
    handle: Handle,
    state: State,
    at_ms: int,
    *,
    reason: str | None = None,
    status: str | None = None,
    output: str | None = None,
    total_tokens: int = 0,
) -> Handle:
    return msgspec.structs.replace(
        handle,
        state=state,
        ended_ms=at_ms,
        input="",
        reason=reason,
        status=status or handle.status,
        output=output,
        total_tokens=total_tokens,
    )


Heard: TypeAlias = (
    ChildEvent | ChildMilestone | ChildEventsCapped | ChildEventsCoalesced | ChildEventsClosed
)
"""News of the child."""


def is_granted(policy: ReportPolicy, event: Heard) -> bool:
    """Say whether a child may be that loud: what its first entry names is no more than a wish."""
    heard: Report = "stream" if isinstance(event, ChildEvent) else "milestones"
    return LOUDNESS.index(heard) <= LOUDNESS.index(policy.report)


def _told(handle: Handle, event: Heard, at_ms: int) -> Handle | Ignored:
    if handle.lease is None or not is_granted(handle.policy, event):
        return "illegal"
    news = handle.news
    ordinal = news.ordinal if event.child_ordinal is None else event.child_ordinal
    if (ordinal, event.n) <= (news.ordinal, news.n):
        return "repeated"
    told = msgspec.structs.replace(news, ordinal=ordinal, n=event.n, at_ms=at_ms)
    match event:
        case ChildEventsClosed(offered=offered, capped=capped):
            told = msgspec.structs.replace(told, offered=offered, n_after_cap=capped)
        case _ if news.is_capped:
            return "late"
        case ChildEvent() | ChildMilestone() if news.n_events >= _max_events(handle):
            return "illegal"
        case ChildEvent():
            told = msgspec.structs.replace(told, n_events=news.n_events + 1)
        case ChildMilestone(turn=turn, child_event=milestone):
            told = msgspec.structs.replace(
                told, n_events=news.n_events + 1, turn=turn, milestone=milestone
            )
        case ChildEventsCapped():
            told = msgspec.structs.replace(told, is_capped=True)
        case ChildEventsCoalesced(dropped=dropped):
            told = msgspec.structs.replace(told, n_coalesced=news.n_coalesced + dropped)
    return msgspec.structs.replace(handle, news=told)


def _max_events(handle: Handle) -> int:
    return handle.limits.get("childEvents", HARD["childEvents"])
