"""Topics on a broker: made once, opened with one name, never made smaller."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime

import msgspec
import pytest
from aiokafka import AIOKafkaProducer
from ombus_schemas.topics import DEAD_LETTERS, Topic
from ombus_streams.engine.created import LOG_KEY, created
from ombus_streams.engine.kafka import topics
from ombus_streams.engine.kafka.appender import Appender, Outgoing
from ombus_streams.engine.kafka.broker_errors import BrokerUnavailable, OtherLog, TopicMissing
from ombus_streams.engine.kafka.connection import Connection, client_options
from ombus_streams.engine.kafka.topic_plan import Plan

from tests.kafka.admin import create_topic, delete_before, set_configs
from tests.kafka.conftest import Apply, OpenLog, WallClock
from tests.kafka.logs import declared


def planned(connection: Connection, topic: Topic, *, production: bool = False) -> Plan:
    return asyncio.run(topics.plan(connection, [topic], production=production))


def actions(plan: Plan) -> list[str]:
    return [step.action for step in plan.steps]


def put(connection: Connection, topic: str, partition: int, key: bytes, value: bytes) -> None:
    async def run() -> None:
        appender = Appender(connection, topic, "none")
        await appender.append(partition, [Outgoing(key, value, ())])
        await appender.close()

    asyncio.run(run())


def test_what_is_not_there_is_created_and_opened_and_then_kept(
    connection: Connection, topic: Topic, apply: Apply, open_log: OpenLog
) -> None:
    assert actions(planned(connection, topic)) == ["create", "open"]
    apply([topic])
    assert actions(apply([topic])) == ["keep"]

    log = open_log(topic.name)
    assert log.partitions == 3
    for partition in range(3):
        (first,) = log.read(partition, 0, 10)
        assert first.key == LOG_KEY
        assert first.value is not None
        assert log.incarnation.encode() in first.value


def test_the_broker_keeps_what_was_declared(
    connection: Connection, topic: Topic, apply: Apply
) -> None:
    apply([topic])
    configs = planned(connection, topic).found[topic.name].configs
    assert configs["message.timestamp.type"] == "LogAppendTime"
    assert configs["cleanup.policy"] == "delete"
    assert configs["retention.ms"] == "-1"
    assert int(configs["max.message.bytes"]) > 3_145_728
    assert configs["unclean.leader.election.enable"] == "false"


def test_dead_letters_open_with_nothing(connection: Connection, apply: Apply) -> None:
    dead = declared("test.dead-letters-alone", 2, like=DEAD_LETTERS)
    plan = planned(connection, dead)
    assert actions(plan) in (["create"], ["keep"])


def test_all_that_apply_at_once_give_a_topic_one_name(
    topic: Topic, apply: Apply, open_log: OpenLog
) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: apply([topic]), range(4)))
    assert open_log(topic.name).incarnation


def test_who_was_killed_while_opening_goes_on_with_the_same_name(
    connection: Connection, topic: Topic, apply: Apply, open_log: OpenLog
) -> None:
    create_topic(connection, topic)
    cluster = open_log(apply_another(apply)).identity.cluster
    put(
        connection,
        topic.name,
        0,
        LOG_KEY,
        created("abad1dea", cluster, topic.name, 0, WallClock().now()),
    )
    with pytest.raises(TopicMissing, match="partition 1 is empty"):
        open_log(topic.name)

    assert "open" in actions(apply([topic]))
    assert open_log(topic.name).incarnation == "abad1dea"


def apply_another(apply: Apply) -> str:
    another = declared("test.another", 1)
    apply([another])
    return another.name


def test_a_partition_count_is_for_ever(connection: Connection, topic: Topic, apply: Apply) -> None:
    apply([topic])
    larger = msgspec.structs.replace(topic, partitions=4, development_partitions=4)
    assert actions(planned(connection, larger)) == ["refuse"]
    with pytest.raises(topics.Refused, match="3 partitions, 4 are declared"):
        apply([larger])
    assert planned(connection, topic).is_done


def test_production_needs_three_replicas(
    connection: Connection, topic: Topic, apply: Apply
) -> None:
    (step,) = planned(connection, topic, production=True).steps
    assert step.action == "refuse"
    assert "needs 3 replicas" in step.detail
    apply([topic])
    (step,) = planned(connection, topic, production=True).steps
    assert "has 1 replica(s), production needs 3" in step.detail


def test_a_configuration_that_drifted_is_put_back_and_the_rest_left_alone(
    connection: Connection, topic: Topic, apply: Apply
) -> None:
    apply([topic])
    drift = {
        "retention.ms": "1000",
        "message.timestamp.type": "CreateTime",
        "max.message.bytes": "9000000",
        "segment.bytes": "20971520",
    }
    set_configs(connection, topic.name, drift)
    (step,) = planned(connection, topic).steps
    assert step.action == "configure"
    assert "retention.ms 1000 -> -1" in step.detail

    apply([topic])
    configs = planned(connection, topic).found[topic.name].configs
    assert configs["retention.ms"] == "-1"
    assert configs["message.timestamp.type"] == "LogAppendTime"
    # Larger than declared: what an operator has given is not taken away.
    assert configs["max.message.bytes"] == "9000000"
    assert configs["segment.bytes"] == "20971520"


def test_a_topic_with_other_records_is_not_taken_for_a_log(
    connection: Connection, topic: Topic, apply: Apply, open_log: OpenLog
) -> None:
    create_topic(connection, topic)
    put(connection, topic.name, 1, b"t/s", b"{}")
    with pytest.raises(topics.Refused, match="does not open with om"):
        apply([topic])
    with pytest.raises(TopicMissing, match="partition 0"):
        open_log(topic.name)


def test_who_appends_while_a_topic_is_opened_is_named_with_a_way_out(
    connection: Connection, topic: Topic
) -> None:
    class Overtaken(WallClock):
        """Asked for the time of the first partition's record, it lets another be appended."""

        def now(self) -> datetime:
            if not appended:
                appended.append(pool.submit(put, connection, topic.name, 2, b"t/s", b"{}"))
                appended[0].result()
            return super().now()

    appended: list[Future[None]] = []
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(topics.Refused, match="appended to it before it was opened"),
    ):
        asyncio.run(topics.apply(connection, Overtaken(), [topic]))


def test_a_partition_of_which_a_marker_is_left_holds_nothing(
    connection: Connection, topic: Topic, apply: Apply
) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(**client_options(connection), transactional_id=topic.name)
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(topic.name, b"{}", b"t/s", 1)
        await producer.stop()

    create_topic(connection, topic)
    asyncio.run(run())
    delete_before(connection, topic.name, {1: 1})

    assert actions(apply([topic])) == ["open"]


def test_a_topic_that_was_copied_with_its_first_records_is_another_log(
    connection: Connection, topic: Topic, open_log: OpenLog
) -> None:
    create_topic(connection, topic)
    for partition in range(3):
        value = created("abad1dea", "elsewhere", topic.name, partition, WallClock().now())
        put(connection, topic.name, partition, LOG_KEY, value)
    with pytest.raises(OtherLog, match="elsewhere"):
        open_log(topic.name)


def test_partitions_that_name_different_logs_are_refused(
    connection: Connection, topic: Topic, apply: Apply, open_log: OpenLog
) -> None:
    create_topic(connection, topic)
    cluster = open_log(apply_another(apply)).identity.cluster
    for partition, name in enumerate(["aaaa", "aaaa", "bbbb"]):
        value = created(name, cluster, topic.name, partition, WallClock().now())
        put(connection, topic.name, partition, LOG_KEY, value)
    with pytest.raises(OtherLog, match="2 incarnations"):
        open_log(topic.name)


def test_opening_what_is_not_there_creates_nothing(
    connection: Connection, topic: Topic, open_log: OpenLog
) -> None:
    with pytest.raises(TopicMissing, match="ombus topics apply"):
        open_log(topic.name)
    assert actions(planned(connection, topic)) == ["create", "open"]


def test_brokers_that_do_not_answer_are_named(topic: Topic) -> None:
    nowhere = Connection(bootstrap_servers="127.0.0.1:1")
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1"):
        planned(nowhere, topic)
