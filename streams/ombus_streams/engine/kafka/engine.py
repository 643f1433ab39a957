"""The memory as one process on Kafka serves it: rows of the partitions it owns, the log for all.

The fold runs where ``run`` runs; everything else may be called from any thread. A partition is
answered for only while nobody else can own it (``Standing``) and its fold has caught up; both are
asked again after an answer was made, so a process that stood still says nothing old.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import structlog
from ombus_schemas.codec import encode, key_of
from ombus_schemas.entries import Entry
from ombus_schemas.headers import headers_of

from ombus_streams.engine.embedded.engine import Reading
from ombus_streams.engine.kafka.gauges import WorkerGauges
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.partition import Partition
from ombus_streams.engine.kafka.replicas import Replicas
from ombus_streams.engine.kafka.snapshot import Snapshot
from ombus_streams.engine.kafka.standing import Owner
from ombus_streams.engine.kafka.store import RocksState
from ombus_streams.engine.kafka.worker import Worker
from ombus_streams.memory import keys
from ombus_streams.memory.rows import Overlay
from ombus_streams.memory.session import Session
from ombus_streams.runtime.errors import NotServed, RuntimeFault
from ombus_streams.runtime.metrics import Sample
from ombus_streams.runtime.ports import Clock, Draft, Position
from ombus_streams.runtime.telemetry import Telemetry

KEEP_UP_SECONDS: Final = 1.0
"""How often replicas fold what has come."""
_LONGEST_NAP_S: Final = 0.25
"""A partition that moved away wakes nobody."""

_log = structlog.get_logger("ombus.engine")

Hire = Callable[[Callable[[], None]], Worker]
"""Returns the worker that folds, on the event loop it is to live on, told whom to give news."""


class KafkaEngine:
    """See the module. ``close`` closes what was given, in the order of ``closing``."""

    def __init__(
        self,
        log: KafkaLog,
        state: RocksState,
        hire: Hire,
        *,
        replicas: Replicas | None = None,
        closing: Sequence[Callable[[], None]] = (),
        telemetry: Telemetry | None = None,
        clock: Clock,
    ) -> None:
        """``replicas``: partitions of others, folded, too, and read when their owners are gone."""
        self.telemetry, self._clock = telemetry or Telemetry(), clock
        self._gauges: WorkerGauges | None = None
        self.log, self._replicas = log, replicas
        self._state, self._hire, self._closing = state, hire, tuple(closing)
        self._worker: Worker | None = None
        self._news = threading.Condition()

    async def run(self, stop: asyncio.Event) -> None:
        """Fold what is assigned, and do the work of the worker's role, until ``stop`` is set."""
        worker = self._worker = self._hire(self._tell)
        self._gauges = WorkerGauges(worker, self._clock)
        keeping_up = asyncio.create_task(self._keep_up())
        try:
            await worker.run(stop)
        finally:
            self._worker = self._gauges = None
            keeping_up.cancel()
            await asyncio.gather(keeping_up, return_exceptions=True)

    def append(self, entries: Sequence[Entry]) -> tuple[Position, ...]:
        """Append admitted entries, acknowledged by all replicas in sync, in order."""
        return self.log.append(
            [
                Draft(key=key_of(entry), value=encode(entry), headers=headers_of(entry))
                for entry in entries
            ]
        )

    def owner_of(self, partition: int) -> Owner | None:
        """Return who answers for a partition as far as this member knows."""
        return None if self._worker is None else self._worker.standing.owner_of(partition)

    @property
    def owners(self) -> tuple[Owner, ...]:
        """Who answers for what as far as this member knows."""
        return () if self._worker is None else self._worker.standing.owners

    @property
    def has_replicas(self) -> bool:
        """Say whether partitions of others can be read here."""
        return self._replicas is not None

    @property
    def served(self) -> frozenset[int]:
        """The partitions this process answers for now."""
        worker = self._worker
        if worker is None or not worker.standing.is_current:
            return frozenset()
        opened = ((number, worker.partition(number)) for number in worker.numbers)
        return frozenset(number for number, each in opened if each is not None and each.is_ready)

    def serves(self, partition: int) -> bool:
        """Say whether reads of a partition are answered here now."""
        return partition in self.served

    def check(self, partition: int) -> Partition:
        """Return a partition this process answers for.

        Raises:
            NotServed: it does not, or not now; with its progress while it catches up.
        """
        worker = self._worker
        if worker is None or partition not in worker.numbers or not worker.standing.is_current:
            raise NotServed(partition)
        opened = worker.partition(partition)
        if opened is None:
            raise NotServed(partition)
        if not opened.is_ready:
            folded, end = self._at(partition, opened.next_offset), self._at(partition, opened.end)
            raise NotServed(partition, folded, end)
        return opened

    def folded(self, partition: int) -> int:
        """Return the first offset that is not folded yet; of a replica this blocks.

        Raises: as ``check``.
        """
        if self._replicas is not None and not self.serves(partition):
            return self._replicas.folded(partition)
        return self.check(partition).next_offset

    def wait(self, ends: Mapping[int, int], timeout: timedelta) -> bool:
        """Say whether a partition of this process was folded past the end named for it."""
        deadline = time.monotonic() + timeout.total_seconds()
        with self._news:
            while not self._is_past(ends):
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._news.wait(min(left, _LONGEST_NAP_S))
        return True

    @contextmanager
    def reading(self, key: bytes) -> Iterator[Reading]:
        """Lend a session as it stands at one instant.

        Raises:
            NotServed: before, or at the end: then what was read is not to be told.
        """
        partition = self.log.partition_of(key)
        with self.rows(partition) as rows:
            row = rows.position()
            offset = row.next_offset if row else 0
            yield Reading(Session(key, Overlay(rows)), self._at(partition, offset))

    @contextmanager
    def rows(self, partition: int) -> Iterator[Snapshot]:
        """Lend the rows of a partition as they stand at one instant.

        Raises: as ``reading``.
        """
        if self._replicas is not None and not self.serves(partition):
            with self._replicas.rows(partition) as rows:
                yield rows
            return
        self.check(partition)
        with self._state.snapshot(partition) as rows:
            yield rows
        self.check(partition)

    def sessions(self) -> list[bytes]:
        """Return the keys of the sessions in the partitions this process answers for, sorted."""
        prefix = keys.session_mark()
        found: list[bytes] = []
        for partition in self.served:
            with self.rows(partition) as rows:
                found += [key[len(prefix) :] for key, _ in rows.scan(prefix)]
        return sorted(found)

    def lag(self) -> int:
        """Return how many records of this process's partitions are not folded yet."""
        worker, total = self._worker, 0
        if worker is None:
            return total
        for number in worker.numbers:
            opened, end = worker.partition(number), worker.end_of(number)
            if opened is not None:
                total += max(0, (end or opened.end) - opened.next_offset)
        return total

    def samples(self) -> list[Sample]:
        """Return how far this process's partitions are, for ``/metrics``."""
        return [] if self._gauges is None else self._gauges.samples()

    def close(self) -> None:
        """Close rows and logs. Idempotent; ``run`` must be over."""
        for close in self._closing:
            close()

    async def _keep_up(self) -> None:
        replicas = self._replicas
        while replicas is not None:
            await asyncio.sleep(KEEP_UP_SECONDS)
            try:
                await asyncio.to_thread(replicas.keep_up, self.served)
            except RuntimeFault as error:
                # Nobody reads them now; whoever does is told by name.
                _log.warning("replicas.delayed", failure=type(error).__name__, reason=str(error))

    def _at(self, partition: int, offset: int) -> Position:
        return Position(self.log.incarnation, partition, offset)

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()

    def _is_past(self, ends: Mapping[int, int]) -> bool:
        worker = self._worker
        if worker is None:
            return False
        opened = ((worker.partition(number), end) for number, end in ends.items())
        return any(each is not None and each.next_offset > end for each, end in opened)
