"""The milestones role on Kafka: a group of its own over the entries, rows in RocksDB.

Members share the partitions. Of a partition that moves, the new owner goes on from its own rows or
folds it anew; what it says again has the ids it had, and whoever folds the events passes it over.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
import structlog

from ombus_streams.engine.kafka.app import Membership, create_app
from ombus_streams.engine.kafka.assignment import Reader
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.status import Counts, PartitionStatus, WorkerStatus
from ombus_streams.engine.kafka.store import RocksState
from ombus_streams.engine.kafka.threads import Threads
from ombus_streams.runtime.deriver import Deriver
from ombus_streams.runtime.errors import Closed, RetryableError, RuntimeFault, StalePosition
from ombus_streams.runtime.ports import LogRecord

NAME: Final = "milestones"
RETRY_S: Final = 1.0

_log = structlog.get_logger("ombus.worker")


class _Opened(msgspec.Struct):
    deriver: Deriver
    end: int
    """Where the log ended when the partition was opened."""

    @property
    def is_ready(self) -> bool:
        return self.deriver.next_offset >= self.end


class MilestonesWorker:
    """One member. It does not own logs and state: who made them closes them."""

    def __init__(
        self,
        instance: str,
        connection: Connection,
        entries: KafkaLog,
        events: KafkaLog,
        state: RocksState,
        secrets: Sequence[str] = (),
        *,
        group_prefix: str = "ombus",
        membership: Membership | None = None,
    ) -> None:
        self.instance, self._connection = instance, connection
        self._entries, self._events, self._state = entries, events, state
        self._secrets, self._group_prefix = tuple(secrets), group_prefix
        self._membership = membership
        self._threads, self._counts = Threads("ombus-milestones", 4), Counts()
        self._opened: dict[int, _Opened] = {}
        self._numbers: frozenset[int] = frozenset()
        self._reader: Reader | None = None
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def topic(self) -> str:
        return self._entries.topic

    async def run(self, stop: asyncio.Event) -> None:
        """Derive until ``stop`` is set.

        Raises:
            RuntimeFault: see its way out.
        """
        app = create_app(
            NAME,
            self._connection,
            self,
            group_prefix=self._group_prefix,
            membership=self._membership,
        )
        self._reader = app.batch_consumer
        stopped = asyncio.create_task(stop.wait())
        crashed = asyncio.create_task(app.wait_until_stopped())
        try:
            await app.start()
            _log.info("worker.started", role=NAME, instance=self.instance)
            await asyncio.wait(
                (stopped, crashed, self._failure), return_when=asyncio.FIRST_COMPLETED
            )
            if self._failure.done():
                self._failure.result()
            if crashed.done():
                raise app.crash_reason or RuntimeFault("the consumer has ended by itself")
        finally:
            self._failure.cancel()
            await self.revoked(self._numbers)
            await app.stop()
            for each in (stopped, crashed):
                each.cancel()
            await asyncio.gather(stopped, crashed, return_exceptions=True)
            await self._threads.close()
            _log.info("worker.stopped", role=NAME, instance=self.instance)

    def status(self) -> WorkerStatus:
        """Return how far it is; ready means that every partition has caught up."""
        found: list[PartitionStatus] = []
        for number in sorted(self._numbers):
            opened = self._opened.get(number)
            found.append(
                PartitionStatus(
                    partition=number,
                    is_ready=opened is not None and opened.is_ready,
                    next_offset=0 if opened is None else opened.deriver.next_offset,
                    catch_up_to=None if opened is None else opened.end,
                    end=None,
                )
            )
        return self._counts.status(NAME, self.instance, tuple(found), 0)

    async def assigned(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """Open partitions; return where to read each from."""
        self._numbers = frozenset(partitions)
        for number in self._state.opened() - self._numbers:
            await self._threads.run(partial(self._state.release, number))
        offsets: dict[int, int] = {}
        for number in partitions:
            try:
                opened = await self._threads.run(partial(self._open, number))
            except Exception as error:
                self._fail(error)
                return offsets
            if number in self._numbers:
                self._opened[number] = opened
                offsets[number] = opened.deriver.next_offset
            else:
                opened.deriver.store.close()
        _log.info("partitions.assigned", role=NAME, partitions=sorted(offsets))
        return offsets

    async def revoked(self, partitions: Iterable[int]) -> None:
        """Close partitions: nothing of them is written after this returns."""
        gone = frozenset(partitions)
        self._numbers -= gone
        for number in gone:
            opened = self._opened.pop(number, None)
            if opened is not None:
                opened.deriver.store.close()

    async def fold(self, partition: int, records: Sequence[LogRecord]) -> int | None:
        """Derive from records and send what they said; ``None``: the partition is not open."""
        opened = self._opened.get(partition)
        if opened is None:
            return None
        deriver = opened.deriver
        fresh = [record for record in records if record.offset >= deriver.next_offset]
        try:
            if fresh and fresh[0].offset > deriver.next_offset:
                # Markers leave gaps, and so do records that were never handed over.
                n_records = await self._threads.run(deriver.step)
            else:
                n_records = await self._threads.run(partial(deriver.take, fresh))
        except Closed:
            return None
        except (RetryableError, StalePosition) as error:
            await self._again(partition, error)
            return None
        except Exception as error:
            self._fail(error)
            return None
        self._counts.n_records += n_records
        if fresh and deriver.next_offset <= fresh[-1].offset:
            await self.passed_over(partition)
            return None
        return deriver.next_offset

    async def passed_over(self, partition: int) -> None:
        """Read on from the position: records were fetched, and not handed over."""
        opened = self._opened.get(partition)
        if opened is not None and self._reader is not None:
            await self._reader.read_from({partition: opened.deriver.next_offset})

    async def lost(self, partition: int) -> None:
        """Open the partition again: the log does not have the offset that was asked for."""
        await self._again(partition, RetryableError("the log does not have the next offset"))

    def _open(self, number: int) -> _Opened:
        deriver = Deriver(
            self._state.store(number), self._entries, self._events, number, self._secrets
        )
        return _Opened(deriver, self._entries.end(number))

    async def _again(self, number: int, error: Exception) -> None:
        """Open a partition again after a while; what was sent and not noted is sent again."""
        _log.warning("partition.delayed", role=NAME, partition=number, failure=type(error).__name__)
        opened = self._opened.pop(number, None)
        if opened is not None:
            opened.deriver.store.close()
        while number in self._numbers:
            await asyncio.sleep(RETRY_S)
            try:
                fresh = await self._threads.run(partial(self._open, number))
            except (RetryableError, Closed):
                continue
            except Exception as fatal:
                self._fail(fatal)
                return
            if number not in self._numbers:
                fresh.deriver.store.close()
                return
            self._opened[number] = fresh
            await self.passed_over(number)
            return

    def _fail(self, error: Exception) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)
