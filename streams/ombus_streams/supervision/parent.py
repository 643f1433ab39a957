"""A parent session as its events tell it: who it works for, whether it lives, what it delegated.

``fold`` brings the rows of one parent up to one more entry of the topic. It is total, judges
nothing by settings of a process, and counts what it passes over.
"""

from collections.abc import Iterator
from typing import Final, Protocol

import msgspec
from ombus_schemas.codec import key_of
from ombus_schemas.entries import Entry
from ombus_schemas.ids import is_child_id
from ombus_schemas.supervision import (
    DelegationAdmitted,
    DelegationRequested,
    LineageClosed,
    LineageOpened,
    ParentAlive,
    ParentGone,
    SupervisionEvent,
    supervision_event_of,
)

from ombus_streams.memory.rows import Overlay
from ombus_streams.supervision import keys
from ombus_streams.supervision.events import UNSTORABLE
from ombus_streams.supervision.handle import (
    LIVE,
    MAX_LEASE_MS,
    MIN_LEASE_MS,
    Handle,
    Ignored,
    child_session_id,
    opened,
    step,
)

FOLD_VERSION: Final = 2
MAX_OPEN: Final = 1_024
"""Delegations of a parent that are not over; one more is rejected by the fold itself."""
MAX_CHILDREN: Final = 1_024
"""Child ids of which a parent keeps a tally; one more is rejected as well."""


class Rows(Protocol):
    """An ordered byte map that can be written."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(
        self, prefix: bytes, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]: ...

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete(self, key: bytes) -> None: ...


class ReadRows(Protocol):
    """An ordered byte map."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(
        self, prefix: bytes, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]: ...


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """Whom this session works for, and what it may pass on."""

    parent_session_id: str
    delegation_id: str
    child_id: str
    depth: int
    path: tuple[str, ...]
    limits: dict[str, int]
    closed: str | None = None
    """Why its delegation is over."""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one child id."""

    child_id: str
    attempts: int = 0
    retries: int = 0
    failures: int = 0
    n_live: int = 0
    outcome: str | None = None
    """Of the delegation that ended last."""
    failed_id: str | None = None
    """The delegation that failed last."""
    failed_ms: int = 0


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """See the module."""

    lineage: Lineage | None = None
    alive_ms: int | None = None
    """Last sign of life; ``None``: it never said anything and has no lease to lose."""
    lease_ms: int = 0
    gone: str | None = None
    """Why it is gone; a new sign of life brings it back."""
    n_delegations: int = 0
    n_live: int = 0
    """Slots that are taken."""
    open_ids: tuple[str, ...] = ()
    """Delegations that are not over, in the order of their requests."""
    tallies: tuple[Tally, ...] = ()
    """In the order in which children were first admitted."""
    ignored: dict[str, int] = msgspec.field(default_factory=dict)
    """Events that changed nothing, by why."""

    @property
    def end(self) -> str | None:
        """Why its task children have to end, or ``None``."""
        if self.gone is not None:
            return self.gone
        closed = self.lineage.closed if self.lineage is not None else None
        return "parent_ended" if closed is not None else None


def fold(rows: Rows, entry: Entry, at_ms: int) -> Ignored | None:
    """Bring ``rows`` up to ``entry``; return why it changed nothing, or ``None``."""
    key = key_of(entry)
    parent = parent_of(rows, key)
    changed = Overlay(rows)
    try:
        why = _fold(changed, key, parent, entry, at_ms)
    except UNSTORABLE:
        changed.clear()
        why = "illegal"
    for row, value in changed.changes.items():
        if value is None:
            rows.delete(row)
        else:
            rows.put(row, value)
    if why is not None:
        counted = {**parent.ignored, why: parent.ignored.get(why, 0) + 1}
        _put(rows, keys.parent(key), msgspec.structs.replace(parent, ignored=counted))
    return why


def parent_of(rows: ReadRows, key: bytes) -> Parent:
    """Return a parent as it stands; one that was never heard of is new."""
    row = rows.get(keys.parent(key))
    return Parent() if row is None else _decode_parent(row)


def handle_of(rows: ReadRows, key: bytes, delegation: str) -> Handle | None:
    """Return one delegation of a parent."""
    row = rows.get(keys.handle(key, delegation))
    return None if row is None else _decode_handle(row)


def handles_of(rows: ReadRows, key: bytes) -> Iterator[Handle]:
    """Yield a parent's delegations in the order of their requests."""
    for _, delegation in rows.scan(keys.orders(key)):
        handle = handle_of(rows, key, delegation.decode())
        assert handle is not None
        yield handle


def open_parents(rows: ReadRows) -> list[bytes]:
    """Return the keys of the parents with delegations that are not over."""
    prefix = keys.open_parents()
    return [key[len(prefix) :] for key, _ in rows.scan(prefix)]


def claimable(rows: ReadRows, child_id: str) -> Iterator[tuple[bytes, Handle]]:
    """Yield parent key and delegation of the live delegations to one child id."""
    for key, _ in rows.scan(keys.claimables(child_id)):
        session, delegation = keys.split_claimable(key)
        handle = handle_of(rows, session, delegation)
        assert handle is not None
        yield session, handle


_encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode
_decode_parent: Final = msgspec.msgpack.Decoder(Parent).decode
_decode_handle: Final = msgspec.msgpack.Decoder(Handle).decode


def _put(rows: Rows, key: bytes, value: msgspec.Struct) -> None:
    rows.put(key, _encode(value))


def _fold(rows: Rows, key: bytes, parent: Parent, entry: Entry, at_ms: int) -> Ignored | None:
    event = supervision_event_of(entry)
    if event is None or (event.child_id and not is_child_id(event.child_id)):
        return "illegal"
    done = _parent_after(rows, key, parent, entry, event, at_ms)
    if not isinstance(done, Parent):
        return done
    _put(rows, keys.parent(key), done)
    return None


def _parent_after(
    rows: Rows, key: bytes, parent: Parent, entry: Entry, event: SupervisionEvent, at_ms: int
) -> Parent | Ignored:
    match event:
        case LineageOpened() | LineageClosed():
            return _related(parent, entry, event)
        case ParentAlive(lease_ms=lease_ms):
            lease_ms = min(max(lease_ms, MIN_LEASE_MS), MAX_LEASE_MS)
            return msgspec.structs.replace(parent, alive_ms=at_ms, lease_ms=lease_ms, gone=None)
        case ParentGone(reason=reason, after_ms=after_ms):
            if after_ms is not None and after_ms != parent.alive_ms:
                return "stale"
            if parent.gone is not None:
                return "repeated"
            return msgspec.structs.replace(parent, gone=reason or "parent_gone")
    before = handle_of(rows, key, event.delegation_id)
    if before is None:
        if not isinstance(event, DelegationRequested):
            return "unknown"
        owner = entry.ownership
        after = opened(
            entry.tenant_id,
            entry.session_id,
            entry.id,
            event,
            at_ms,
            has_owner=owner is not None and bool(owner.account_id or owner.user_id),
        )
        if isinstance(after, Handle):
            parent, after = _taken_in(rows, key, parent, after)
    else:
        if before.child_id != event.child_id or _is_over_full(parent, event):
            return "illegal"
        after = step(before, event, at_ms)
    if not isinstance(after, Handle):
        return after
    _put(rows, keys.handle(key, after.id), after)
    _mark(rows, key, after)
    return _counted(rows, key, parent, before, after)


def _is_over_full(parent: Parent, event: SupervisionEvent) -> bool:
    """Say whether an admission is one too many: two supervisors may have filled the last slot."""
    if not isinstance(event, DelegationAdmitted):
        return False
    return parent.n_live >= event.limits.get("activeChildren", parent.n_live + 1)


def _related(
    parent: Parent, entry: Entry, event: LineageOpened | LineageClosed
) -> Parent | Ignored:
    lineage = parent.lineage
    if isinstance(event, LineageOpened):
        if lineage is not None:
            return "repeated"
        # Nobody opens a lineage for a session that is not that delegation's child.
        if entry.session_id != child_session_id(event.delegation_id):
            return "illegal"
        lineage = Lineage(
            parent_session_id=event.parent_session_id,
            delegation_id=event.delegation_id,
            child_id=event.child_id,
            depth=event.depth,
            path=event.path,
            limits=dict(event.limits),
        )
        return msgspec.structs.replace(parent, lineage=lineage)
    if lineage is None or lineage.delegation_id != event.delegation_id:
        return "unknown"
    if lineage.closed is not None:
        return "repeated"
    closed = msgspec.structs.replace(lineage, closed=event.reason)
    return msgspec.structs.replace(parent, lineage=closed)


def _taken_in(rows: Rows, key: bytes, parent: Parent, handle: Handle) -> tuple[Parent, Handle]:
    rows.put(keys.order(key, parent.n_delegations), handle.id.encode())
    known = {tally.child_id for tally in parent.tallies}
    is_full = len(known) >= MAX_CHILDREN and handle.child_id not in known
    if is_full or len(parent.open_ids) >= MAX_OPEN:
        handle = msgspec.structs.replace(
            handle, state="rejected", reason="too_many", ended_ms=handle.requested_ms, input=""
        )
    return msgspec.structs.replace(parent, n_delegations=parent.n_delegations + 1), handle


def _mark(rows: Rows, key: bytes, handle: Handle) -> None:
    mark = keys.claimable(handle.child_id, key, handle.id)
    if handle.state in LIVE:
        rows.put(mark, b"")
    elif rows.get(mark) is not None:
        rows.delete(mark)


def _counted(
    rows: Rows, key: bytes, parent: Parent, before: Handle | None, after: Handle
) -> Parent:
    """Return the parent with the open delegations and the tally of the child brought up."""
    was_open = before is not None and not before.is_over
    open_ids = parent.open_ids
    if after.is_over and was_open:
        open_ids = tuple(each for each in open_ids if each != after.id)
    elif not after.is_over and not was_open:
        open_ids = (*open_ids, after.id)
    if bool(open_ids) != bool(parent.open_ids):
        mark = keys.open_parent(key)
        if open_ids:
            rows.put(mark, b"")
        else:
            rows.delete(mark)
    was_live = before is not None and before.state in LIVE
    n_live = parent.n_live + (after.state in LIVE) - was_live
    parent = msgspec.structs.replace(parent, open_ids=open_ids, n_live=n_live)
    found = {tally.child_id: tally for tally in parent.tallies}
    tally = found.get(after.child_id)
    changed = _tallied(tally or Tally(child_id=after.child_id), before, after)
    if changed is None:
        return parent
    found[after.child_id] = changed
    return msgspec.structs.replace(parent, tallies=tuple(found.values()))


_AGAIN: Final = frozenset({"failed", "cancelled"})


def _tallied(tally: Tally, before: Handle | None, after: Handle) -> Tally | None:
    """Return the tally after one step of a delegation, ``None`` if it says nothing new (S23.2)."""
    was_started = before is not None and before.lease is not None
    is_claim = after.lease is not None and (
        before is None or before.lease is None or before.lease.epoch != after.lease.epoch
    )
    has_ended = after.is_over and (before is None or not before.is_over)
    is_denied = has_ended and after.state == "rejected" and after.reason == HOOK
    n_live = tally.n_live
    if is_claim and not was_started:
        n_live += 1
    if has_ended and was_started:
        n_live -= 1
    is_admitted = after.state == "admitted" and before is not None and before.state == "requested"
    is_end = has_ended and (was_started or after.state == "failed")
    if not (is_admitted or is_claim or is_denied or is_end):
        return None
    is_attempt = is_claim or is_denied
    is_retry = is_attempt and (was_started or tally.outcome in _AGAIN)
    failed = has_ended and after.state == "failed"
    return msgspec.structs.replace(
        tally,
        attempts=tally.attempts + is_attempt,
        retries=tally.retries + is_retry,
        failures=tally.failures + failed,
        n_live=n_live,
        outcome=_outcome(after) if has_ended else tally.outcome,
        failed_id=after.id if failed else tally.failed_id,
        failed_ms=(after.failed_ms or after.ended_ms or 0) if failed else tally.failed_ms,
    )


HOOK: Final = "hook"
"""Reason of a rejection by the host's own function; the only one that counts as an attempt."""


def _outcome(handle: Handle) -> str:
    return handle.status or "completed" if handle.state == "finished" else handle.state
