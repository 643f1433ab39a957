"""Another producer's transactions: their markers are offsets without a record."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from aiokafka import AIOKafkaProducer
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.runtime.ports import Draft

from tests.kafka.world import until


def transact(
    connection: Connection, log: KafkaLog, drafts: Sequence[Draft], *, is_aborted: bool = False
) -> None:
    """Send ``drafts`` in one transaction and end it: a marker in each partition they are of."""
    n_by_partition = Counter(log.partition_of(draft.key) for draft in drafts)
    ends = {each: log.end(each) + n_records + 1 for each, n_records in n_by_partition.items()}

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=connection.bootstrap_servers, transactional_id=f"t.{log.topic}"
        )
        await producer.start()
        try:
            await producer.begin_transaction()
            for draft in drafts:
                partition, headers = log.partition_of(draft.key), [*draft.headers]
                await producer.send(log.topic, draft.value, draft.key, partition, headers=headers)
            if is_aborted:
                await producer.flush()  # What was never sent leaves nothing behind.
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
        finally:
            await producer.stop()

    asyncio.run(run())
    # The producer is answered before the markers are written.
    until(lambda: all(log.end(each) == end for each, end in ends.items()), 30, "it has ended")
