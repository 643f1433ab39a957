"""One partition during one assignment: its fold, its effects under way, its outbox.

It ends with ``close``: after that nothing of it is written, whatever still runs.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

import msgspec
import structlog

from ombus_streams.engine.kafka.roles import Role
from ombus_streams.runtime import emissions
from ombus_streams.runtime.ahead import AheadPolicy
from ombus_streams.runtime.errors import Closed, RetryableError
from ombus_streams.runtime.ports import Draft, LogRecord, Position, StateStore
from ombus_streams.runtime.processor import MAX_CACHED_SESSIONS, Batch, Processor
from ombus_streams.runtime.scheduler import Scheduler

MAX_BATCH: Final = 1_000
"""Records folded in one piece: the event loop stands still for as long."""
MAX_BATCH_BEHIND: Final = 5_000
"""The same of a partition that has not caught up, which answers nobody: each session's heads are
written once a batch, so fewer batches cost less."""
OUTBOX_BATCH: Final = 500
FIRST_DELAY: Final = timedelta(milliseconds=500)
MAX_DELAY: Final = timedelta(seconds=30)

_log = structlog.get_logger("ombus.worker")


class FoldOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How much is folded and kept at once."""

    max_batch: int = MAX_BATCH
    max_batch_behind: int = MAX_BATCH_BEHIND
    """Until the partition has caught up."""
    max_sessions: int = MAX_CACHED_SESSIONS
    """Sessions kept decoded, a partition."""
    ahead: AheadPolicy | None = None
    """Whether observer runs are prepared before they are owed."""


class Accounts(Protocol):
    """Who keeps what runs cost, in the store of their partition."""

    def adopt(self, partition: int, store: StateStore) -> None: ...

    def release(self, partition: int) -> None: ...


class Append(Protocol):
    """Appends from the event loop without stopping it."""

    async def __call__(
        self, to: emissions.Destination, drafts: Sequence[Draft]
    ) -> Sequence[Position]: ...


class Partition:
    """A processor at work. ``end`` is where the log ended when the partition was opened."""

    def __init__(
        self, processor: Processor, role: Role, end: int, ahead: AheadPolicy | None = None
    ) -> None:
        self.processor, self.end = processor, end
        self.number = processor.partition
        self.scheduler: Scheduler | None = None
        """Nothing is decided before the fold has caught up: old duties may be done already."""
        self.n_sent = 0
        """Emissions that were acknowledged."""
        self._role, self._ahead = role, ahead
        self._effects: set[asyncio.Task[None]] = set()
        self._sender: asyncio.Task[None] | None = None
        self._unsent = asyncio.Event()
        self._closed = False

    @property
    def next_offset(self) -> int:
        return self.processor.next_offset

    @property
    def is_ready(self) -> bool:
        return self.scheduler is not None

    @property
    def n_running(self) -> int:
        """How many effects are being performed."""
        return len(self._effects)

    def unfolded(self, records: Sequence[LogRecord]) -> Sequence[LogRecord]:
        """Return the records that are not folded yet; a batch may begin before the position."""
        start = 0
        while start < len(records) and records[start].offset < self.next_offset:
            start += 1
        return records[start:] if start else records

    def fold(self, records: Sequence[LogRecord]) -> Batch:
        """Fold and commit records that begin at ``next_offset``.

        Raises: as ``Processor.fold``.
        """
        batch = self.processor.fold(records)
        if self.scheduler is not None:
            self.scheduler.touch(batch.sessions)
        if batch.n_emitted:
            self._unsent.set()
        return batch

    def becomes_ready(self) -> bool:
        """Say whether the partition has become ready now: the fold has come to ``end``."""
        if self.is_ready or self._closed or self.next_offset < self.end:
            return False
        self.scheduler = Scheduler(self.processor, self._role.workers, self._ahead)
        return True

    def start(self, effect: Coroutine[Any, Any, None]) -> None:
        """Perform an effect until it ends or the partition is closed."""
        task = asyncio.create_task(effect)
        self._effects.add(task)
        task.add_done_callback(self._effects.discard)

    def start_sending(self, append: Append) -> None:
        """Send what the outbox holds, in order, for as long as the partition is open."""
        self._sender = asyncio.create_task(self._send(append))

    async def close(self) -> None:
        """Close the handle, cancel what runs, and wait for its end. Idempotent."""
        self._closed = True
        self.processor.store.close()
        tasks = [*self._effects]
        if self._sender is not None:
            tasks.append(self._sender)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _send(self, append: Append) -> None:
        self._unsent.set()
        delay = FIRST_DELAY
        while True:
            await self._unsent.wait()
            self._unsent.clear()
            try:
                while emitted := self.processor.store.outbox(OUTBOX_BATCH):
                    for to, drafts, last in emissions.batches(emitted):
                        await append(to, drafts)
                        self.processor.store.sent(last)
                        self.n_sent += len(drafts)
                    delay = FIRST_DELAY
            except Closed:
                return
            except RetryableError as error:
                _log.warning(
                    "outbox.delayed",
                    partition=self.number,
                    retry_in_ms=delay // timedelta(milliseconds=1),
                    failure=type(error).__name__,
                )
                await asyncio.sleep(delay.total_seconds())
                delay = min(2 * delay, MAX_DELAY)
                self._unsent.set()
