"""The running worker: partitions come and go, are folded in batches, and their effects performed.

Folding never waits for an effect: effects are tasks beside it, derived from state, bounded,
cancelled when their partition is revoked and decided again by whoever owns it then.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
import structlog
from ombus_schemas.codec import encode, key_of
from ombus_schemas.entries import Entry
from ombus_schemas.headers import headers_of

from ombus_streams.engine.kafka.admission import Admission, RunLimits
from ombus_streams.engine.kafka.app import BatchApp, Membership, create_app
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.partition import Partition, take_due
from ombus_streams.engine.kafka.records import KafkaRecord, log_record
from ombus_streams.engine.kafka.roles import Role
from ombus_streams.engine.kafka.status import Counts, PartitionStatus, WorkerStatus
from ombus_streams.engine.kafka.store import RocksState
from ombus_streams.runtime.errors import (
    Closed,
    Refused,
    RetryableError,
    RuntimeFault,
    StalePosition,
    TerminalError,
)
from ombus_streams.runtime.interpreter import Interpreter
from ombus_streams.runtime.ports import Clock, Draft, EntryLog, LogRecord, Position
from ombus_streams.runtime.processor import MAX_CACHED_SESSIONS, Processor
from ombus_streams.runtime.scheduler import Task

MAX_BATCH: Final = 1_000
"""Records folded in one piece: the event loop stands still for as long."""
THREADS: Final = 16
"""Of one worker, for what would block the loop: appends, opening partitions."""
TICK: Final = timedelta(seconds=1)
"""How long delayed effects wait at most beyond their time."""
APPEND_DELAYS: Final = tuple(timedelta(seconds=each) for each in (0.5, 1, 2, 4, 8))
"""A result is appended again after each of these, before its run is given up and paid again."""
REOPEN_DELAYS: Final = (timedelta(seconds=1), timedelta(seconds=30))
"""First and longest wait before a partition that cannot be opened now is tried again."""
STOP_WITHIN: Final = timedelta(seconds=10)
"""How long runs under way may still end when the worker is stopped."""
_LAGS: Final = 1_000

_log = structlog.get_logger("ombus.worker")
_Result = TypeVar("_Result")


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may set; the defaults are those of production."""

    instance: str
    """Names the folder and the member: the same after every restart."""
    group_prefix: str = "ombus"
    max_batch: int = MAX_BATCH
    max_sessions: int = MAX_CACHED_SESSIONS
    """Sessions kept decoded, a partition."""
    limits: RunLimits = RunLimits()
    membership: Membership = Membership()
    stop_within: timedelta = STOP_WITHIN


class Worker:
    """One role on one topic. It does not own its log and state: who made them closes them."""

    def __init__(
        self,
        role: Role,
        options: WorkerOptions,
        connection: Connection,
        log: KafkaLog,
        dead_letters: EntryLog,
        state: RocksState,
        interpreter: Interpreter,
        clock: Clock,
        providers: Mapping[str, str] | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        self.role, self.options = role, options
        self._connection, self._clock, self._secrets = connection, clock, tuple(secrets)
        self._entries, self._dead_letters, self._state = log, dead_letters, state
        self._interpreter = interpreter
        self._admission = Admission(options.limits, providers or {})
        self._partitions: dict[int, Partition] = {}
        self._assignment: frozenset[int] = frozenset()
        self._generation = 0
        self._wake = asyncio.Event()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._threads = ThreadPoolExecutor(THREADS, f"ombus-{role.name}")
        self._app: BatchApp | None = None
        self._stopping = False
        self._reopening: set[asyncio.Task[None]] = set()
        self._lags_ms: deque[int] = deque(maxlen=_LAGS)
        self._counts = Counts()

    @property
    def topic(self) -> str:
        return self._entries.topic

    @property
    def instance(self) -> str:
        return self.options.instance

    async def run(self, stop: asyncio.Event) -> None:
        """Fold and perform until ``stop`` is set; then end in order.

        Raises:
            LogContradicts: a store and the log do not belong together; nothing was folded there.
            RuntimeFault: see its way out.
        """
        app = self._app = create_app(
            self.role.name,
            self._connection,
            self,
            group_prefix=self.options.group_prefix,
            membership=self.options.membership,
        )
        deciding = asyncio.create_task(self._decide())
        stopped = asyncio.create_task(stop.wait())
        crashed = asyncio.create_task(self._crash_of(app))
        try:
            await app.start()
            _log.info("worker.started", role=self.role.name, instance=self.instance)
            first, _ = await asyncio.wait(
                (stopped, crashed, deciding, self._failure), return_when=asyncio.FIRST_COMPLETED
            )
            for each in first:
                each.result()
        finally:
            await self._end(app, (deciding, stopped, crashed))

    def status(self) -> WorkerStatus:
        """Return how far the worker is; ready means that every partition has caught up once."""
        partitions = []
        for number in sorted(self._assignment):
            opened = self._partitions.get(number)
            end = self._end_of(number)
            partitions.append(
                PartitionStatus(
                    partition=number,
                    is_ready=opened is not None and opened.is_ready,
                    next_offset=0 if opened is None else opened.next_offset,
                    catch_up_to=None if opened is None else opened.end,
                    end=end,
                )
            )
        return self._counts.status(
            self.role.name, self.instance, tuple(partitions), self._admission.n_runs, self._lags_ms
        )

    async def assigned(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """Open partitions; return where to read each from."""
        self._generation += 1
        generation, self._assignment = self._generation, frozenset(partitions)
        for number in self._state.opened() - self._assignment:
            await self._in_thread(self._state.release, number)
        opened = await asyncio.gather(*(self._open(number) for number in partitions))
        offsets: dict[int, int] = {}
        for partition in opened:
            if partition is None:
                continue
            if generation != self._generation or self._stopping:
                await partition.close()
            else:
                self._take_over(partition)
                partition.is_read = True
                offsets[partition.number] = partition.next_offset
        _log.info(
            "partitions.assigned",
            role=self.role.name,
            partitions=sorted(offsets),
            n_behind=sum(max(0, self._partitions[each].end - offsets[each]) for each in offsets),
        )
        return offsets

    async def revoked(self, partitions: Iterable[int]) -> None:
        """Close partitions: nothing of them is written after this returns."""
        self._generation += 1
        gone = frozenset(partitions)
        self._assignment -= gone
        closing = [self._partitions.pop(each) for each in gone if each in self._partitions]
        if not closing:
            return
        n_given_up = sum(each.n_under_way for each in closing)
        await asyncio.gather(*(each.close() for each in closing))
        _log.info(
            "partitions.revoked",
            role=self.role.name,
            partitions=sorted(each.number for each in closing),
            n_runs_given_up=n_given_up,
        )

    async def fold(self, partition: int, records: Sequence[KafkaRecord]) -> int | None:
        """Fold records; return the next offset, all below it durable. ``None``: not open."""
        opened = self._partitions.get(partition)
        if opened is None:
            return None
        unfolded = opened.unfolded([log_record(record) for record in records])
        try:
            if unfolded and unfolded[0].offset > opened.next_offset:
                await self._check_gap(opened, unfolded[0].offset)
            for start in range(0, len(unfolded), self.options.max_batch):
                if self._partitions.get(partition) is not opened:
                    return None
                self._fold_batch(opened, unfolded[start : start + self.options.max_batch])
                await asyncio.sleep(0)
        except Closed:
            return None
        except StalePosition:
            self._counts.n_stale_batches += 1
            _log.warning("batch.stale", role=self.role.name, partition=partition)
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

    def catching_up(self) -> Sequence[int]:
        """Return the open partitions that have not reached their end yet."""
        return [
            each.number for each in self._partitions.values() if each.is_read and not each.is_ready
        ]

    def reached(self, partition: int, offset: int) -> None:
        """Note that everything below ``offset`` was handed over, records or not."""
        opened = self._partitions.get(partition)
        if opened is not None and opened.catch_up_to(offset):
            self._became_ready(opened)

    async def _open(self, number: int) -> Partition | None:
        try:
            return await self._in_thread(partial(self._open_now, number))
        except Closed:
            return None
        except RetryableError as error:
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
            max_sessions=self.options.max_sessions,
            emits=self.role.emits,
            secrets=self._secrets,
        )
        return Partition(processor, self.role, self._entries.end(number))

    def _take_over(self, partition: Partition) -> None:
        self._partitions[partition.number] = partition
        if self.role.emits:
            partition.start(partition.send_outbox(self._append_dead_letters))
        self.reached(partition.number, partition.next_offset)

    def _became_ready(self, partition: Partition) -> None:
        _log.info(
            "partition.ready",
            role=self.role.name,
            partition=partition.number,
            next_offset=partition.next_offset,
        )
        self._wake.set()

    async def _reopen(self, number: int, reason: Exception) -> None:
        """Close a partition that cannot go on, and open it again after a while."""
        opened = self._partitions.pop(number, None)
        if opened is not None:
            await opened.close()
        self._later(number, reason)

    def _later(self, number: int, reason: Exception) -> None:
        _log.warning(
            "partition.delayed",
            role=self.role.name,
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
            if generation != self._generation or self._stopping:
                return
            try:
                opened = await self._in_thread(partial(self._open_now, number))
            except Closed:
                return
            except RetryableError as error:
                _log.warning("partition.delayed", partition=number, failure=type(error).__name__)
                delay = min(2 * delay, longest)
                continue
            except Exception as error:
                self._fail(error)
                return
            if generation != self._generation or self._stopping:
                await opened.close()
                return
            self._take_over(opened)
            await self._read_from(opened)
            return

    async def _read_from(self, partition: Partition) -> None:
        if self._app is not None and self._partitions.get(partition.number) is partition:
            await self._app.batch_consumer.read_from({partition.number: partition.next_offset})
            partition.is_read = True

    async def _check_gap(self, partition: Partition, offset: int) -> None:
        """Refuse a log whose start has moved past the position; what is no data may be missing."""
        start = await self._in_thread(partial(self._entries.start, partition.number))
        if start > partition.next_offset:
            # The processor says what is wrong, in its own words.
            await self._in_thread(partition.processor.forget)
        _log.info(
            "offsets.skipped",
            partition=partition.number,
            from_offset=partition.next_offset,
            to_offset=offset,
        )

    def _fold_batch(self, partition: Partition, records: Sequence[LogRecord]) -> None:
        began = time.perf_counter()
        batch = partition.fold(records)
        lag_ms = self._now_ms() - records[0].at_ms
        self._lags_ms.append(lag_ms)
        self._counts.n_records += batch.n_records
        self._counts.n_dead_letters += batch.n_dead_letters
        _log.info(
            "batch.folded",
            role=self.role.name,
            partition=partition.number,
            n_records=batch.n_records,
            n_sessions=len(batch.sessions),
            next_offset=partition.next_offset,
            lag_ms=lag_ms,
            took_ms=round((time.perf_counter() - began) * 1000),
        )
        if batch.n_dead_letters:
            _log.warning(
                "records.dead_lettered",
                role=self.role.name,
                partition=partition.number,
                n_records=batch.n_dead_letters,
            )
        self.reached(partition.number, partition.next_offset)
        self._wake.set()

    async def _decide(self) -> None:
        """Start what is due whenever something was folded or has ended, and once a tick."""
        while True:
            self._wake.clear()
            # In another order each time: no partition is always the last to find room.
            order = [*self._partitions.values()]
            self._counts.n_looks += 1
            turn = self._counts.n_looks % len(order) if order else 0
            found = take_due(
                order[turn:] + order[:turn],
                self._now_ms(),
                lambda: self._admission.n_free,
                self._admission.take,
            )
            for partition, task in found:
                partition.start(self._perform(partition, task))
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK.total_seconds()):
                    await self._wake.wait()

    async def _perform(self, partition: Partition, task: Task) -> None:
        """Perform one effect and append its result."""
        began = time.perf_counter()
        scheduler = partition.scheduler
        assert scheduler is not None
        said = {"role": self.role.name, "worker": task.effect.worker, "partition": partition.number}
        try:
            session = partition.processor.session(task.slot[0])
            entry = await self._interpreter.perform(session, task.effect)
            position = await self._append(entry)
            scheduler.appended(task.slot, position)
        except Closed:
            return
        except (Refused, RetryableError, TerminalError, RuntimeFault) as error:
            self._counts.n_runs_failed += 1
            with suppress(Closed):
                scheduler.failed(task.slot, task.effect, error, self._now_ms())
        except asyncio.CancelledError:
            _log.info("run.given_up", **said)
            raise
        except Exception as error:
            self._fail(error)
        else:
            self._counts.n_runs += 1
            _log.info(
                "run.finished",
                **said,
                effect=type(task.effect).__name__,
                entry_id=entry.id,
                took_ms=round((time.perf_counter() - began) * 1000),
            )
        finally:
            self._admission.give_back(task.slot)
            self._wake.set()

    async def _append(self, entry: Entry) -> Position:
        draft = Draft(key=key_of(entry), value=encode(entry), headers=headers_of(entry))
        for delay in APPEND_DELAYS:
            try:
                (position,) = await self._in_thread(partial(self._entries.append, [draft]))
            except RetryableError as error:
                # Perhaps it is on the log: the first entry with an id wins.
                _log.warning("append.delayed", failure=type(error).__name__)
                await asyncio.sleep(delay.total_seconds())
            else:
                return position
        (position,) = await self._in_thread(partial(self._entries.append, [draft]))
        return position

    async def _append_dead_letters(self, drafts: Sequence[Draft]) -> Sequence[Position]:
        return await self._in_thread(partial(self._dead_letters.append, drafts))

    async def _end(self, app: BatchApp, tasks: Sequence[asyncio.Task[Any]]) -> None:
        self._stopping = True
        for task in tasks:
            task.cancel()
        await self._runs_ended()
        await self.revoked([*self._partitions])
        for each in [*self._reopening]:
            each.cancel()
        await app.stop()
        await asyncio.gather(*tasks, *self._reopening, return_exceptions=True)
        await asyncio.to_thread(self._threads.shutdown)
        if self._failure.done() and not self._failure.cancelled():
            self._failure.exception()
        _log.info("worker.stopped", role=self.role.name, instance=self.instance)

    async def _runs_ended(self) -> None:
        """Wait for the runs under way, for as long as a stop may take."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.options.stop_within.total_seconds()):
                while self._admission.n_runs:
                    self._wake.clear()
                    await self._wake.wait()

    async def _crash_of(self, app: BatchApp) -> None:
        """Raise what ended the app from inside."""
        await app.wait_until_stopped()
        raise app.crash_reason or RuntimeFault("the consumer has ended by itself")

    def _fail(self, error: Exception) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)

    def _end_of(self, partition: int) -> int | None:
        if self._app is None:
            return None
        return self._app.batch_consumer.highwater_of(partition)

    async def _in_thread(self, call: Callable[..., _Result], *values: object) -> _Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, call, *values)

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)
