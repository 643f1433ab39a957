"""Reading a topic by partition and offset, for several callers at once.

A reader is a consumer without a group that has one partition. A caller that goes on where the
last one stopped gets the same reader, with what it has fetched ahead; another one seeks. Readers
are paused between calls and never asked for records past the end, so none ever waits for news.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors
from ombus_schemas.limits import MAX_RECORD_BYTES

from ombus_streams.engine.kafka.connection import Connection, client_options
from ombus_streams.engine.kafka.ends import Ends
from ombus_streams.engine.kafka.unpacking import to_log_records, unpack_to_log_records
from ombus_streams.runtime.ports import LogRecord

MAX_READERS: Final = 4
"""Connections for reading; more callers wait for one to come back."""
_POLL_MS: Final = 100
"""How long a read waits before it looks how far it is: markers move it on and wake nobody."""
_FETCH_BYTES: Final = 2 * MAX_RECORD_BYTES


class Readers:
    """Reads one topic. Lives on one event loop."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection, self._topic = connection, topic
        self._ends = Ends(topic)
        self._idle: list[_Reader] = []
        self._slots = asyncio.Semaphore(MAX_READERS)
        self._n_open = 0

    async def read(self, partition: int, offset: int, max_records: int) -> list[LogRecord]:
        """Return the records from ``offset`` on, up to the end as it is now."""
        async with self._lent(partition, offset) as reader:
            found = await reader.read(partition, offset, max_records)
        if found:
            self.note(partition, found[-1].offset + 1)
        return found

    def note(self, partition: int, end: int) -> None:
        """Take note that a record lies right below ``end``."""
        self._ends.note(partition, end)

    async def starts(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return the first offset kept, per partition."""
        async with self._lent(_ANY, _ANY) as reader:
            return await reader.starts(partitions)

    async def ends(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return where the records end, per partition."""
        async with self._lent(_ANY, _ANY) as reader:
            return await reader.ends(self._ends, partitions)

    async def bounds(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return the first offset kept and where the records end, per partition."""
        async with self._lent(_ANY, _ANY) as reader:
            starts = await reader.starts(partitions)
            ends = await reader.ends(self._ends, partitions)
        return {each: (starts[each], max(starts[each], ends[each])) for each in partitions}

    async def offset_at(self, partition: int, since_ms: int) -> int:
        """Return the first offset of that time or later: the end, if there is none."""
        async with self._lent(_ANY, _ANY) as reader:
            return await reader.offset_at(partition, since_ms)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().stop()
            self._n_open -= 1

    @asynccontextmanager
    async def _lent(self, partition: int, offset: int) -> AsyncIterator["_Reader"]:
        async with self._slots:
            reader = self._take(partition, offset)
            if reader is None:
                reader = await _Reader.started(self._connection, self._topic)
                self._n_open += 1
            try:
                yield reader
            except BaseException:
                # Whatever state it is in: the next caller starts afresh.
                self._n_open -= 1
                await reader.stop()
                raise
            self._idle.append(reader)

    def _take(self, partition: int, offset: int) -> "_Reader | None":
        for reader in self._idle:
            if reader.place == (partition, offset):
                self._idle.remove(reader)
                return reader
        if self._idle and (partition == _ANY or self._n_open == MAX_READERS):
            # First one that nobody goes on with.
            found = min(self._idle, key=lambda each: each.place is not None)
            self._idle.remove(found)
            return found
        return None


async def lone_consumer(connection: Connection) -> AIOKafkaConsumer:
    """Return a consumer without a group, started, that stands where it is put."""
    unpack_to_log_records()
    consumer = AIOKafkaConsumer(
        **client_options(connection),
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        max_partition_fetch_bytes=_FETCH_BYTES,
        fetch_max_bytes=_FETCH_BYTES,
        fetch_max_wait_ms=100,
        value_deserializer=to_log_records,
    )
    try:
        await consumer.start()
    except BaseException:
        await consumer.stop()
        raise
    return consumer


class _Reader:
    """One consumer and where it stands."""

    def __init__(self, consumer: AIOKafkaConsumer, topic: str) -> None:
        self._consumer, self._topic = consumer, topic
        self.place: tuple[int, int] | None = None
        """The offset its last caller will go on from; between that and its own lie markers."""

    @classmethod
    async def started(cls, connection: Connection, topic: str) -> "_Reader":
        return cls(await lone_consumer(connection), topic)

    async def stop(self) -> None:
        await self._consumer.stop()

    async def read(self, partition: int, offset: int, max_records: int) -> list[LogRecord]:
        where = TopicPartition(self._topic, partition)
        end = (await self._consumer.end_offsets([where]))[where]
        if max_records <= 0 or offset >= end:
            return []
        self._go_to(where, offset)
        found: list[LogRecord] = []
        try:
            # The consumer's place and not the last record: behind it may lie markers alone.
            while len(found) < max_records and await self._consumer.position(where) < end:
                try:
                    records = await self._consumer.getmany(
                        where, timeout_ms=_POLL_MS, max_records=max_records - len(found)
                    )
                except kafka_errors.OffsetOutOfRangeError:
                    # Retention has taken what lay here, before the read or in the middle of it.
                    start = (await self._consumer.beginning_offsets([where]))[where]
                    self._consumer.seek(where, start)
                    continue
                found += cast("list[LogRecord]", records.get(where, []))
        finally:
            self._consumer.pause(where)
        self.place = (partition, found[-1].offset + 1 if found else offset)
        return found

    async def starts(self, partitions: Sequence[int]) -> dict[int, int]:
        places = [TopicPartition(self._topic, partition) for partition in partitions]
        starts = await self._consumer.beginning_offsets(places)
        return {each.partition: starts[each] for each in places}

    async def ends(self, ends: Ends, partitions: Sequence[int]) -> dict[int, int]:
        self.place = None
        return await ends.ask(self._consumer, partitions)

    async def offset_at(self, partition: int, since_ms: int) -> int:
        where = TopicPartition(self._topic, partition)
        found = (await self._consumer.offsets_for_times({where: since_ms}))[where]
        if found is None:
            found = (await self._consumer.end_offsets([where]))[where]
            return int(found)
        return int(found.offset)

    def _go_to(self, where: TopicPartition, offset: int) -> None:
        if self.place is None or self.place[0] != where.partition:
            self._consumer.assign([where])
            self._consumer.pause(where)
        if self.place != (where.partition, offset):
            self._consumer.seek(where, offset)
        self.place = None
        self._consumer.resume(where)


_ANY: Final = -1
"""No partition: any reader will do."""
