"""The log on Kafka: one topic, whose partitions each open with the record that names the log.

The port is synchronous, as a fold is; the clients run on an event loop in a thread of their own.
Offsets are not counted: nothing here uses transactions, and nothing is compacted, but where
another producer does, its markers are offsets without a record. What it sends is read at once,
committed or not, as by every other reader of the topic.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

from aiokafka.errors import KafkaError
from ombus_schemas.limits import MAX_RECORD_BYTES
from ombus_schemas.topics import ENTRIES

from ombus_streams.engine.kafka.appender import Appended, Appender, Compression, Outgoing
from ombus_streams.engine.kafka.background import Background
from ombus_streams.engine.kafka.broker_errors import OtherLog, broker_error
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.identity import (
    Identity,
    created_in,
    first_records,
    identity_of,
)
from ombus_streams.engine.kafka.readers import Readers
from ombus_streams.engine.kafka.records import sent_headers
from ombus_streams.engine.partitioner import partition_of
from ombus_streams.runtime.errors import LimitExceeded
from ombus_streams.runtime.pages import pages
from ombus_streams.runtime.ports import Draft, LogRecord, Position
from ombus_streams.runtime.tracing import UNTRACED, Tracer

TIMEOUT: Final = timedelta(seconds=30)
"""How long a call waits for the brokers before it says that they are unavailable."""
CLOSE_WITHIN: Final = timedelta(seconds=15)
_PAGE: Final = 2_000
"""Records fetched at once while walking one key."""
_Result = TypeVar("_Result")


class KafkaLog:
    """The log in ``topic``, which ``ombus topics apply`` has made.

    Raises:
        TopicMissing: there is no such topic, or a partition does not open with ``om.log.created``.
        OtherLog: what it opens with names another cluster, topic or partition.
        BrokerUnavailable: nobody answers.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str = ENTRIES,
        *,
        compression: Compression = "zstd",
        timeout: timedelta = TIMEOUT,
        tracer: Tracer = UNTRACED,
    ) -> None:
        self.topic = topic
        self._name = f"topic {topic} at {connection.bootstrap_servers}"
        self._timeout, self._tracer, self._connection = timeout, tracer, connection
        self._background = Background(self._name)
        # Both wait for the first call before they connect.
        self._appender = Appender(connection, topic, compression)
        self._readers = Readers(connection, topic)
        self._last_ms: dict[int, int] = {}
        self._replaying = threading.Lock()
        try:
            self.identity: Identity = self._call(identity_of(connection, topic))
        except BaseException:
            self._background.close()
            raise

    @property
    def incarnation(self) -> str:
        return self.identity.incarnation

    @property
    def partitions(self) -> int:
        return self.identity.partitions

    def partition_of(self, key: bytes) -> int:
        return partition_of(key, self.partitions)

    def append(self, drafts: Sequence[Draft]) -> tuple[Position, ...]:
        """Append and return positions in order, once all replicas in sync have them.

        Drafts of one partition are written whole or not at all while they fit into one record
        batch; between partitions nothing is promised. May be called from many threads.

        Raises:
            BrokerUnavailable: not acknowledged in time, and perhaps written all the same: append
                again, the first entry with an id wins.
            LimitExceeded: a record is larger than the topic takes; nothing was sent.
            NotPermitted, TopicMissing, BrokerRefused: see their way out.
            Closed: after ``close``.
        """
        if any(draft.at_ms is not None for draft in drafts):
            # One at a time: the times a partition has seen must not change in between.
            with self._replaying:
                return self._append(drafts, self._clamped(drafts))
        with self._tracer.appending(drafts) as traced:
            return self._append(traced, [None] * len(drafts))

    def read(self, partition: int, offset: int, max_records: int) -> list[LogRecord]:
        return self._call(self._readers.read(partition, offset, max_records))

    def start(self, partition: int) -> int:
        return self._call(self._readers.starts([partition]))[partition]

    def end(self, partition: int) -> int:
        return self._call(self._readers.ends([partition]))[partition]

    def offset_at(self, partition: int, since_ms: int) -> int:
        """Return the offset of the first record that the broker took at ``since_ms`` or later."""
        return self._call(self._readers.offset_at(partition, since_ms))

    def ends(self) -> dict[int, int]:
        """Return the end of every partition, asked at once."""
        return self._call(self._readers.ends(range(self.partitions)))

    def bounds(self) -> dict[int, tuple[int, int]]:
        """Return start and end of every partition, asked at once."""
        return self._call(self._readers.bounds(range(self.partitions)))

    def prove(self) -> None:
        """Return if the topic still is the log that was opened here.

        A topic that is deleted and made again keeps its name, and its offsets begin anew.

        Raises:
            OtherLog: it is another one by now.
            BrokerError: see its way out.
        """
        first = self._call(first_records(self._connection, self.topic, [0])).get(0)
        created = None if first is None or first.offset > 0 else created_in(first)
        if created is not None and created.incarnation != self.incarnation:
            raise OtherLog(
                self.topic, f"was log {self.incarnation} and is log {created.incarnation} now",
                "what was folded from the old one is of no use here: delete it and start again",
            )  # fmt: skip

    def of_key(self, key: bytes, before: int | None = None) -> Iterator[LogRecord]:
        """Yield the key's records in order; those appended after the first step are left out.

        Kafka has no index by key: the partition is read from its start.
        """
        partition = self.partition_of(key)
        offset, end = self._call(self._readers.bounds([partition]))[partition]
        stop = end if before is None else min(before, end)
        for page in pages(self, partition, offset, stop, _PAGE):
            yield from (record for record in page if record.key == key)

    def close(self) -> None:
        """Finish the appends that were taken in, close the connections. Idempotent."""
        if self._background.is_closed:
            return
        try:
            self._background.run(self._close(), CLOSE_WITHIN)
        except TimeoutError:
            pass  # What is left dies with the loop.
        finally:
            self._background.close()

    def _append(self, drafts: Sequence[Draft], times: Sequence[int | None]) -> tuple[Position, ...]:
        groups: dict[int, list[Outgoing]] = {}
        places: list[tuple[int, int]] = []
        for draft, at_ms in zip(drafts, times, strict=True):
            partition = self.partition_of(draft.key)
            outgoing = Outgoing(draft.key, draft.value, sent_headers(draft, at_ms))
            if outgoing.n_bytes > MAX_RECORD_BYTES:
                fact = f"has {outgoing.n_bytes:,} bytes, the topic takes {MAX_RECORD_BYTES:,}"
                raise LimitExceeded("a record", fact, MAX_RECORD_BYTES)
            group = groups.setdefault(partition, [])
            places.append((partition, len(group)))
            group.append(outgoing)
        written = self._call(self._append_all(groups))
        for draft, at_ms, (partition, index) in zip(drafts, times, places, strict=True):
            if draft.at_ms is not None and at_ms is not None:
                self._last_ms[partition] = at_ms
            elif partition in self._last_ms:
                self._last_ms[partition] = written[partition][index].at_ms
        return tuple(
            Position(self.incarnation, partition, written[partition][index].offset)
            for partition, index in places
        )

    async def _append_all(self, groups: dict[int, list[Outgoing]]) -> dict[int, list[Appended]]:
        written = await asyncio.gather(
            *(self._append_group(partition, records) for partition, records in groups.items())
        )
        return dict(zip(groups, written, strict=True))

    async def _append_group(self, partition: int, records: list[Outgoing]) -> list[Appended]:
        found: list[Appended] = []
        for batch in _batches(records):
            first = await self._appender.append(partition, batch)
            found += (Appended(first.offset + n, first.at_ms) for n in range(len(batch)))
            self._readers.note(partition, first.offset + len(batch))
        return found

    def _clamped(self, drafts: Sequence[Draft]) -> list[int | None]:
        """Return the original times, none before one that its partition has seen already."""
        lasts: dict[int, int] = {}
        times: list[int | None] = []
        for draft in drafts:
            partition = self.partition_of(draft.key)
            if draft.at_ms is None:
                times.append(None)
                continue
            last = lasts.get(partition)
            last = self._last(partition) if last is None else last
            lasts[partition] = max(last, draft.at_ms)
            times.append(lasts[partition])
        return times

    def _last(self, partition: int) -> int:
        """Return the time of the newest replayed record of a partition, 0 if there is none."""
        known = self._last_ms.get(partition)
        if known is None:
            last = self.read(partition, max(self.end(partition) - 1, 0), 1)
            known = last[0].at_ms if last and last[0].offset > 0 else 0
            self._last_ms[partition] = known
        return known

    def _call(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        try:
            return self._background.run(work, self._timeout)
        except (KafkaError, OSError, TimeoutError) as error:
            raise broker_error(self._name, error) from error

    async def _close(self) -> None:
        await self._appender.close()
        await self._readers.close()


def _batches(records: list[Outgoing]) -> Iterator[list[Outgoing]]:
    """Cut what does not fit into one record batch."""
    batch: list[Outgoing] = []
    n_bytes = 0
    for record in records:
        if batch and n_bytes + record.n_bytes > MAX_RECORD_BYTES:
            yield batch
            batch, n_bytes = [], 0
        batch.append(record)
        n_bytes += record.n_bytes
    yield batch
