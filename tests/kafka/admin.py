"""What tests do to topics behind the back of ``ombus topics``."""

import asyncio
from collections.abc import Mapping

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from ombus_schemas.topics import Topic, configs
from ombus_streams.engine.kafka.connection import Connection, client_options


def create_topic(connection: Connection, topic: Topic) -> None:
    """Create a topic that nobody opens."""
    new = NewTopic(topic.name, topic.partitions, 1, topic_configs=configs(topic))
    asyncio.run(_run(connection, lambda admin: admin.create_topics([new])))


def set_configs(connection: Connection, topic: str, values: Mapping[str, str]) -> None:
    """Set these and no others on a topic."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(values))
    asyncio.run(_run(connection, lambda admin: admin.alter_configs([resource])))


def delete_before(connection: Connection, topic: str, offsets: Mapping[int, int]) -> None:
    """Delete what lies before these offsets, as retention does."""
    starts = {
        TopicPartition(topic, partition): RecordsToDelete(before_offset=offset)
        for partition, offset in offsets.items()
    }
    asyncio.run(_run(connection, lambda admin: admin.delete_records(starts)))


async def _run(connection: Connection, do) -> None:  # type: ignore[no-untyped-def]  # aiokafka has no types
    admin = AIOKafkaAdminClient(**client_options(connection))
    await admin.start()
    try:
        await do(admin)
    finally:
        await admin.close()
