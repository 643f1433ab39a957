"""Another producer's transactions: their markers are offsets without a record."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.runtime.ports import Draft

from tests.kafka.world import until


def transact(
    connection: Connection,
    log: KafkaLog,
    drafts: Sequence[Draft],
    *,
    is_aborted: bool = False,
    n_at_once: int = 1,
) -> None:
    """Send ``drafts`` in one transaction and end it: a marker in each partition they are of.

    With several at once, each sends them all before the first one ends: their markers follow each
    other.
    """
    n_by_partition = Counter(log.partition_of(draft.key) for draft in drafts)
    places = [TopicPartition(log.topic, partition) for partition in n_by_partition]

    async def ends() -> dict[TopicPartition, int]:
        consumer = AIOKafkaConsumer(bootstrap_servers=connection.bootstrap_servers)
        await consumer.start()
        try:
            found: dict[TopicPartition, int] = await consumer.end_offsets(places)
            return found
        finally:
            await consumer.stop()

    async def run() -> None:
        producers = [
            AIOKafkaProducer(
                bootstrap_servers=connection.bootstrap_servers,
                transactional_id=f"t.{log.topic}.{number}",
            )
            for number in range(n_at_once)
        ]
        await asyncio.gather(*(producer.start() for producer in producers))
        try:
            for producer in producers:
                await producer.begin_transaction()
                for draft in drafts:
                    where, headers = log.partition_of(draft.key), [*draft.headers]
                    await producer.send(log.topic, draft.value, draft.key, where, headers=headers)
                await producer.flush()  # What was never sent leaves nothing behind.
            for producer in producers:
                if is_aborted:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        finally:
            await asyncio.gather(*(producer.stop() for producer in producers))

    before = asyncio.run(ends())
    after = {
        place: before[place] + n_at_once * (n_by_partition[place.partition] + 1) for place in places
    }
    asyncio.run(asyncio.wait_for(run(), 60))

    def has_ended() -> bool:
        found = asyncio.run(ends())
        return all(found[place] >= end for place, end in after.items())

    # The producers are answered before the markers are written.
    until(has_ended, 30, "it has ended")
