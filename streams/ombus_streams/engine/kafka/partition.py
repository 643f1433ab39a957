"""One partition during one assignment: its fold, its effects under way, its outbox.

It ends with ``close``: after that nothing of it is written, whatever still runs.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

import structlog

from ombus_streams.engine.kafka.roles import Role
from ombus_streams.runtime.dead_letters import draft_of
from ombus_streams.runtime.errors import Closed, RetryableError
from ombus_streams.runtime.ports import Draft, LogRecord, Position
from ombus_streams.runtime.processor import Batch, Processor
from ombus_streams.runtime.scheduler import Scheduler, Task

OUTBOX_BATCH: Final = 500
FIRST_DELAY: Final = timedelta(milliseconds=500)
MAX_DELAY: Final = timedelta(seconds=30)

_log = structlog.get_logger("ombus.worker")


class Append(Protocol):
    """Appends from the event loop without stopping it."""

    async def __call__(self, drafts: Sequence[Draft]) -> Sequence[Position]: ...


class Partition:
    """A processor at work. ``end`` is where the log ended when the partition was opened."""

    def __init__(self, processor: Processor, role: Role, end: int) -> None:
        self.processor, self.end = processor, end
        self.number = processor.partition
        self.scheduler: Scheduler | None = None
        """Nothing is decided before the fold has caught up: old duties may be done already."""
        self.is_read = False
        """The consumer stands at its position: before that, asking where it stands would wait."""
        self.n_sent = 0
        """Dead letters that were acknowledged."""
        self._role = role
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsent = asyncio.Event()
        self._closed = False

    @property
    def next_offset(self) -> int:
        return self.processor.next_offset

    @property
    def is_ready(self) -> bool:
        return self.scheduler is not None

    @property
    def n_under_way(self) -> int:
        return 0 if self.scheduler is None else self.scheduler.n_under_way

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
        if batch.n_dead_letters:
            self._unsent.set()
        return batch

    def catch_up_to(self, offset: int) -> bool:
        """Say whether the partition has become ready now: the log was read up to ``offset``."""
        if self.is_ready or self._closed or offset < self.end:
            return False
        self.scheduler = Scheduler(self.processor, self._role.workers)
        return True

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` until it ends or the partition is closed."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def send_outbox(self, append: Append) -> None:
        """Send what the outbox holds, in order, for as long as the partition is open."""
        self._unsent.set()
        delay = FIRST_DELAY
        while True:
            await self._unsent.wait()
            self._unsent.clear()
            try:
                while emitted := self.processor.store.outbox(OUTBOX_BATCH):
                    await append([draft_of(value) for _, value in emitted])
                    self.processor.store.sent(emitted[-1][0])
                    self.n_sent += len(emitted)
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

    async def close(self) -> None:
        """Close the handle, cancel what runs, and wait for its end. Idempotent."""
        self._closed = True
        self.processor.store.close()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def take_due(
    partitions: Iterable[Partition],
    now_ms: int,
    n_free: Callable[[], int],
    admits: Callable[[tuple[bytes, int, str]], bool],
) -> list[tuple[Partition, Task]]:
    """Return effects that are due in any partition, as many as there is room for."""
    found: list[tuple[Partition, Task]] = []
    for partition in partitions:
        room = n_free()
        if room <= 0:
            break
        if partition.scheduler is not None:
            tasks = partition.scheduler.due(now_ms, room, admits)
            found += ((partition, task) for task in tasks)
    return found
