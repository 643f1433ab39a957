"""``ombus.scope.grants`` on Kafka: its end for every read, its records as they come.

Reads bring their lower bound from the broker. Those that ask while a request is under way share
the next one, never that one: what they are told was asked after they began (design.md section 10).
"""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Final, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from ombus_schemas.limits import MAX_RECORD_BYTES
from ombus_schemas.topics import GRANTS

from ombus_streams.engine.kafka.background import Background, Result
from ombus_streams.engine.kafka.broker_errors import broker_error
from ombus_streams.engine.kafka.connection import Connection, client_options
from ombus_streams.engine.kafka.leniency import tolerate_header_names
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.records import KafkaRecord, log_record
from ombus_streams.runtime.ports import LogRecord

END_WITHIN: Final = timedelta(seconds=2)
"""How long a read waits for the broker; then it is denied."""


class GrantEnds:
    """Where the partitions of a grants log end; for several threads."""

    def __init__(self, connection: Connection, log: KafkaLog) -> None:
        self.incarnation, self._log = log.incarnation, log
        self._connection, self._name = connection, f"the end of {log.topic}"
        self._places = [TopicPartition(log.topic, each) for each in range(log.partitions)]
        self._background = Background(self._name)
        self._consumer: AIOKafkaConsumer | None = None
        self._next: asyncio.Future[dict[TopicPartition, int]] | None = None
        self._asking: asyncio.Task[None] | None = None

    def partition_of(self, key: bytes) -> int:
        return self._log.partition_of(key)

    def end(self, partition: int) -> int:
        """Return the offset the next record will get, as the leader said after this was called.

        Raises:
            BrokerError: it did not say so in time.
        """
        return self._call(self._end(partition))

    def close(self) -> None:
        """Idempotent."""
        if not self._background.is_closed:
            self._call(self._close())
            self._background.close()

    async def _end(self, partition: int) -> int:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        asked = self._next
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        # Shielded: one caller that gives up takes nothing from the others.
        return (await asyncio.shield(asked))[self._places[partition]]

    async def _ask(self) -> None:
        while (asked := self._next) is not None:
            self._next = None
            try:
                consumer = await self._started()
                ends = await consumer.end_offsets(self._places)
                asked.set_result(cast("dict[TopicPartition, int]", ends))
            except (KafkaError, OSError, TimeoutError) as error:
                asked.set_exception(error)
                # Seen by whoever waits; with nobody left it is no loss.
                asked.exception()
                await self._close_consumer()

    async def _started(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            consumer = AIOKafkaConsumer(
                **client_options(self._connection), group_id=None, enable_auto_commit=False
            )
            try:
                await consumer.start()
            except BaseException:
                await consumer.stop()
                raise
            self._consumer = consumer
        return self._consumer

    async def _close_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()

    async def _close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
        await self._close_consumer()

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return self._background.run(work, END_WITHIN)
        except (KafkaError, OSError, TimeoutError) as error:
            raise broker_error(self._name, error) from error


class GrantTail:
    """Every record of the grants log, from the start, as it comes. Lives on one event loop."""

    def __init__(self, connection: Connection, partitions: int, topic: str = GRANTS) -> None:
        tolerate_header_names()
        self._name, self._connection = f"topic {topic}", connection
        self._places = [TopicPartition(topic, each) for each in range(partitions)]
        self._consumer: AIOKafkaConsumer | None = None

    async def records(self, wait: timedelta) -> dict[int, list[LogRecord]]:
        """Return what has come by partition; empty after ``wait``.

        Raises:
            BrokerError: the next call goes on where this one stood, or from the start.
        """
        try:
            consumer = self._consumer or await self._start()
            found = await consumer.getmany(timeout_ms=wait // timedelta(milliseconds=1))
        except (KafkaError, OSError, TimeoutError) as error:
            await self.close()
            raise broker_error(self._name, error) from error
        return {
            place.partition: [log_record(cast(KafkaRecord, each)) for each in records]
            for place, records in found.items()
        }

    async def ends(self) -> dict[int, int]:
        """Return where each partition ends now.

        Raises:
            BrokerError: see ``records``.
        """
        try:
            consumer = self._consumer or await self._start()
            ends = await consumer.end_offsets(self._places)
        except (KafkaError, OSError, TimeoutError) as error:
            await self.close()
            raise broker_error(self._name, error) from error
        return {place.partition: end for place, end in ends.items()}

    async def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()

    async def _start(self) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            **client_options(self._connection),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=2 * MAX_RECORD_BYTES,
        )
        try:
            await consumer.start()
        except BaseException:
            await consumer.stop()
            raise
        consumer.assign(self._places)
        await consumer.seek_to_beginning(*self._places)
        self._consumer = consumer
        return consumer
