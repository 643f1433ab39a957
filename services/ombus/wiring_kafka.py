"""The part of the composition root that needs the extra ``kafka``: connection, topics, logs.

``[kafka]`` of the settings files and ``OMBUS_KAFKA_*`` of the environment take the names Kafka's
own clients use: ``bootstrap-servers``, ``security-protocol``, ``sasl-username`` and so on.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from ombus_schemas.topics import ENTRIES, TOPICS, Topic
from ombus_streams.engine.kafka.acls import ROLES, Role, Rule, commands, rules
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.topic_plan import Plan
from ombus_streams.runtime.tracing import UNTRACED, Tracer

from ombus.connections import said_of
from ombus.settings import KAFKA_KEY, BadSetting
from ombus.wiring import SystemClock

if TYPE_CHECKING:
    from ombus_streams.engine.kafka.log import KafkaLog

__all__ = [
    "Connection",
    "Plan",
    "acl_commands",
    "acl_rules",
    "apply_topics",
    "connection_for",
    "create_topic",
    "open_kafka_log",
    "plan_topics",
    "require_extra",
]

PREFIX: Final = "OMBUS_KAFKA_"
SERVERS: Final = "bootstrap-servers"


def connection_for(
    environ: Mapping[str, str], files: Sequence[Path], bootstrap_servers: str | None = None
) -> Connection:
    """Return how to reach the brokers; ``files`` go from the weakest to the strongest.

    Raises:
        BadSetting: nothing names a broker, or a setting is unknown or contradicts another.
    """
    said = said_of(KAFKA_KEY, environ, files)
    if bootstrap_servers is not None:
        said.values[SERVERS] = bootstrap_servers
        said.sources[SERVERS] = "--bootstrap-servers"
    if SERVERS not in said.values:
        raise BadSetting(
            f"[{KAFKA_KEY}] {SERVERS}",
            f"is not set: give --bootstrap-servers, set {PREFIX}BOOTSTRAP_SERVERS, or start a "
            "broker with `ombus dev kafka up`",
        )
    return said.read_as(Connection, ["sasl-password"])


def open_kafka_log(
    connection: Connection,
    topic: str = ENTRIES,
    tracer: Tracer = UNTRACED,
    *,
    timeout: timedelta | None = None,
) -> "KafkaLog":
    """Return the log in ``topic``; ``timeout``: how long a call waits for the brokers.

    Raises:
        BrokerError: see its way out.
        BadSetting: the extra is not installed.
    """
    require_extra()
    from ombus_streams.engine.kafka.log import TIMEOUT, KafkaLog

    return KafkaLog(connection, topic, timeout=timeout or TIMEOUT, tracer=tracer)


def plan_topics(
    connection: Connection,
    topics: Sequence[Topic] = TOPICS,
    *,
    production: bool = False,
    tiered: bool = False,
) -> Plan:
    """Return what ``apply_topics`` would do.

    Raises:
        BrokerError: see its way out.
        BadSetting: the extra is not installed.
    """
    require_extra()
    from ombus_streams.engine.kafka import topics as engine

    return asyncio.run(engine.plan(connection, topics, production=production, tiered=tiered))


def apply_topics(
    connection: Connection,
    topics: Sequence[Topic] = TOPICS,
    *,
    production: bool = False,
    tiered: bool = False,
) -> Plan:
    """Make the topics what they are declared to be; return what was done.

    Raises:
        Refused: a person must decide first; nothing was done.
        BrokerError: see its way out.
        BadSetting: the extra is not installed.
    """
    require_extra()
    from ombus_streams.engine.kafka import topics as engine

    clock = SystemClock()
    return asyncio.run(
        engine.apply(connection, clock, topics, production=production, tiered=tiered)
    )


def create_topic(connection: Connection, name: str, partitions: int) -> Plan:
    """Make a topic like the one of entries, under another name and with so many partitions.

    May be run again; another partition count than the one there is is refused.

    Raises:
        Refused, BrokerError: see their way out.
        BadSetting: the extra is not installed.
    """
    like = next(topic for topic in TOPICS if topic.name == ENTRIES)
    wanted = msgspec.structs.replace(
        like, name=name, partitions=partitions, development_partitions=partitions
    )
    return apply_topics(connection, [wanted])


def acl_rules(roles: Sequence[Role] | None = None, *, direct: bool = False) -> list[Rule]:
    """Return what each of ``roles`` may do; all of them if none is named."""
    return [rule for role in roles or ROLES for rule in rules(role, direct=direct)]


def acl_commands(found: Sequence[Rule], connection: Connection) -> list[str]:
    """Return ``found`` as commands of ``kafka-acls``."""
    return commands(found, {}, connection.bootstrap_servers)


def require_extra() -> None:
    """Say how to install what Kafka needs, if it is not there.

    Raises:
        BadSetting: it is not.
    """
    try:
        import ombus_streams.engine.kafka.broker_errors
    except ModuleNotFoundError as error:
        raise BadSetting("kafka", "needs an extra: pip install 'ombus[kafka]'") from error
    assert ombus_streams.engine.kafka.broker_errors
