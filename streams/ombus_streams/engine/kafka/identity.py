"""Which log a topic is: what ``om.log.created`` says at the beginning of its partitions."""

from collections.abc import Mapping, Sequence
from typing import Final, cast

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from ombus_schemas.codec import decode_record
from ombus_schemas.control import LogCreated
from ombus_schemas.errors import BadRecord
from ombus_schemas.facts import fact_of
from ombus_schemas.topics import TOPIC_BY_NAME

from ombus_streams.engine.kafka.broker_errors import OtherLog, TopicMissing
from ombus_streams.engine.kafka.connection import Connection, client_options
from ombus_streams.engine.kafka.leniency import tolerate_header_names
from ombus_streams.engine.kafka.records import KafkaRecord

ANONYMOUS: Final = "-"
"""The incarnation of a topic whose partitions open with nothing: dead letters."""
_FETCH_BYTES: Final = 16_384
_POLL_MS: Final = 500


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What every position of the topic is checked against."""

    cluster: str
    topic: str
    incarnation: str
    partitions: int


class FoundTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic as the brokers describe it."""

    name: str
    partitions: int
    replicas: int
    """The fewest replicas of a partition."""


class _Metadata(msgspec.Struct):
    cluster_id: str


class _PartitionMetadata(msgspec.Struct):
    partition: int
    replicas: list[int]


class _TopicMetadata(msgspec.Struct):
    topic: str
    partitions: list[_PartitionMetadata]


async def described(admin: AIOKafkaAdminClient) -> tuple[str, dict[str, FoundTopic]]:
    """Return the cluster's id and its topics.

    All are asked for and none by name: a broker may create a topic that is asked for.
    """
    cluster = msgspec.convert(await admin.describe_cluster(), _Metadata)
    topics = msgspec.convert(await admin.describe_topics(), list[_TopicMetadata])
    return cluster.cluster_id, {
        each.topic: FoundTopic(
            name=each.topic,
            partitions=len(each.partitions),
            replicas=min((len(part.replicas) for part in each.partitions), default=0),
        )
        for each in topics
    }


async def identity_of(connection: Connection, topic: str) -> Identity:
    """Return which log the topic is.

    Raises:
        TopicMissing: it is not there, or a partition does not open with ``om.log.created``.
        OtherLog: it says that it is another one, or its partitions contradict each other.
    """
    admin = AIOKafkaAdminClient(**client_options(connection))
    try:
        await admin.start()
        cluster, topics = await described(admin)
    finally:
        await admin.close()
    found = topics.get(topic)
    if found is None:
        raise TopicMissing(topic, "is not there", "create it with `ombus topics apply`")
    declared = TOPIC_BY_NAME.get(topic)
    if declared is not None and not declared.opens_with_incarnation:
        return Identity(
            cluster=cluster, topic=topic, incarnation=ANONYMOUS, partitions=found.partitions
        )
    firsts = await first_records(connection, topic, range(found.partitions))
    return Identity(
        cluster=cluster,
        topic=topic,
        incarnation=incarnation_of(cluster, topic, found.partitions, firsts),
        partitions=found.partitions,
    )


def incarnation_of(
    cluster: str, topic: str, partitions: int, firsts: Mapping[int, KafkaRecord]
) -> str:
    """Return the incarnation that the first records agree on.

    Raises: as ``identity_of``.
    """
    incarnations = set[str]()
    for partition in range(partitions):
        first = firsts.get(partition)
        created = None if first is None else created_in(first)
        if created is None:
            # A log start above 0 tells nothing here: the processor asks for a checkpoint then.
            if first is not None and first.offset > 0:
                continue
            what = "is empty" if first is None else "opens with another record"
            raise TopicMissing(
                topic, f"partition {partition} {what}, not with om.log.created",
                "open it with `ombus topics apply` before anybody appends",
            )  # fmt: skip
        said = (created.cluster, created.topic, created.partition)
        if said != (cluster, topic, partition):
            raise OtherLog(
                topic, f"partition {partition} says it is {said[0]}/{said[1]}/{said[2]}, and is "
                f"{cluster}/{topic}/{partition}",
                "move entries with `ombus replay`, which leaves that record behind",
            )  # fmt: skip
        incarnations.add(created.incarnation)
    if not incarnations:
        raise TopicMissing(
            topic, "retention has taken the beginning of every partition, so nothing says which "
            "log this is",
            "delete it, `ombus topics apply`, and `ombus restore` an archive of it: rows and "
            "checkpoints alone are no log",
        )  # fmt: skip
    if len(incarnations) != 1:
        fact = f"its partitions name {len(incarnations)} incarnations"
        raise OtherLog(topic, fact, "replay it into a new topic")
    return incarnations.pop()


def created_in(record: KafkaRecord) -> LogCreated | None:
    """Return the body of ``om.log.created``, ``None`` if the record is anything else."""
    try:
        fact = fact_of(decode_record(record.key, record.value))
    except BadRecord:
        return None
    return fact if isinstance(fact, LogCreated) else None


async def first_records(
    connection: Connection, topic: str, partitions: Sequence[int]
) -> dict[int, KafkaRecord]:
    """Return the first record of each partition that has one."""
    tolerate_header_names()
    consumer = AIOKafkaConsumer(
        **client_options(connection),
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=_FETCH_BYTES,
        fetch_max_wait_ms=100,
    )
    firsts: dict[int, KafkaRecord] = {}
    try:
        await consumer.start()
        places = [TopicPartition(topic, partition) for partition in partitions]
        starts = await consumer.beginning_offsets(places)
        ends = await consumer.end_offsets(places)
        waiting = {each for each in places if starts[each] < ends[each]}
        consumer.assign(list(waiting))
        for each in waiting:
            consumer.seek(each, starts[each])
        while waiting:
            for place, records in (await consumer.getmany(timeout_ms=_POLL_MS)).items():
                if place in waiting and records:
                    waiting.discard(place)
                    consumer.pause(place)
                    firsts[place.partition] = cast(KafkaRecord, records[0])
            for place in list(waiting):
                if await consumer.position(place) >= ends[place]:  # markers of transactions alone
                    waiting.discard(place)
    finally:
        await consumer.stop()
    return firsts
