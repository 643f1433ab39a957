"""Performing effects beside the fold: started when due, bounded, their results appended.

An effect that fails is the scheduler's to try again; one whose partition is closed is given up,
and whoever owns the partition then decides it again.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Final

import structlog
from ombus_schemas.codec import encode, key_of
from ombus_schemas.entries import Entry
from ombus_schemas.headers import headers_of

from ombus_streams.engine.kafka.admission import Admission, RunLimits
from ombus_streams.engine.kafka.partition import Partition
from ombus_streams.engine.kafka.status import Counts
from ombus_streams.engine.kafka.threads import Threads
from ombus_streams.memory.errors import MemoryFault
from ombus_streams.runtime.errors import (
    Closed,
    Deferred,
    ResultHeld,
    RetryableError,
    RuntimeFault,
)
from ombus_streams.runtime.interpreter import Interpreter
from ombus_streams.runtime.ports import Clock, Draft, EntryLog, Position
from ombus_streams.runtime.scheduler import Task
from ombus_streams.runtime.telemetry import Telemetry

TICK: Final = timedelta(seconds=1)
"""How long nothing is looked at while nothing happens."""
SHORTEST_WAIT: Final = timedelta(milliseconds=20)
"""Before effects that are delayed, or had no room, are looked at again."""
APPEND_DELAYS: Final = tuple(timedelta(seconds=each) for each in (0.5, 1, 2, 4, 8))
"""A result is appended again after each of these, before its run is given up and paid again."""

_log = structlog.get_logger("ombus.worker")


class Performer:
    """The effects of one worker. ``fail`` is told of what must end the worker."""

    def __init__(
        self,
        role: str,
        log: EntryLog,
        interpreter: Interpreter,
        clock: Clock,
        limits: RunLimits,
        threads: Threads,
        counts: Counts,
        fail: Callable[[Exception], None],
        telemetry: Telemetry | None = None,
    ) -> None:
        self._telemetry = telemetry or Telemetry(role)
        self._role, self._entries, self._interpreter, self._clock = role, log, interpreter, clock
        self._admission = Admission(limits)
        self._threads, self._counts, self._fail = threads, counts, fail
        self._wake = asyncio.Event()
        self._n_looks = 0

    @property
    def n_under_way(self) -> int:
        return self._admission.n_runs

    def wake(self) -> None:
        """Look at what is due: something was folded, or has become ready."""
        self._wake.set()

    async def run(self, partitions: Callable[[], Sequence[Partition]]) -> None:
        """Start what is due whenever something has changed, and once a tick; never ends."""
        while True:
            self._wake.clear()
            there = partitions()
            self._start_due(there)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait(there).total_seconds()):
                    await self._wake.wait()

    async def ended(self, within: timedelta) -> None:
        """Wait until nothing is under way, not longer than ``within``; ``run`` must be over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within.total_seconds()):
                while self._admission.n_runs:
                    self._wake.clear()
                    await self._wake.wait()

    def _start_due(self, partitions: Sequence[Partition]) -> None:
        if not partitions:
            return
        # Another one first each time: none is always the last to find room.
        self._n_looks += 1
        turn = self._n_looks % len(partitions)
        now_ms = self._now_ms()
        for partition in (*partitions[turn:], *partitions[:turn]):
            n_free, scheduler = self._admission.n_free, partition.scheduler
            if n_free <= 0:
                return
            if scheduler is not None:
                for task in scheduler.due(now_ms, n_free, self._admission.take):
                    partition.start(self._perform(partition, task))

    def _wait(self, partitions: Sequence[Partition]) -> timedelta:
        """Return how long to wait if nothing happens: to the next time that is known."""
        schedulers = (each.scheduler for each in partitions)
        times = [at for each in schedulers if each and (at := each.next_at_ms()) is not None]
        until = timedelta(milliseconds=min(times) - self._now_ms()) if times else TICK
        return max(SHORTEST_WAIT, min(until, TICK))

    async def _perform(self, partition: Partition, task: Task) -> None:
        scheduler = partition.scheduler
        assert scheduler is not None
        try:
            session = partition.processor.session(task.slot[0])
            with self._telemetry.run(partition.number, session, task.effect) as report:
                entry = await self._interpreter.perform(session, task.effect)
                report["entry_id"] = entry.id
                scheduler.appended(task.slot, await self._append(entry))
        except Closed:
            pass  # Whoever owns the partition now decides the run again.
        except (RuntimeFault, MemoryFault) as error:
            self._counts.n_runs_failed += not isinstance(error, Deferred | ResultHeld)
            with suppress(Closed):
                scheduler.failed(task.slot, task.effect, error, self._now_ms())
        except Exception as error:
            self._fail(error)
        else:
            self._counts.n_runs += 1
        finally:
            self._admission.give_back(task.slot)
            self._wake.set()

    async def _append(self, entry: Entry) -> Position:
        draft = Draft(key=key_of(entry), value=encode(entry), headers=headers_of(entry))
        append = partial(self._entries.append, [draft])
        for delay in APPEND_DELAYS:
            try:
                (position,) = await self._threads.run(append)
            except RetryableError as error:
                # It may be on the log all the same: the first entry with an id wins.
                _log.warning("append.delayed", entry_id=entry.id, failure=type(error).__name__)
                await asyncio.sleep(delay.total_seconds())
            else:
                return position
        (position,) = await self._threads.run(append)
        return position

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)
