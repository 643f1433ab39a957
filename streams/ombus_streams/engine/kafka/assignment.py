"""The partitions of a worker: opened when they are assigned, folded, closed when they are revoked.

A partition that cannot be opened, or cannot go on, is left out and tried again later; the others
go on. What no later try can mend ends the worker.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final, Protocol

import structlog

from ombus_streams.engine.kafka.partition import Accounts, FoldOptions, Partition
from ombus_streams.engine.kafka.roles import Role
from ombus_streams.engine.kafka.status import Counts
from ombus_streams.engine.kafka.store import RocksState
from ombus_streams.engine.kafka.threads import Threads
from ombus_streams.runtime.emissions import Destination
from ombus_streams.runtime.errors import Closed, RetryableError, StalePosition
from ombus_streams.runtime.metrics import STALE_BATCHES
from ombus_streams.runtime.ports import Clock, Draft, EntryLog, LogRecord, Position
from ombus_streams.runtime.processor import Processor
from ombus_streams.runtime.telemetry import Folded, Telemetry

OPEN_WITHIN: Final = timedelta(seconds=20)
"""How long a rebalance waits for a partition; Faust gives the whole of it 90 seconds."""
REOPEN_DELAYS: Final = (timedelta(seconds=1), timedelta(seconds=30))
"""First and longest wait before a partition that cannot be opened now is tried again."""

_log = structlog.get_logger("ombus.worker")


class Reader(Protocol):
    """Who hands the records over: it can be told where to read on."""

    async def read_from(self, offsets: Mapping[int, int]) -> None: ...


class Assignment:
    """What is assigned now. ``fail`` is told of what must end the worker; ``wake`` of news."""

    def __init__(
        self,
        topic: str,
        instance: str,
        role: Role,
        options: FoldOptions,
        log: EntryLog,
        dead_letters: EntryLog,
        state: RocksState,
        clock: Clock,
        secrets: Sequence[str],
        accounts: Accounts,
        threads: Threads,
        counts: Counts,
        wake: Callable[[], None],
        fail: Callable[[Exception], None],
        telemetry: Telemetry | None = None,
    ) -> None:
        self._telemetry = telemetry or Telemetry(role.name)
        self.topic, self.instance = topic, instance
        self.reader: Reader | None = None
        """Set once the consumer is there."""
        self.numbers: frozenset[int] = frozenset()
        """What is assigned, open or not."""
        self.partitions: dict[int, Partition] = {}
        """What is open."""
        self._role, self._options, self._secrets = role, options, tuple(secrets)
        self._entries, self._dead_letters, self._state = log, dead_letters, state
        self._clock, self._threads, self._counts = clock, threads, counts
        self._accounts = accounts
        self._wake, self._fail = wake, fail
        self._generation = 0
        self._reopening: set[asyncio.Task[None]] = set()

    async def assigned(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """Open partitions; return where to read each from."""
        self._generation += 1
        generation, self.numbers = self._generation, frozenset(partitions)
        for number in self._state.opened() - self.numbers:
            await self._threads.run(partial(self._state.release, number))
        opened = await asyncio.gather(*(self._open(number) for number in partitions))
        offsets: dict[int, int] = {}
        for partition in opened:
            if partition is None:
                continue
            if generation != self._generation:
                await partition.close()
            else:
                self._take_over(partition)
                offsets[partition.number] = partition.next_offset
        _log.info(
            "partitions.assigned",
            role=self._role.name,
            partitions=sorted(offsets),
            n_behind=sum(max(0, self.partitions[each].end - offsets[each]) for each in offsets),
        )
        return offsets

    async def revoked(self, partitions: Iterable[int]) -> None:
        """Close partitions: nothing of them is written after this returns."""
        self._generation += 1
        gone = frozenset(partitions)
        self.numbers -= gone
        closing = [self.partitions.pop(each) for each in gone if each in self.partitions]
        if not closing:
            return
        n_given_up = sum(each.n_running for each in closing)
        for each in closing:
            self._accounts.release(each.number)
        await asyncio.gather(*(each.close() for each in closing))
        _log.info(
            "partitions.revoked",
            role=self._role.name,
            partitions=sorted(each.number for each in closing),
            n_runs_given_up=n_given_up,
        )

    async def close(self) -> None:
        """Close everything, for good."""
        await self.revoked(self.numbers)
        reopening = [*self._reopening]
        for each in reopening:
            each.cancel()
        await asyncio.gather(*reopening, return_exceptions=True)

    async def fold(self, partition: int, records: Sequence[LogRecord]) -> int | None:
        """Fold records; return the next offset, all below it durable. ``None``: not open."""
        opened = self.partitions.get(partition)
        if opened is None:
            return None
        unfolded = opened.unfolded(records)
        try:
            if unfolded and not await self._follows(opened, unfolded[0].offset):
                await self._read_from(opened)
                return None
            options = self._options
            n_at_once = options.max_batch if opened.is_ready else options.max_batch_behind
            for start in range(0, len(unfolded), n_at_once):
                if self.partitions.get(partition) is not opened:
                    return None
                self._fold_batch(opened, unfolded[start : start + n_at_once])
                await asyncio.sleep(0)
        except Closed:
            return None
        except StalePosition:
            self._counts.n_stale_batches += 1
            self._telemetry.tally.add(STALE_BATCHES, self._role.name)
            _log.warning("batch.stale", role=self._role.name, partition=partition)
            await self._read_from(opened)
            return None
        except RetryableError as error:
            await self._reopen(partition, error)
            return None
        except Exception as error:
            self._fail(error)
            return None
        return opened.next_offset

    async def lost(self, partition: int) -> None:
        """Compare the store with a log that does not have its next offset."""
        fact = "the log does not have the next offset"
        await self._reopen(partition, RetryableError(fact))

    async def passed_over(self, partition: int) -> None:
        """Read on from the position: records were fetched, and not handed over."""
        opened = self.partitions.get(partition)
        if opened is not None:
            await self._read_from(opened)

    async def _open(self, number: int) -> Partition | None:
        try:
            async with asyncio.timeout(OPEN_WITHIN.total_seconds()):
                return await self._threads.run(partial(self._open_now, number))
        except Closed:
            return None
        except (RetryableError, TimeoutError) as error:
            self._later(number, error)
        except Exception as error:
            self._fail(error)
        return None

    def _open_now(self, number: int) -> Partition:
        """Open the store, compare it with the log and ask where the log ends. Blocks."""
        processor = Processor(
            self._state.store(number),
            self._entries,
            number,
            topic=self.topic,
            max_sessions=self._options.max_sessions,
            emits=self._role.emits,
            secrets=self._secrets,
        )
        end = self._entries.end(number)
        return Partition(processor, self._role, end, self._options.ahead)

    def _take_over(self, partition: Partition) -> None:
        self.partitions[partition.number] = partition
        self._accounts.adopt(partition.number, partition.processor.store)
        if self._role.emits:
            partition.start_sending(self._append_emissions)
        self._check_ready(partition)

    def _check_ready(self, partition: Partition) -> None:
        if not partition.becomes_ready():
            return
        _log.info(
            "partition.ready",
            role=self._role.name,
            partition=partition.number,
            next_offset=partition.next_offset,
        )
        self._wake()

    async def _reopen(self, number: int, reason: Exception) -> None:
        """Close a partition that cannot go on, and open it again after a while."""
        opened = self.partitions.pop(number, None)
        if opened is not None:
            self._accounts.release(number)
            await opened.close()
        self._later(number, reason)

    def _later(self, number: int, reason: Exception) -> None:
        _log.warning(
            "partition.delayed",
            role=self._role.name,
            partition=number,
            failure=type(reason).__name__,
            reason=str(reason),
        )
        task = asyncio.create_task(self._open_later(number, self._generation))
        self._reopening.add(task)
        task.add_done_callback(self._reopening.discard)

    async def _open_later(self, number: int, generation: int) -> None:
        delay, longest = REOPEN_DELAYS
        while True:
            await asyncio.sleep(delay.total_seconds())
            if generation != self._generation:
                return
            try:
                opened = await self._threads.run(partial(self._open_now, number))
            except Closed:
                return
            except RetryableError as error:
                _log.warning("partition.delayed", partition=number, failure=type(error).__name__)
                delay = min(2 * delay, longest)
                continue
            except Exception as error:
                self._fail(error)
                return
            if generation != self._generation:
                await opened.close()
                return
            self._take_over(opened)
            await self._read_from(opened)
            return

    async def _read_from(self, partition: Partition) -> None:
        if self.reader is not None and self.partitions.get(partition.number) is partition:
            await self.reader.read_from({partition.number: partition.next_offset})

    async def _follows(self, partition: Partition, offset: int) -> bool:
        """Say whether the log holds nothing between the position and ``offset``.

        What is no data (markers) leaves gaps; records that were fetched and never handed over must
        not. A log whose start has moved past the position is refused.
        """
        if offset == partition.next_offset:
            return True
        start = await self._threads.run(partial(self._entries.start, partition.number))
        if start > partition.next_offset:
            # The processor says what is wrong, in its own words.
            await self._threads.run(partition.processor.forget)
        first = await self._threads.run(
            partial(self._entries.read, partition.number, partition.next_offset, 1)
        )
        is_gap = not first or first[0].offset >= offset
        _log.info(
            "offsets.skipped" if is_gap else "records.passed_over",
            partition=partition.number,
            from_offset=partition.next_offset,
            to_offset=offset,
        )
        return is_gap

    def _fold_batch(self, partition: Partition, records: Sequence[LogRecord]) -> None:
        began = time.perf_counter()
        batch, now_ms = partition.fold(records), self._now_ms()
        self._counts.lags_ms.append(now_ms - records[0].at_ms)
        self._counts.n_records += batch.n_records
        self._counts.n_dead_letters += batch.n_dead_letters
        self._telemetry.folded(
            Folded(
                partition=partition.number,
                records=records,
                batch=batch,
                next_offset=partition.next_offset,
                began=began,
                now_ms=now_ms,
                live_from=partition.end,
            )
        )
        self._check_ready(partition)
        self._wake()

    async def _append_emissions(
        self, to: Destination, drafts: Sequence[Draft]
    ) -> Sequence[Position]:
        log = self._entries if to == "entries" else self._dead_letters
        return await self._threads.run(partial(log.append, drafts))

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)
