"""Making the topics what the plan says, on the brokers (design.md sections 3 and 13).

The log of a topic gets its incarnation from the first record of partition 0, which whoever applies
first writes; the others read it there. So two that apply at once, or one that is killed half-way
and runs again, never leave a topic with two names.
"""

import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code
from ombus_schemas.topics import TOPICS, Topic

from ombus_streams.engine.created import LOG_KEY, created
from ombus_streams.engine.kafka.appender import Appender, Outgoing
from ombus_streams.engine.kafka.broker_errors import BrokerRefused, broker_error
from ombus_streams.engine.kafka.connection import Connection, client_options
from ombus_streams.engine.kafka.identity import (
    FoundTopic,
    created_in,
    described,
    first_records,
    incarnation_of,
)
from ombus_streams.engine.kafka.topic_plan import (
    Found,
    Plan,
    Wanted,
    config_changes,
    plan_topics,
    wanted_topics,
)
from ombus_streams.runtime.ports import Clock

CREATE_WITHIN: Final = timedelta(seconds=30)
_SET_ON_TOPIC: Final = 1
"""``config_source`` of a value that was set on the topic itself."""


class Refused(BrokerRefused):
    """The plan has steps that a person must decide about; nothing was done."""


async def plan(
    connection: Connection,
    topics: Sequence[Topic] = TOPICS,
    *,
    production: bool = False,
    tiered: bool = False,
) -> Plan:
    """Return what ``apply`` would do.

    Raises:
        BrokerError: see its way out.
    """
    names = [topic.name for topic in topics]
    try:
        async with _Admin(connection) as admin:
            n_brokers, found = await admin.found(names)
            opened = {topic.name for topic in topics if topic.opens_with_incarnation}
            for name in opened & found.keys():
                found[name] = await _looked_into(connection, found[name])
    except (KafkaError, OSError, TimeoutError) as error:
        raise broker_error(connection.bootstrap_servers, error) from error
    wanted = wanted_topics(topics, n_brokers, production=production, tiered=tiered)
    return plan_topics(wanted, found, n_brokers)


async def apply(
    connection: Connection,
    clock: Clock,
    topics: Sequence[Topic] = TOPICS,
    *,
    production: bool = False,
    tiered: bool = False,
) -> Plan:
    """Make the topics what they are declared to be; return what was done. Idempotent.

    Raises:
        Refused: see ``Plan.steps``; nothing was done.
        BrokerError: see its way out; what was done stands, and applying again goes on.
    """
    planned = await plan(connection, topics, production=production, tiered=tiered)
    if planned.is_refused:
        refused = [step for step in planned.steps if step.action == "refuse"]
        facts = "; ".join(f"{step.topic} {step.detail}" for step in refused)
        raise Refused("topics", facts, "nothing was changed")
    try:
        async with _Admin(connection) as admin:
            for wanted in planned.wanted:
                there = planned.found.get(wanted.name)
                if there is None:
                    await admin.create(wanted)
                elif changes := config_changes(wanted, there):
                    await admin.configure(there, changes)
            to_open = {step.topic for step in planned.steps if step.action == "open"}
            for wanted in planned.wanted:
                if wanted.name in to_open:
                    await _open(connection, await admin.cluster_id(), wanted, clock)
    except (KafkaError, OSError, TimeoutError) as error:
        raise broker_error(connection.bootstrap_servers, error) from error
    return planned


async def _open(connection: Connection, cluster: str, wanted: Wanted, clock: Clock) -> None:
    """Write ``om.log.created`` into every partition that is empty, partition 0 first."""
    appender = Appender(connection, wanted.name, "none")

    async def write(partition: int, incarnation: str) -> None:
        value = created(incarnation, cluster, wanted.name, partition, clock.now())
        await appender.append(partition, [Outgoing(LOG_KEY, value, ())])

    try:
        firsts = await first_records(connection, wanted.name, range(wanted.partitions))
        names = {
            body.incarnation for each in firsts.values() if (body := created_in(each)) is not None
        }
        if not names:
            await write(0, secrets.token_hex(8))
            firsts |= await first_records(connection, wanted.name, [0])
            names = {body.incarnation for body in [created_in(firsts[0])] if body is not None}
        for partition in range(wanted.partitions):
            if partition not in firsts and len(names) == 1:
                await write(partition, *names)
        firsts = await first_records(connection, wanted.name, range(wanted.partitions))
        if len(names) != 1 or any(created_in(each) is None for each in firsts.values()):
            # Whoever still runs for the topic that was here before may be faster.
            fact = "somebody has appended to it before it was opened"
            raise Refused(wanted.name, fact, "stop who appends, delete the topic and apply again")
        incarnation_of(cluster, wanted.name, wanted.partitions, firsts)
    finally:
        await appender.close()


async def _looked_into(connection: Connection, found: Found) -> Found:
    partitions = range(found.partitions)
    firsts = await first_records(connection, found.name, partitions)
    return msgspec.structs.replace(
        found,
        unopened=tuple(each for each in partitions if each not in firsts),
        foreign=tuple(
            partition
            for partition, first in sorted(firsts.items())
            if first.offset == 0 and created_in(first) is None
        ),
    )


class _Config(msgspec.Struct, array_like=True):
    name: str
    value: str | None
    read_only: bool
    source: int


class _Admin:
    """The brokers' administration, open as long as the block."""

    def __init__(self, connection: Connection) -> None:
        self._client = AIOKafkaAdminClient(**client_options(connection))

    async def __aenter__(self) -> "_Admin":
        try:
            await self._client.start()
        except BaseException:
            await self._client.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def cluster_id(self) -> str:
        return (await described(self._client))[0]

    async def found(self, names: Collection[str]) -> tuple[int, dict[str, Found]]:
        """Return the number of brokers, and those of the topics that are there."""
        cluster = await self._client.describe_cluster()
        _, topics = await described(self._client)
        there = [topics[name] for name in names if name in topics]
        configs = await self._configs([each.name for each in there])
        return len(cluster["brokers"]), {
            each.name: _found(each, *configs[each.name]) for each in there
        }

    async def create(self, wanted: Wanted) -> None:
        answer = await self._client.create_topics(
            [
                NewTopic(
                    wanted.name, wanted.partitions, wanted.replicas, topic_configs=wanted.configs
                )
            ],
            timeout_ms=CREATE_WITHIN // timedelta(milliseconds=1),
        )
        for name, code, message in answer.topic_errors:
            # Somebody else applies at the same moment, from the same declaration.
            if code and for_code(code) is not TopicAlreadyExistsError:
                raise BrokerRefused(name, f"{for_code(code).__name__}: {message}", _WAY_OUT)

    async def configure(self, found: Found, changes: Mapping[str, str]) -> None:
        # The request replaces all that is set on the topic, so what is there goes with it.
        resource = ConfigResource(
            ConfigResourceType.TOPIC, found.name, {**found.overrides, **changes}
        )
        for answer in await self._client.alter_configs([resource]):
            for code, message, _, name in answer.resources:
                if code:
                    raise BrokerRefused(name, f"{for_code(code).__name__}: {message}", _WAY_OUT)

    async def _configs(
        self, names: Sequence[str]
    ) -> dict[str, tuple[dict[str, str], dict[str, str]]]:
        if not names:
            return {}
        asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        found: dict[str, tuple[dict[str, str], dict[str, str]]] = {}
        for answer in await self._client.describe_configs(asked):
            for code, message, _, name, entries in answer.resources:
                if code:
                    raise BrokerRefused(name, f"{for_code(code).__name__}: {message}", _WAY_OUT)
                configs = [msgspec.convert(list(each[:4]), _Config) for each in entries]
                found[name] = (
                    {each.name: each.value for each in configs if each.value is not None},
                    {
                        each.name: each.value
                        for each in configs
                        if each.source == _SET_ON_TOPIC and each.value is not None
                    },
                )
        return found


def _found(topic: FoundTopic, configs: dict[str, str], overrides: dict[str, str]) -> Found:
    return Found(
        name=topic.name,
        partitions=topic.partitions,
        replicas=topic.replicas,
        configs=configs,
        overrides=overrides,
    )


_WAY_OUT: Final = "see the broker's log, correct it and apply again"
