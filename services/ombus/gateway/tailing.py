"""Following a session: one reader of the log for all tails, and a bounded buffer for each.

What lies between a reader's last event and now comes from the log, at the reader's own pace. From
there on records are pushed to it; what its buffer has no room for is read again from the log, and
if that is too much it becomes one ``gap``, which names the positions that were left out. A closed
connection loses nothing: ids are positions.
"""

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Final

import msgspec
from ombus_streams.runtime.errors import RetryableError
from ombus_streams.runtime.ports import LogRecord

from ombus.gateway.hosting import Host
from ombus.gateway.limits import Limits
from ombus.operator.withholding import Withholding, withholding

PAGE: Final = 64
WAIT: Final = timedelta(milliseconds=250)


class Gap(msgspec.Struct, frozen=True):
    """Records of the session that one reader was too slow for."""

    first: int
    last: int
    n_records: int


class Subscription:
    """The buffer of one reader. ``start``: every record from this offset on is pushed."""

    def __init__(self, key: bytes, partition: int, start: int, limits: Limits) -> None:
        self.key, self.partition, self.start = key, partition, start
        self._max_records, self._max_bytes = limits.tail_buffer_records, limits.tail_buffer_bytes
        self._records: deque[LogRecord] = deque()
        self._n_bytes = 0
        self._gap: Gap | None = None
        self._grown = asyncio.Event()
        self.is_closed = False

    def push(self, record: LogRecord) -> None:
        size = len(record.value or b"")
        full = len(self._records) >= self._max_records or (
            bool(self._records) and self._n_bytes + size > self._max_bytes
        )
        if self._gap is not None or full:
            gap = self._gap or Gap(record.offset, record.offset, 0)
            self._gap = Gap(gap.first, record.offset, gap.n_records + 1)
        else:
            self._records.append(record)
            self._n_bytes += size
        self._grown.set()

    @property
    def has_gap(self) -> bool:
        return self._gap is not None

    @property
    def n_missed(self) -> int:
        """Records there was no room for since the last ``take``."""
        return 0 if self._gap is None else self._gap.n_records

    async def take(self, seconds: float) -> list[LogRecord | Gap]:
        """Return what there is, waiting up to ``seconds`` for anything; empty means nothing."""
        if not self._records and self._gap is None and not self.is_closed:
            try:
                await asyncio.wait_for(self._grown.wait(), seconds)
            except TimeoutError:
                return []
        self._grown.clear()
        found: list[LogRecord | Gap] = [*self._records]
        self._records.clear()
        self._n_bytes = 0
        if self._gap is not None:
            found.append(self._gap)
            self._gap = None
        return found

    def close(self) -> None:
        self.is_closed = True
        self._grown.set()


class Hub:
    """Reads the log once for everybody who follows it."""

    def __init__(self, host: Host, limits: Limits) -> None:
        self._host, self._limits = host, limits
        self._by_key: dict[bytes, set[Subscription]] = {}
        self._ends: dict[int, int] = {}
        """The next offset to be read, of each partition somebody follows."""
        self._looks: dict[bytes, asyncio.Future[Withholding]] = {}
        """Looks at what a session hides that have not begun."""
        self._wanted = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "ombus-tail")
        self._task: asyncio.Task[None] | None = None
        self.is_closed = False

    @property
    def n_tails(self) -> int:
        return sum(map(len, self._by_key.values()))

    async def subscribe(self, key: bytes) -> Subscription:
        """Return a buffer for a session; close it with ``leave``."""
        log = self._host.engine.log
        partition = log.partition_of(key)
        if partition not in self._ends:
            end = await self._host.call(lambda: log.end(partition))
            self._ends.setdefault(partition, end)
        made = Subscription(key, partition, self._ends[partition], self._limits)
        self._by_key.setdefault(key, set()).add(made)
        if self.is_closed:
            made.close()
        elif self._task is None:
            self._task = asyncio.create_task(self._follow())
        self._wanted.set()
        return made

    async def hidden(self, key: bytes) -> Withholding:
        """Return what a session hides, not earlier than now.

        Whoever asks before the look has begun shares it: one record wakes all readers at once.
        """
        look = self._looks.get(key)
        if look is None or look.done():
            look = self._looks[key] = asyncio.ensure_future(
                self._host.call(lambda: self._look(key))
            )
        return await asyncio.shield(look)

    def _look(self, key: bytes) -> Withholding:
        self._looks.pop(key, None)  # What is asked from here on may see more.
        with self._host.engine.reading(key) as live:
            return withholding(live.session)

    def leave(self, subscription: Subscription) -> None:
        readers = self._by_key.get(subscription.key, set())
        readers.discard(subscription)
        if not readers:
            self._by_key.pop(subscription.key, None)
            followed = {each.partition for held in self._by_key.values() for each in held}
            if subscription.partition not in followed:
                self._ends.pop(subscription.partition, None)

    async def close(self) -> None:
        """End every tail in order."""
        self.is_closed = True
        for readers in self._by_key.values():
            for each in readers:
                each.close()
        self._wanted.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown(wait=False)

    async def _follow(self) -> None:
        loop, engine = asyncio.get_running_loop(), self._host.engine
        while not self.is_closed:
            if not self._ends:
                self._wanted.clear()
                await self._wanted.wait()
                continue
            ends = dict(self._ends)
            try:
                await loop.run_in_executor(self._thread, engine.wait, ends, WAIT)
                for partition in ends:
                    if engine.serves(partition):
                        await self._drain(partition)
                    else:
                        self._let_go(partition)
            except RetryableError:
                # The brokers are away: readers come back, and go on where they were.
                for partition in ends:
                    self._let_go(partition)
            except Exception as error:
                # Without the log nobody can be told anything: readers come back by themselves.
                if not self.is_closed:
                    self._host.fail(error)
                for readers in self._by_key.values():
                    for each in readers:
                        each.close()
                return

    def _let_go(self, partition: int) -> None:
        """End the tails of a partition; each leaves by itself, and its reader comes back."""
        for readers in self._by_key.values():
            for each in readers:
                if each.partition == partition:
                    each.close()

    async def _drain(self, partition: int) -> None:
        loop, log = asyncio.get_running_loop(), self._host.engine.log
        while not self.is_closed and partition in self._ends:
            offset = self._ends[partition]
            page = await loop.run_in_executor(self._thread, log.read, partition, offset, PAGE)
            if self._ends.get(partition) != offset:
                continue
            for record in page:
                for each in self._by_key.get(record.key or b"", ()):
                    each.push(record)
            if not page:
                return
            self._ends[partition] = page[-1].offset + 1
