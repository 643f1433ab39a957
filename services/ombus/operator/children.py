"""The children's side of a data folder: what is delegated, claimed, published and ended there.

Works beside whoever folds the folder: a claim, a heartbeat and an end are appended, and read back
from the log (``runtime.leases``).
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from typing import Final, TypeVar

import msgspec
from ombus_schemas.admission import Policy, admit
from ombus_schemas.codec import encode, key_of
from ombus_schemas.concealment import conceal_text
from ombus_schemas.entries import Entry
from ombus_schemas.errors import Rejected
from ombus_schemas.headers import headers_of
from ombus_schemas.ids import session_key
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.redact import cut_utf8
from ombus_streams.runtime.errors import RetryableError
from ombus_streams.runtime.leases import Failure, Lease
from ombus_streams.runtime.ports import Clock, Draft, EntryLog
from ombus_streams.runtime.records import iso
from ombus_streams.supervision.handle import Handle
from ombus_streams.supervision.parent import claimable, handle_of

from ombus.client.child import ChildFailure, Done, Offer, Standing
from ombus.memory_settings import opening
from ombus.operator.errors import NoDelegation
from ombus.settings import ProcessSettings
from ombus.wiring import SystemClock, open_log
from ombus.wiring_supervision import Delegated, open_supervision

MAX_OUTPUT_BYTES: Final = 16_384
MAX_ERROR_BYTES: Final = 1_024
WAIT: Final = timedelta(milliseconds=250)
PAUSE_S: Final = 0.2

Result = TypeVar("Result")


class Children:
    """See the module. Every call blocks for as long as the disk does."""

    def __init__(self, settings: ProcessSettings, supervision: Delegated, clock: Clock) -> None:
        self._supervision, self._clock = supervision, clock
        self._secrets, self._memory = settings.secrets, settings.memory_said
        self._policy = Policy(secrets=settings.secrets, patterns=settings.redact_patterns)

    def offers(
        self, tenant: str, child_id: str, partitions: Iterable[int] | None = None
    ) -> list[Offer]:
        """Return what this child id can claim now, oldest first; of some partitions or all."""
        found: list[tuple[int, Offer]] = []
        for partition in partitions or range(self._supervision.log.partitions):
            with self._supervision.state.snapshot(partition) as rows:
                row = rows.position()
                offset = row.next_offset if row else 0
                live = list(claimable(rows, child_id))
            for key, handle in live:
                lease = self._opened(key, handle, offset, "", 0)
                if lease.tenant == tenant and lease.is_claimable:
                    offer = _offer(lease.parent, lease.handle)
                    found.append((lease.handle.requested_ms, offer))
        return [offer for _, offer in sorted(found, key=lambda each: each[0])]

    def lease(
        self, tenant: str, parent: str, delegation_id: str, holder: str, epoch: int = 0
    ) -> Lease:
        """Return the delegation as its log says now, in the eyes of ``holder``.

        Raises:
            NoDelegation: there is none.
        """
        key = session_key(tenant, parent)
        with self._supervision.rows(key) as rows:
            row = rows.position()
            handle = handle_of(rows, key, delegation_id)
        if handle is None:
            raise NoDelegation(delegation_id)
        return self._opened(key, handle, row.next_offset if row else 0, holder, epoch)

    def admitted(self, tenant: str, session: str, entries: Sequence[JsonObject]) -> list[Draft]:
        """Return entries that have an id and a parent as they may be appended.

        Behind the first one of the session stands what the settings files say about memory.

        Raises:
            Rejected: one is refused.
        """
        found: list[Entry] = []
        for said in entries:
            filled: JsonObject = {"timestamp": iso(self._clock.now())}
            named: JsonObject = {"sessionId": session, "tenantId": tenant}
            entry = admit({**filled, **said, **named}, self._policy)
            found.append(entry)
            settings = opening(self._memory, {}) if entry.parent_id is None else None
            if settings is not None:
                control: JsonObject = {
                    "id": f"settings.changed:{entry.id}",
                    "parentId": entry.id,
                    "kind": "custom",
                    "data": {"type": "om.settings.changed", "settings": settings},
                    "side": True,
                }
                owner = msgspec.structs.replace(self._policy, role="owner")
                found.append(admit({**filled, **control, **named}, owner))
        return [
            Draft(key=key_of(entry), value=encode(entry), headers=headers_of(entry))
            for entry in found
        ]

    def finish(self, lease: Lease, done: Done) -> Standing:
        """Say that the child is done; return how the delegation ended."""
        output = None if done.output is None else self._shown(done.output, MAX_OUTPUT_BYTES)
        lease.finish(self._shown(done.status, MAX_ERROR_BYTES), output, done.total_tokens)
        return standing_of(lease)

    def fail(self, lease: Lease, failure: ChildFailure) -> Standing:
        """Say that the child failed; return how the delegation ended."""
        lease.fail(
            Failure(
                reason=self._shown(failure.reason, MAX_ERROR_BYTES),
                error=self._shown(failure.error, MAX_ERROR_BYTES),
                limit=failure.limit,
                stop_reason=failure.stop_reason,
                total_tokens=failure.total_tokens,
            )
        )
        return standing_of(lease)

    def wait(self) -> None:
        """Return once something was appended to the delegations, or after a little while."""
        log = self._supervision.log
        self._supervision.wait({each: log.end(each) for each in range(log.partitions)}, WAIT)

    def _opened(self, key: bytes, handle: Handle, offset: int, holder: str, epoch: int) -> Lease:
        log = self._supervision.log
        lease = Lease(log, self._clock, key, handle, offset, holder, epoch)
        lease.advance()
        return lease

    def _shown(self, text: str, max_bytes: int) -> str:
        return cut_utf8(conceal_text(text, self._secrets), max_bytes)


def standing_of(lease: Lease) -> Standing:
    """Return where a holder stands; how it ended under somebody else's lease is not its end."""
    handle = lease.handle
    held = handle.lease
    if held is None or (held.epoch, held.holder) != (lease.epoch, lease.holder):
        return "cancelled" if handle.state == "cancelled" else "lost"
    match handle.state:
        case "finished" | "failed" | "cancelled" | "rejected":
            return handle.state
        case _:
            return "held" if lease.is_held else "lost"


def _offer(parent: str, handle: Handle) -> Offer:
    held = handle.lease
    return Offer(
        parent=parent,
        delegation_id=handle.id,
        child_id=handle.child_id,
        child_session_id=handle.child_session_id,
        input=handle.input,
        epoch=1 if held is None else held.epoch + 1,
        depth=handle.depth,
        lifetime=handle.lifetime,
        policy=handle.policy,
        limits=handle.limits,
        permissions=handle.permissions,
    )


class DirectBus:
    """A ``ChildBus`` on the logs themselves; its calls run in threads.

    ``partitions``: of which parents' delegations this process may claim; ``None``: of all.
    """

    pause = PAUSE_S
    unreachable: tuple[type[Exception], ...] = (RetryableError, OSError)

    def __init__(
        self,
        children: Children,
        entries: EntryLog,
        tenant: str,
        partitions: Callable[[], frozenset[int]] | None = None,
    ) -> None:
        self.children, self.entries, self.tenant = children, entries, tenant
        self._partitions = partitions
        self._leases: dict[str, Lease] = {}
        self._lock = threading.Lock()
        """A call that was given up runs on in its thread."""

    async def offers(self, child_id: str) -> Sequence[Offer]:
        mine = None if self._partitions is None else self._partitions()
        found: list[Offer] = []
        if mine is None or mine:
            found = await asyncio.to_thread(self.children.offers, self.tenant, child_id, mine)
        if not found:
            await asyncio.to_thread(self.children.wait)
        return found

    async def claim(self, offer: Offer, holder: str, lease_ms: int) -> bool:
        def claim() -> bool:
            lease = self.children.lease(self.tenant, offer.parent, offer.delegation_id, holder)
            self._leases = {id: each for id, each in self._leases.items() if each.is_held}
            self._leases[offer.delegation_id] = lease
            return lease.claim(offer.epoch, lease_ms)

        return await self._locked(claim)

    async def beat(self, offer: Offer, holder: str, n: int) -> Standing:
        lease = self._leases[offer.delegation_id]

        def beat() -> Standing:
            lease.beat(n)
            return standing_of(lease)

        return await self._locked(beat)

    async def standing(self, offer: Offer, holder: str) -> Standing:
        lease = self._leases[offer.delegation_id]

        def look() -> Standing:
            lease.advance()
            return standing_of(lease)

        return await self._locked(look)

    async def publish(self, offer: Offer, entries: Sequence[JsonObject]) -> None:
        def publish() -> None:
            session = offer.child_session_id
            self.entries.append(self.children.admitted(self.tenant, session, entries))

        try:
            await asyncio.to_thread(publish)
        except Rejected as error:
            raise ChildFailure(str(error), reason="rejected") from error

    async def finish(self, offer: Offer, holder: str, done: Done) -> Standing:
        lease = self._leases[offer.delegation_id]
        return await self._locked(lambda: self.children.finish(lease, done))

    async def fail(self, offer: Offer, holder: str, failure: ChildFailure) -> Standing:
        lease = self._leases[offer.delegation_id]
        return await self._locked(lambda: self.children.fail(lease, failure))

    async def _locked(self, call: Callable[[], Result]) -> Result:
        def locked() -> Result:
            with self._lock:
                return call()

        return await asyncio.to_thread(locked)


@asynccontextmanager
async def folder_bus(
    settings: ProcessSettings, clock: Clock | None = None
) -> AsyncIterator[DirectBus]:
    """Lend a bus on the data folder; delegations are folded here while nobody else does.

    Raises:
        StorageError, TerminalError: see their way out.
    """
    clock = clock or SystemClock()
    stop = asyncio.Event()
    with ExitStack() as opened:
        entries = open_log(settings.folder, settings.partitions)
        opened.callback(entries.close)
        supervision = open_supervision(settings, clock)
        opened.callback(supervision.close)
        supervising = asyncio.create_task(supervision.run(stop))
        try:
            yield DirectBus(Children(settings, supervision, clock), entries, settings.tenant)
        finally:
            stop.set()
            await supervising
