"""``ombus.scope.grants`` on Kafka: its end for every read, its records as they come.

Reads bring their lower bound from the broker. Those that ask while a request is under way share
the next one, never that one: what they are told was asked after they began (design.md section 10).
"""

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from typing import Final, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from ombus_schemas.limits import MAX_RECORD_BYTES
from ombus_schemas.topics import GRANTS

from ombus_streams.engine.kafka.background import Background
from ombus_streams.engine.kafka.broker_errors import broker_error
from ombus_streams.engine.kafka.connection import Connection, client_options
from ombus_streams.engine.kafka.ends import Ends
from ombus_streams.engine.kafka.leniency import tolerate_header_names
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.readers import lone_consumer
from ombus_streams.engine.kafka.records import KafkaRecord, log_record
from ombus_streams.runtime.errors import Closed
from ombus_streams.runtime.ports import LogRecord

Answer = Future[dict[int, int]]
"""The ends by partition."""

END_WITHIN: Final = timedelta(seconds=2)
"""How long a read waits for the broker; then it is denied."""


class GrantEnds:
    """Where the partitions of a grants log end; for several threads."""

    def __init__(self, connection: Connection, log: KafkaLog) -> None:
        self.incarnation, self._log = log.incarnation, log
        self._connection, self._name = connection, f"the end of {log.topic}"
        self._ends = Ends(log.topic)
        self._background = Background(self._name)
        self._consumer: AIOKafkaConsumer | None = None
        self._lock = threading.Lock()
        self._next: Answer | None = None
        self._loop, self._asked = self._background.run(self._start())

    def partition_of(self, key: bytes) -> int:
        return self._log.partition_of(key)

    def end(self, partition: int) -> int:
        """Return where the records end, as the leader said after this was called.

        Raises:
            BrokerError: it did not say so in time.
        """
        if self._background.is_closed:
            raise Closed(self._name)
        with self._lock:
            if self._next is None:
                self._next = Future()
                self._loop.call_soon_threadsafe(self._asked.set)
            asked = self._next
        try:
            return asked.result(END_WITHIN.total_seconds())[partition]
        except (KafkaError, OSError, TimeoutError) as error:
            raise broker_error(self._name, error) from error

    def close(self) -> None:
        """Idempotent."""
        if not self._background.is_closed:
            self._background.run(self._close(), END_WITHIN)
            self._background.close()

    async def _start(self) -> tuple[asyncio.AbstractEventLoop, asyncio.Event]:
        asked = asyncio.Event()
        self._asking = asyncio.create_task(self._ask(asked))
        return asyncio.get_running_loop(), asked

    async def _ask(self, asked: asyncio.Event) -> None:
        while True:
            await asked.wait()
            asked.clear()
            with self._lock:
                # Whoever asks from here on is answered by the next request.
                waiting, self._next = self._next, None
            if waiting is None:
                continue
            try:
                if self._consumer is None:
                    self._consumer = await lone_consumer(self._connection)
                async with asyncio.timeout(END_WITHIN.total_seconds()):
                    partitions = range(self._log.partitions)
                    waiting.set_result(await self._ends.ask(self._consumer, partitions))
            except Exception as error:
                # Each caller gets it as the error it is; the next one starts afresh.
                waiting.set_exception(error)
                await self._close_consumer()

    async def _close_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress(KafkaError, OSError):  # It is given up, whatever it says.
                await consumer.stop()

    async def _close(self) -> None:
        self._asking.cancel()
        await self._close_consumer()


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
            place.partition: [
                log_record(place.partition, cast(KafkaRecord, each)) for each in records
            ]
            for place, records in found.items()
        }

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
