"""The supervisor: answers requests, ends what is over time, lost or orphaned; effects in one place.

Everything is decided from rows (``supervision.decisions``). A parent that was acted upon is left
alone until the fold has passed what was appended, so nothing is decided twice by one supervisor;
two of them (an old owner beside a new one) append events of which the fold takes the first.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final
from urllib.parse import quote

import msgspec
import structlog
from ombus_schemas.codec import decode_record, encode, key_of
from ombus_schemas.entries import Entry
from ombus_schemas.errors import BadRecord
from ombus_schemas.headers import headers_of
from ombus_schemas.ids import session_key
from ombus_schemas.supervision import (
    DelegationAdmitted,
    DelegationRejected,
    DelegationRequested,
    LineageClosed,
    LineageOpened,
    SupervisionEvent,
    supervision_event_of,
)

from ombus_streams.runtime.delegation_fold import DelegationFold
from ombus_streams.runtime.errors import RetryableError
from ombus_streams.runtime.hooks import Hooks
from ombus_streams.runtime.ports import Clock, Draft, EntryLog, Position
from ombus_streams.runtime.records import iso
from ombus_streams.supervision.checks import (
    Denial,
    Grant,
    HostPolicy,
    approved,
    checked,
    slotted,
)
from ombus_streams.supervision.decisions import Answer, Tell, decide, next_due_ms
from ombus_streams.supervision.events import decided
from ombus_streams.supervision.handle import Handle, child_session_id, opened, step
from ombus_streams.supervision.parent import Lineage, Parent, handle_of, open_parents

SWEEP: Final = timedelta(seconds=1)
"""How often the parents of open delegations are looked after, whether anything was said or not."""
RETRY: Final = timedelta(seconds=1)
MAX_TOLD: Final = 100
MAX_ANSWERS: Final = 8
"""Requests of a parent that are answered in one go: its deadlines wait for the hook no longer."""
MAX_ACTING: Final = 32
"""Parents that are acted upon at once."""
KEPT_UNTOLD: Final = timedelta(minutes=5)
"""How long an end that another process is to tell the host is kept for whoever decides next: longer
than a group takes to find that one dead. So what was told shortly before a move is told again."""
_KEPT_UNTOLD_MS: Final = KEPT_UNTOLD // timedelta(milliseconds=1)
PATIENCE: Final = timedelta(milliseconds=200)
"""How long a step waits for what it began."""

_log = structlog.get_logger("ombus.supervisor")


class Supervisor:
    """See the module. ``folds`` are the partitions it owns; it appends to any."""

    def __init__(
        self,
        log: EntryLog,
        folds: Mapping[int, DelegationFold],
        host: HostPolicy,
        hooks: Hooks,
        clock: Clock,
        redact: Callable[[str], str],
        decides: Callable[[int], bool | None] = lambda partition: True,
    ) -> None:
        """``decides``: whether a partition it folds is its own to decide about, now.

        ``None``: nobody knows yet; nothing is decided, and what is to be told is kept.
        """
        self._decides = decides
        self._log, self.folds, self._clock = log, folds, clock
        self._host, self._hooks, self._redact = host, hooks, redact
        self._due: dict[bytes, int] = {}
        """When a parent is to be looked at again."""
        self._held: dict[bytes, Position] = {}
        """What must be folded before a parent is looked at again."""
        self._kept_until_ms: dict[int, int] = {}
        """When the oldest end of a partition is another's that it has told long ago."""
        self._acting: dict[bytes, asyncio.Task[int]] = {}
        self._swept_ms = 0

    @property
    def is_acting(self) -> bool:
        """Whether a step was not waited for to its end."""
        return bool(self._acting)

    def fold(self) -> int:
        """Fold a batch of every partition; return how many partitions had one."""
        return sum(map(self.fold_one, self.folds))

    def fold_one(self, partition: int) -> bool:
        """Fold a batch of one partition; say whether there was one."""
        touched = self.folds[partition].step()
        self._due.update(dict.fromkeys(touched - {b""}, 0))
        return bool(touched)

    async def act(self) -> int:
        """Do what is due now; return how many events were appended since the last call."""
        now_ms = int(self._clock.now().timestamp() * 1_000)
        if now_ms - self._swept_ms >= SWEEP / timedelta(milliseconds=1):
            self._swept_ms = now_ms
            for each in self.folds.values():
                self._due.update(dict.fromkeys(open_parents(each.rows), 0))
        for key in [key for key, due_ms in self._due.items() if due_ms <= now_ms]:
            fold = self.folds.get(self._log.partition_of(key))
            held = self._held.get(key)
            if fold is None or not self._decides(fold.partition):
                del self._due[key]
            elif key not in self._acting and (held is None or held.offset < fold.next_offset):
                if len(self._acting) >= MAX_ACTING:
                    break
                self._held.pop(key, None)
                self._acting[key] = asyncio.create_task(self._act_on(fold, key, now_ms))
        if self._acting:
            # A hook that hangs holds up its own parent and nobody else.
            await asyncio.wait(self._acting.values(), timeout=PATIENCE.total_seconds())
        n_events = 0
        for key, task in [*self._acting.items()]:
            if task.done():
                del self._acting[key]
                try:
                    n_events += task.result()
                except RetryableError as error:
                    # Perhaps written all the same: the fold will say, or it is decided again.
                    _log.warning("delegation.delayed", failure=type(error).__name__)
                    self._due[key] = now_ms + RETRY // timedelta(milliseconds=1)
        await self._tell_ended()
        return n_events

    async def close(self) -> None:
        """Give up what is under way; its events are decided again by whoever is next."""
        for task in self._acting.values():
            task.cancel()
        await asyncio.gather(*self._acting.values(), return_exceptions=True)
        self._acting.clear()

    async def _act_on(self, fold: DelegationFold, key: bytes, now_ms: int) -> int:
        parent, handles = fold.parent(key)
        if not parent.open_ids:
            self._due.pop(key, None)
            return 0
        drafts = await asyncio.to_thread(self._orphaned, key, parent)
        if not drafts:
            drafts = await self._decided(key, parent, handles, now_ms)
        if drafts:
            positions = await asyncio.to_thread(self._append, drafts)
            partition = self._log.partition_of(key)
            for position in positions:
                if position.partition == partition:
                    self._held[key] = position
            for entry in drafts:
                _log.info(
                    "delegation.decided",
                    event_type=entry.data_type,
                    parent=key.decode(),
                    entry_id=entry.id,
                )
        due_ms = next_due_ms(parent, handles)
        if due_ms is None:
            self._due.pop(key, None)
        else:
            self._due[key] = due_ms
        return len(drafts)

    async def _decided(
        self, key: bytes, parent: Parent, handles: Mapping[str, Handle], now_ms: int
    ) -> list[Entry]:
        tenant, _, session = key.decode().partition("/")
        stamp = iso(self._clock.now())
        n_live = parent.n_live
        decisions = decide(parent, handles, now_ms)
        drafts = [
            decided(tenant, session, event, stamp, *decision.parts)
            for decision in decisions
            if isinstance(decision, Tell)
            for event in decision.events
        ]
        asked = [each.delegation_id for each in decisions if isinstance(each, Answer)]
        for handle in (handles[each] for each in asked[:MAX_ANSWERS]):
            grant = await self._judged(key, parent.lineage, handle, n_live)
            if isinstance(grant, Denial):
                drafts.append(decided(tenant, session, _rejected(handle, grant), stamp))
            else:
                n_live += 1
                drafts += [
                    decided(tenant, under, event, stamp)
                    for under, event in _admitted(session, handle, grant)
                ]
        return drafts

    async def _judged(
        self, key: bytes, lineage: Lineage | None, handle: Handle, n_live: int
    ) -> Grant | Denial:
        grant = checked(handle, lineage, self._host)
        if isinstance(grant, Grant) and self._hooks.has_before:
            said = await self._hooks.before(key, handle, grant)
            grant = approved(handle, grant, said)
            # What the host's function says is on the log as any text is: without secrets.
            if isinstance(grant, Denial):
                return msgspec.structs.replace(grant, detail=self._redact(grant.detail))
            if grant.input is not None:
                grant = msgspec.structs.replace(grant, input=self._redact(grant.input))
        return grant if isinstance(grant, Denial) else slotted(grant, n_live)

    def _orphaned(self, key: bytes, parent: Parent) -> list[Entry]:
        """Return the end of a lineage whose delegation is over, if it is."""
        lineage = parent.lineage
        if lineage is None or lineage.closed is not None:
            return []
        tenant, _, session = key.decode().partition("/")
        above = self._handle(session_key(tenant, lineage.parent_session_id), lineage.delegation_id)
        if above is None or not above.is_over:
            return []
        closed = LineageClosed(
            child_id=lineage.child_id,
            delegation_id=lineage.delegation_id,
            depth=lineage.depth,
            reason=above.state,
        )
        return [decided(tenant, session, closed, iso(self._clock.now()))]

    def _handle(self, key: bytes, delegation: str) -> Handle | None:
        """Return a delegation of any parent: from the rows, else from the log itself."""
        fold = self.folds.get(self._log.partition_of(key))
        if fold is not None:
            return handle_of(fold.rows, key, delegation)
        return read_handle(self._log, key, delegation)

    def _append(self, entries: Sequence[Entry]) -> tuple[Position, ...]:
        return append(self._log, entries)

    async def _tell_ended(self) -> None:
        if not self._hooks.has_after:
            return
        now_ms = int(self._clock.now().timestamp() * 1_000)
        for fold in self.folds.values():
            is_mine = self._decides(fold.partition)
            is_kept = now_ms < self._kept_until_ms.get(fold.partition, 0)
            if is_mine is None or (is_kept and not is_mine):
                continue
            for number, ended in fold.untold(MAX_TOLD):
                handle = handle_of(fold.rows, ended.key, ended.delegation_id)
                if handle is not None and is_mine:
                    await self._hooks.after(ended.key, handle)
                elif handle is not None:
                    until_ms = (handle.ended_ms or 0) + _KEPT_UNTOLD_MS
                    if now_ms < until_ms:
                        # Whoever decides here may die before it has told it.
                        self._kept_until_ms[fold.partition] = until_ms
                        break
                fold.told(number)


def append(log: EntryLog, entries: Sequence[Entry]) -> tuple[Position, ...]:
    """Append events, durably, in order."""
    return log.append(
        [
            Draft(key=key_of(entry), value=encode(entry), headers=headers_of(entry))
            for entry in entries
        ]
    )


def read_handle(log: EntryLog, key: bytes, delegation: str) -> Handle | None:
    """Return a delegation folded from the log of its parent alone."""
    found: Handle | None = None
    tenant, _, session = key.decode().partition("/")
    for record in log.of_key(key):
        try:
            entry = decode_record(record.key, record.value)
        except BadRecord:
            continue
        event = supervision_event_of(entry)
        if event is None or event.delegation_id != delegation:
            continue
        if found is None and isinstance(event, DelegationRequested):
            after = opened(tenant, session, entry.id, event, record.at_ms)
        elif found is not None and found.child_id == event.child_id:
            after = step(found, event, record.at_ms)
        else:
            continue
        found = after if isinstance(after, Handle) else found
    return found


def _rejected(handle: Handle, denial: Denial) -> DelegationRejected:
    return DelegationRejected(
        child_id=handle.child_id,
        delegation_id=handle.id,
        reason=denial.reason,
        detail=denial.detail,
    )


def _admitted(session: str, handle: Handle, grant: Grant) -> list[tuple[str, SupervisionEvent]]:
    """Return what the child session inherits, before anybody may claim it, and the admission."""
    below = child_session_id(handle.id)
    resource_id = f"{session}/{handle.id}/{handle.child_id}"
    lineage = LineageOpened(
        child_id=handle.child_id,
        delegation_id=handle.id,
        depth=grant.depth,
        parent_session_id=session,
        path=grant.path,
        limits=grant.limits,
    )
    admitted = DelegationAdmitted(
        child_id=handle.child_id,
        delegation_id=handle.id,
        depth=grant.depth,
        resource_id=resource_id,
        thread_id=f"{resource_id}/{quote(handle.thread_id or 'default', safe=_UNQUOTED)}",
        child_session_id=below,
        lifetime=handle.lifetime,
        policy=grant.policy,
        limits=grant.limits,
        input=grant.input,
        permissions=grant.permissions,
    )
    return [(below, lineage), (session, admitted)]


_UNQUOTED: Final = "!'()*"
"""What JavaScript's ``encodeURIComponent`` leaves, beyond what Python does."""
