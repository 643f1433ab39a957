"""What tests on a broker start from."""

import asyncio
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

import pytest

pytest.importorskip("aiokafka", reason="the Kafka engine needs the extra kafka")

from ombus_schemas.topics import Topic
from ombus_streams.engine.kafka import topics
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.topic_plan import Plan

from tests.kafka.logs import declared
from tests.support.brokers import Service

OpenLog = Callable[..., KafkaLog]
Apply = Callable[..., Plan]


class WallClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


@pytest.fixture
def connection(kafka: Service) -> Connection:
    return Connection(bootstrap_servers=kafka.address)


@pytest.fixture
def topic() -> Topic:
    """A topic of the test's own, declared and not made."""
    return declared(f"test.{uuid.uuid4().hex[:16]}", 3)


@pytest.fixture
def apply(connection: Connection) -> Apply:
    def run(wanted: Sequence[Topic], *, production: bool = False) -> Plan:
        clock = WallClock()
        return asyncio.run(topics.apply(connection, clock, wanted, production=production))

    return run


@pytest.fixture
def open_log(connection: Connection) -> Iterator[OpenLog]:
    opened: list[KafkaLog] = []

    def open_one(name: str, **options: object) -> KafkaLog:
        opened.append(KafkaLog(connection, name, **options))  # type: ignore[arg-type]  # as given
        return opened[-1]

    yield open_one
    for log in opened:
        log.close()


@pytest.fixture
def log(topic: Topic, apply: Apply, open_log: OpenLog) -> KafkaLog:
    apply([topic])
    return open_log(topic.name)
