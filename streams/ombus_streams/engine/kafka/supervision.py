"""Delegations on Kafka: every process keeps its own fold of the topic, a group says who decides.

The topic is small beside the entries, and a decision about a child session looks at its parent's
partition, so all partitions are folded everywhere. Membership only hands out the right to decide;
an old owner that does not know of its end appends events of which the fold takes the first.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final

import structlog
from ombus_schemas.entries import Entry

from ombus_streams.engine.kafka.app import BatchApp, Membership, create_app
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.snapshot import Snapshot
from ombus_streams.engine.kafka.status import Counts, PartitionStatus, WorkerStatus
from ombus_streams.engine.kafka.store import RocksState
from ombus_streams.runtime.delegation_fold import DelegationFold
from ombus_streams.runtime.errors import RetryableError, RuntimeFault
from ombus_streams.runtime.hooks import Hooks
from ombus_streams.runtime.ports import Clock, LogRecord, Position
from ombus_streams.runtime.supervisor import KEPT_UNTOLD, Supervisor, append
from ombus_streams.supervision.checks import HostPolicy

ROLE: Final = "supervisor"
POLL: Final = timedelta(milliseconds=50)
RETRY: Final = timedelta(seconds=1)
"""How soon the brokers are asked again when they were away."""

_log = structlog.get_logger("ombus.supervision")


class Deciders:
    """Which partitions a member of the group decides about; it reads no record of them."""

    def __init__(self, log: KafkaLog, instance: str) -> None:
        self._log, self.instance = log, instance
        self.ends: dict[int, int] = {}
        """Where the assigned partitions ended: before that is folded nothing is decided."""
        self.has_joined = False
        """The group has said which partitions are assigned here, perhaps none."""

    @property
    def topic(self) -> str:
        return self._log.topic

    async def assigned(self, partitions: Sequence[int]) -> Mapping[int, int]:
        self.ends = {
            each: await asyncio.to_thread(self._log.end, each) for each in sorted(partitions)
        }
        self.has_joined = True
        _log.info("partitions.assigned", role=ROLE, partitions=sorted(partitions))
        return {}

    async def given(self, app: object, *given: Collection[object], **said: object) -> None:
        """Take note if nothing is assigned here: Faust has nothing opened then."""
        if not any(given):
            await self.assigned(())

    async def revoked(self, partitions: Iterable[int]) -> None:
        self.has_joined = False
        for each in partitions:
            self.ends.pop(each, None)

    def decides(self, partition: int, next_offset: int) -> bool | None:
        """Say whether a partition that is folded so far is decided about here.

        ``None``: nobody knows yet, or it will be once it is folded.
        """
        end = self.ends.get(partition)
        if end is None:
            return False if self.has_joined else None
        return True if next_offset >= end else None

    async def fold(self, partition: int, records: Sequence[LogRecord]) -> int | None:
        return None

    async def passed_over(self, partition: int) -> None:
        """Nothing is read here."""

    async def lost(self, partition: int) -> None:
        """Nothing is read here."""


class KafkaSupervision:
    """The fold of all delegations; with ``instance`` a member of the group that decides.

    It owns log and state: ``close`` closes both.
    """

    def __init__(
        self,
        connection: Connection,
        log: KafkaLog,
        state: RocksState,
        host: HostPolicy,
        hooks: Hooks,
        clock: Clock,
        redact: Callable[[str], str],
        *,
        instance: str | None = None,
        group_prefix: str = "ombus",
        membership: Membership | None = None,
    ) -> None:
        self.log, self.state = log, state
        self._connection, self._group_prefix = connection, group_prefix
        self._membership = membership
        self._deciders = None if instance is None else Deciders(log, instance)
        tells = instance is not None and hooks.has_after
        # Machines come and go: one that has no rows does not know what the others told.
        history_ms = int((clock.now() - KEPT_UNTOLD).timestamp() * 1_000)
        self._folds = {
            each: DelegationFold(state.store(each), log, each, tells=tells, history_ms=history_ms)
            for each in range(log.partitions)
        }
        self._supervisor = Supervisor(
            log, self._folds, host, hooks, clock, redact, self._is_decided_here
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Fold, and decide about what is assigned, until ``stop`` is set.

        Raises:
            LogContradicts, StoreError: see their way out.
            RuntimeFault: the group's consumer has ended by itself.
        """
        app = self._app()
        if app is not None:
            await app.start()
        crashed = None if app is None else asyncio.create_task(app.wait_until_stopped())
        try:
            while not stop.is_set():
                if crashed is not None and crashed.done():
                    assert app is not None
                    raise app.crash_reason or RuntimeFault("the consumer has ended by itself")
                pause = POLL
                try:
                    n_batches = await asyncio.to_thread(self._fold)
                    n_events = await self._supervisor.act() if app is not None else 0
                except RetryableError as error:
                    _log.warning("supervision.delayed", failure=type(error).__name__)
                    n_batches = n_events = 0
                    pause = RETRY
                if not n_batches + n_events:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), pause.total_seconds())
        finally:
            await self._supervisor.close()
            if app is not None and crashed is not None:
                await app.stop()
                await asyncio.gather(crashed, return_exceptions=True)

    def append(self, entries: Sequence[Entry]) -> tuple[Position, ...]:
        """Append events, durably, in order."""
        return append(self.log, entries)

    @contextmanager
    def rows(self, key: bytes) -> Iterator[Snapshot]:
        """Lend the rows of a parent's partition as they stand here at one instant."""
        with self.state.snapshot(self.log.partition_of(key)) as rows:
            yield rows

    def folded(self, partition: int) -> int:
        """Return the first offset of a partition that is not folded here yet."""
        return self._folds[partition].next_offset

    def wait(self, ends: Mapping[int, int], timeout: timedelta) -> bool:
        """Say whether a partition of the log has grown past the end named for it."""
        deadline = time.monotonic() + timeout.total_seconds()
        while True:
            found = self.log.ends()
            if any(found[each] > end for each, end in ends.items()):
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL.total_seconds())

    def status(self) -> WorkerStatus:
        """Return how far the partitions are that this process decides about."""
        ends = {} if self._deciders is None else dict(self._deciders.ends)
        found = tuple(
            PartitionStatus(
                partition=each,
                is_ready=self.folded(each) >= end,
                next_offset=self.folded(each),
                catch_up_to=end,
                end=None,
            )
            for each, end in sorted(ends.items())
        )
        instance = "" if self._deciders is None else self._deciders.instance
        return Counts().status(ROLE, instance, found, 0)

    def close(self) -> None:
        """Close log and rows. Idempotent."""
        self.state.close()
        self.log.close()

    def _fold(self) -> int:
        """Fold what the log has beyond the rows; return how many partitions had something."""
        ends = self.log.ends()
        behind = [each for each, fold in self._folds.items() if fold.next_offset < ends[each]]
        return sum(map(self._supervisor.fold_one, behind))

    def _is_decided_here(self, partition: int) -> bool | None:
        if self._deciders is None:
            return False
        return self._deciders.decides(partition, self.folded(partition))

    def _app(self) -> BatchApp | None:
        if self._deciders is None:
            return None
        app = create_app(
            ROLE,
            self._connection,
            self._deciders,
            group_prefix=self._group_prefix,
            membership=self._membership,
        )
        app.on_partitions_assigned.connect(self._deciders.given)  # type: ignore[arg-type]
        return app
