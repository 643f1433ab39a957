"""The part of the composition root that needs the extra ``kafka``: connection, topics, logs.

``[kafka]`` of the settings files and ``OMBUS_KAFKA_*`` of the environment take the names Kafka's
own clients use: ``bootstrap-servers``, ``security-protocol``, ``sasl-username`` and so on.
"""

import asyncio
import tomllib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from ombus_schemas.jsontext import JsonValue
from ombus_schemas.topics import ENTRIES, TOPICS, Topic
from ombus_streams.engine.kafka.acls import ROLES, Role, Rule, commands, rules
from ombus_streams.engine.kafka.connection import BadConnection, Connection
from ombus_streams.engine.kafka.topic_plan import Plan
from ombus_streams.runtime.tracing import UNTRACED, Tracer

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
PASSWORD_FILE: Final = "sasl-password-file"
"""A file that holds the password and nothing else: how secrets are mounted."""
SERVERS: Final = "bootstrap-servers"


def connection_for(
    environ: Mapping[str, str], files: Sequence[Path], bootstrap_servers: str | None = None
) -> Connection:
    """Return how to reach the brokers; ``files`` go from the weakest to the strongest.

    Raises:
        BadSetting: nothing names a broker, or a setting is unknown or contradicts another.
    """
    said: dict[str, JsonValue] = {}
    for file in files:
        said |= _table(file)
    for name, text in environ.items():
        if name.startswith(PREFIX):
            said[name.removeprefix(PREFIX).lower().replace("_", "-")] = text
    if bootstrap_servers is not None:
        said[SERVERS] = bootstrap_servers
    if SERVERS not in said:
        raise BadSetting(
            f"[{KAFKA_KEY}] {SERVERS}",
            f"is not set: give --bootstrap-servers, set {PREFIX}BOOTSTRAP_SERVERS, or start a "
            "broker with `ombus dev kafka up`",
        )
    password_file = said.pop(PASSWORD_FILE, None)
    if isinstance(password_file, str):
        said["sasl-password"] = _read(Path(password_file)).strip()
    unknown = said.keys() - {each.encode_name for each in msgspec.structs.fields(Connection)}
    if unknown:
        raise BadSetting(f"[{KAFKA_KEY}] {min(unknown)}", "is no setting of the connection")
    try:
        return msgspec.convert(said, Connection)
    except (BadConnection, msgspec.ValidationError) as error:
        raise BadSetting(f"[{KAFKA_KEY}]", f"does not fit: {error}") from error


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


def _table(file: Path) -> dict[str, JsonValue]:
    # What else is in the file, and whether it is TOML at all, `load_settings` has judged.
    found = tomllib.loads(_read(file)).get(KAFKA_KEY, {})
    if not isinstance(found, dict):
        raise BadSetting(f"{file}: {KAFKA_KEY}", "is no table")
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise BadSetting(str(file), f"cannot be read: {error.strerror}") from error
