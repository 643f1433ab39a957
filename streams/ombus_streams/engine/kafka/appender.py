"""Appending to a topic: idempotent, acknowledged by all replicas in sync, in order per partition.

Each partition has a lane that sends one record batch at a time; what arrives meanwhile shares the
next one. A batch is written whole or not at all, so the drafts of one append that go to the same
partition stay together while they fit into it. After any failure the producer is replaced: its
sequence numbers have a gap then, and the broker would refuse all that follows.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, Literal, Protocol, cast

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka_errors
from ombus_schemas.limits import MAX_RECORD_BYTES

from ombus_streams.engine.kafka.connection import Connection, client_options
from ombus_streams.engine.kafka.records import Headers

Compression = Literal["gzip", "lz4", "snappy", "zstd", "none"]
"""All but gzip come with the package ``cramjam``, which readers need for what others have sent."""

MAX_BATCH_BYTES: Final = 1_048_576
"""Records of several appends share a batch up to this size, before compression."""
MAX_PENDING_BYTES: Final = 33_554_432
"""Taken in and not acknowledged; who appends more waits."""
STOP_WITHIN: Final = timedelta(seconds=5)
_RECORD_OVERHEAD: Final = 64
"""Lengths, offset and time of a record, and its share of the batch's header; an upper bound."""
_NO_OFFSET: Final = -1


class Outgoing(msgspec.Struct, frozen=True):
    """One record on its way."""

    key: bytes
    value: bytes
    headers: Headers

    @property
    def n_bytes(self) -> int:
        n_headers = sum(len(name) + len(value) + 10 for name, value in self.headers)
        return len(self.key) + len(self.value) + n_headers + _RECORD_OVERHEAD


class Appended(msgspec.Struct, frozen=True):
    """Where the first record of a group lies, and when the broker wrote it."""

    offset: int
    at_ms: int


class _Acknowledged(Protocol):
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...


class _Group:
    """Records of one append for one partition, and who waits for them."""

    def __init__(self, records: Sequence[Outgoing]) -> None:
        self.records = records
        self.n_bytes = sum(record.n_bytes for record in records)
        self.answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()


class _Lane:
    """The groups that wait for a partition, and the task that sends them."""

    def __init__(self) -> None:
        self.waiting: deque[_Group] = deque()
        self.sender: asyncio.Task[None] | None = None


class Appender:
    """Appends to one topic. Lives on one event loop."""

    def __init__(self, connection: Connection, topic: str, compression: Compression) -> None:
        self._connection, self._topic, self._compression = connection, topic, compression
        self._producer: AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        self._lanes: dict[int, _Lane] = {}
        self._n_pending_bytes = 0
        self._room = asyncio.Condition()

    async def append(self, partition: int, records: Sequence[Outgoing]) -> Appended:
        """Return where the first of ``records`` lies once all of them are acknowledged.

        They are contiguous if they fit into one batch (``MAX_RECORD_BYTES``); a longer sequence
        must be cut by the caller.

        Raises:
            KafkaError: see ``broker_error``; the records may have been written all the same.
        """
        group = _Group(records)
        async with self._room:
            await self._room.wait_for(lambda: self._has_room(group))
            self._n_pending_bytes += group.n_bytes
        lane = self._lanes.setdefault(partition, _Lane())
        lane.waiting.append(group)
        if lane.sender is None or lane.sender.done():
            lane.sender = asyncio.create_task(self._send_all(partition, lane))
        try:
            return await group.answer
        finally:
            async with self._room:
                self._n_pending_bytes -= group.n_bytes
                self._room.notify_all()

    async def close(self) -> None:
        """Send what was taken in, for a while, then let the connections go."""
        senders = [lane.sender for lane in self._lanes.values() if lane.sender is not None]
        if senders:
            await asyncio.wait(senders, timeout=STOP_WITHIN.total_seconds())
        self._retire(self._producer)
        if self._retiring:
            await asyncio.wait(self._retiring)

    def _has_room(self, group: _Group) -> bool:
        n_bytes = self._n_pending_bytes + group.n_bytes
        return self._n_pending_bytes == 0 or n_bytes <= MAX_PENDING_BYTES

    async def _send_all(self, partition: int, lane: _Lane) -> None:
        while groups := _next_groups(lane):
            try:
                sent = await self._send(partition, [each for g in groups for each in g.records])
            except BaseException as error:
                for group in groups:
                    _fail(group, error)
                if not isinstance(error, Exception):
                    for group in lane.waiting:
                        _fail(group, error)
                    raise
                continue
            offset = sent.offset
            for group in groups:
                if not group.answer.done():
                    group.answer.set_result(Appended(offset, sent.at_ms))
                offset += len(group.records)

    async def _send(self, partition: int, records: Sequence[Outgoing]) -> Appended:
        producer = await self._started()
        batch = producer.create_batch()
        for record in records:
            added = batch.append(
                timestamp=None, key=record.key, value=record.value, headers=list(record.headers)
            )
            if added is None:
                raise kafka_errors.MessageSizeTooLargeError(f"{len(records)} records in one batch")
        batch.close()
        try:
            delivered = await producer.send_batch(batch, self._topic, partition=partition)
            acknowledged = cast(_Acknowledged, await delivered)
            if acknowledged.offset == _NO_OFFSET:
                # Written before, but the broker has forgotten where: the caller must not guess.
                raise kafka_errors.KafkaTimeoutError("written, the broker cannot say where")
        except BaseException:
            self._retire(producer)
            raise
        return Appended(acknowledged.offset, acknowledged.timestamp)

    async def _started(self) -> AIOKafkaProducer:
        async with self._starting:
            if self._producer is None:
                producer = _producer(self._connection, self._compression)
                try:
                    await producer.start()
                except BaseException:
                    await producer.stop()
                    raise
                self._producer = producer
            return self._producer

    def _retire(self, producer: AIOKafkaProducer | None) -> None:
        """Stop using ``producer``, and close it in the background."""
        if producer is None or producer is not self._producer:
            return
        self._producer = None
        task = asyncio.create_task(_stop(producer))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)


def _next_groups(lane: _Lane) -> list[_Group]:
    """Take the groups of the next batch; those nobody waits for any more are not sent."""
    groups: list[_Group] = []
    n_bytes = 0
    while lane.waiting:
        n_bytes += lane.waiting[0].n_bytes
        if groups and n_bytes > MAX_BATCH_BYTES:
            break
        group = lane.waiting.popleft()
        if group.answer.done():
            n_bytes -= group.n_bytes
        else:
            groups.append(group)
    return groups


def _producer(connection: Connection, compression: Compression) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        **client_options(connection),
        acks="all",
        enable_idempotence=True,
        compression_type=None if compression == "none" else compression,
        max_batch_size=MAX_RECORD_BYTES,
        max_request_size=MAX_RECORD_BYTES + MAX_BATCH_BYTES,
    )


async def _stop(producer: AIOKafkaProducer) -> None:
    """Close a producer; batches it cannot deliver soon are given up."""
    stopping: Any = producer.stop()
    try:
        await asyncio.wait_for(stopping, STOP_WITHIN.total_seconds())
    except (TimeoutError, kafka_errors.KafkaError):
        await producer.client.close()


def _fail(group: _Group, error: BaseException) -> None:
    if group.answer.done():
        return
    if isinstance(error, Exception):
        group.answer.set_exception(error)
    else:
        group.answer.cancel()
