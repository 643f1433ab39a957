"""The running worker of one role: membership, fold and effects under one life.

Folding never waits for an effect: effects are tasks beside it, derived from state, bounded,
cancelled when their partition is revoked and decided again by whoever owns it then.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import msgspec
import structlog

from ombus_streams.engine.kafka.admission import RunLimits
from ombus_streams.engine.kafka.app import BatchApp, Membership, create_app
from ombus_streams.engine.kafka.assignment import Assignment
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.partition import FoldOptions, Partition
from ombus_streams.engine.kafka.performer import Performer
from ombus_streams.engine.kafka.roles import Role
from ombus_streams.engine.kafka.standing import Standing
from ombus_streams.engine.kafka.status import Counts, PartitionStatus, WorkerStatus
from ombus_streams.engine.kafka.store import RocksState
from ombus_streams.engine.kafka.threads import Threads
from ombus_streams.runtime.errors import RetryableError, RuntimeFault
from ombus_streams.runtime.interpreter import Interpreter
from ombus_streams.runtime.ports import Clock, EntryLog
from ombus_streams.runtime.telemetry import Telemetry

PROVE_EVERY: Final = timedelta(seconds=15)
"""How long records of a topic that was made anew may be taken for those of the old one."""
STOP_WITHIN: Final = timedelta(seconds=10)
"""How long runs under way may still end when the worker is stopped."""

_log = structlog.get_logger("ombus.worker")


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may set; the defaults are those of production."""

    instance: str
    """Names the member and its folder: the same after every restart."""
    group_prefix: str = "ombus"
    fold: FoldOptions = FoldOptions()
    limits: RunLimits = RunLimits()
    membership: Membership = Membership()
    stop_within: timedelta = STOP_WITHIN
    address: str | None = None
    """Where the rows are read over HTTP; a member with one gets partitions before others."""


class Worker:
    """One role on one log. It does not own log and state: who made them closes them."""

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
        secrets: Sequence[str] = (),
        news: Callable[[], None] | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """``news`` is told on the event loop when something was folded or has become ready."""
        telemetry = telemetry or Telemetry(role.name)
        self.role, self.options, self._connection = role, options, connection
        self._log = log
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._threads, self._counts = Threads(f"ombus-{role.name}"), Counts()
        self._app: BatchApp | None = None
        self.standing = Standing(
            options.instance, options.address, options.membership.session_timeout
        )
        interpreter.staff.keep_accounts(log.partition_of, {})
        self._performer = Performer(
            role.name,
            log,
            interpreter,
            clock,
            options.limits,
            self._threads,
            self._counts,
            self._fail,
            telemetry,
        )
        self._assignment = Assignment(
            log.topic,
            options.instance,
            role,
            options.fold,
            log,
            dead_letters,
            state,
            clock,
            secrets,
            interpreter.staff,
            self._threads,
            self._counts,
            self._performer.wake if news is None else _both(self._performer.wake, news),
            self._fail,
            telemetry,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Fold and perform until ``stop`` is set; then end in order.

        Raises:
            LogContradicts: a store and the log do not belong together; nothing was folded there.
            RuntimeFault: see its way out.
        """
        app = self._app = create_app(
            self.role.name,
            self._connection,
            self._assignment,
            group_prefix=self.options.group_prefix,
            membership=self.options.membership,
            standing=self.standing,
        )
        self._assignment.reader = app.batch_consumer
        performing = asyncio.create_task(
            self._performer.run(lambda: [*self._assignment.partitions.values()])
        )
        stopped = asyncio.create_task(stop.wait())
        crashed = asyncio.create_task(_crash_of(app))
        proving = asyncio.create_task(self._prove())
        try:
            await app.start()
            _log.info("worker.started", role=self.role.name, instance=self.options.instance)
            first, _ = await asyncio.wait(
                (stopped, crashed, performing, proving, self._failure),
                return_when=asyncio.FIRST_COMPLETED,
            )
            for each in first:
                each.result()
        finally:
            await self._end(app, (performing, stopped, crashed, proving))

    @property
    def numbers(self) -> frozenset[int]:
        """The partitions that are assigned, open or not. May be asked from any thread."""
        return self._assignment.numbers

    def partition(self, number: int) -> Partition | None:
        """Return a partition that is open. May be asked from any thread."""
        return self._assignment.partitions.get(number)

    def end_of(self, number: int) -> int | None:
        """Return the end of a partition as the last fetch saw it. May be asked from any thread."""
        return None if self._app is None else self._app.batch_consumer.end_of(number)

    def status(self) -> WorkerStatus:
        """Return how far the worker is; ready means that every partition has caught up."""
        found: list[PartitionStatus] = []
        for number in sorted(self._assignment.numbers):
            opened = self._assignment.partitions.get(number)
            found.append(
                PartitionStatus(
                    partition=number,
                    is_ready=opened is not None and opened.is_ready,
                    next_offset=0 if opened is None else opened.next_offset,
                    catch_up_to=None if opened is None else opened.end,
                    end=self.end_of(number),
                )
            )
        return self._counts.status(
            self.role.name, self.options.instance, tuple(found), self._performer.n_under_way
        )

    async def _prove(self) -> None:
        """Raise once the topic is another log than the one that is folded; never return."""
        while True:
            await asyncio.sleep(PROVE_EVERY.total_seconds())
            with suppress(RetryableError):  # Who cannot be asked now is asked again.
                await self._threads.run(self._log.prove)

    def _fail(self, error: Exception) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)

    async def _end(self, app: BatchApp, tasks: Sequence[asyncio.Task[Any]]) -> None:
        for task in tasks:
            task.cancel()
        if not self._failure.done():
            # Results of runs that end now are still appended and folded.
            await self._performer.ended(self.options.stop_within)
            self._failure.cancel()
        await self._assignment.close()
        await app.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._threads.close()
        _log.info("worker.stopped", role=self.role.name, instance=self.options.instance)


def _both(one: Callable[[], None], other: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        one()
        other()

    return call


async def _crash_of(app: BatchApp) -> None:
    """Raise what ended the app from inside."""
    await app.wait_until_stopped()
    raise app.crash_reason or RuntimeFault("the consumer has ended by itself")
