"""TLS, passwords and the printed ACLs on a broker that asks for them.

The rules are given to the broker as ``ombus topics acl`` prints them; then each role tries what it
may do, and what it may not.
"""

import asyncio
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Final

import msgspec
import pytest
from ombus.dev import kafka as dev_kafka
from ombus.dev.kraft import Security
from ombus_schemas.topics import ENTRIES, GRANTS, TOPICS
from ombus_streams.engine.kafka import topics
from ombus_streams.engine.kafka.acls import ROLES, Role, commands, rules
from ombus_streams.engine.kafka.broker_errors import BrokerError, BrokerUnavailable, NotPermitted
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.log import KafkaLog

from tests.kafka.conftest import WallClock
from tests.support.brokers import Service
from tests.support.certificates import self_signed
from tests.support.replays import entry_draft

PASSWORDS: Final[dict[str, str]] = {role: f"{role}-word" for role in ROLES}
As = Callable[[Role], Connection]


@pytest.fixture(scope="module")
def secured(kafka: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[As]:
    """A broker with the topics and the ACLs; gives the connection of a role."""
    assert kafka.label
    folder = tmp_path_factory.mktemp("secured")
    key, certificate = self_signed(folder)
    keystore = folder / "store.pem"
    keystore.write_bytes(key.read_bytes() + certificate.read_bytes())
    security = Security(keystore=str(keystore), password_by_user=PASSWORDS)
    cluster = dev_kafka.up(folder / "kafka", security=security)
    try:
        open_door = Connection(bootstrap_servers=cluster.bootstrap)
        asyncio.run(topics.apply(open_door, WallClock(), TOPICS))
        principals: dict[Role, str] = {role: f"User:{role}" for role in ROLES}
        found = [rule for role in ROLES for rule in rules(role)]
        for line in commands(found, principals, cluster.bootstrap):
            _, *arguments = shlex.split(line)
            command = dev_kafka.tool("org.apache.kafka.tools.AclCommand", *arguments)
            subprocess.run(command, check=True, capture_output=True)

        def as_role(role: Role) -> Connection:
            return Connection(
                bootstrap_servers=f"127.0.0.1:{cluster.brokers[0].secured_port}",
                security_protocol="SASL_SSL",
                sasl_mechanism="PLAIN",
                sasl_username=role,
                sasl_password=PASSWORDS[role],
                ssl_cafile=str(certificate),
            )

        yield as_role
    finally:
        dev_kafka.down(folder / "kafka", wipe=True)


def test_a_gateway_appends_and_reads(secured: As) -> None:
    with closing(KafkaLog(secured("gateway"), ENTRIES)) as log:
        (position,) = log.append([entry_draft("s", 0)])
        assert len(log.read(position.partition, position.offset, 1)) == 1
    with closing(KafkaLog(secured("gateway"), GRANTS)) as grants:
        grants.append([entry_draft("s", 0)])


def test_a_worker_appends_entries_and_no_grants(secured: As) -> None:
    with closing(KafkaLog(secured("worker"), ENTRIES)) as log:
        log.append([entry_draft("s", 1)])
    with closing(KafkaLog(secured("worker"), GRANTS)) as grants, pytest.raises(NotPermitted):
        grants.append([entry_draft("s", 1)])


def test_a_reader_reads_and_appends_nothing(secured: As) -> None:
    with closing(KafkaLog(secured("reader"), ENTRIES)) as log:
        assert log.read(0, 0, 1)
        with pytest.raises(NotPermitted, match="ombus topics acl"):
            log.append([entry_draft("s", 2)])


def test_a_fleet_behind_a_gateway_sees_nothing_at_all(secured: As) -> None:
    with pytest.raises(BrokerError, match=ENTRIES):
        KafkaLog(secured("fleet"), ENTRIES)


def test_an_operator_plans_and_finds_all_as_declared(secured: As) -> None:
    planned = asyncio.run(topics.plan(secured("operator")))
    assert planned.is_done


def test_a_wrong_password_is_refused_without_being_repeated(secured: As) -> None:
    wrong = msgspec.structs.replace(secured("gateway"), sasl_password="guess-7e1c")
    with pytest.raises(BrokerError) as refused:
        KafkaLog(wrong, ENTRIES, timeout=timedelta(seconds=10))
    assert "guess-7e1c" not in str(refused.value)


def test_a_certificate_nobody_signed_is_refused(secured: As) -> None:
    unknown = msgspec.structs.replace(secured("gateway"), ssl_cafile=None)
    with pytest.raises(BrokerUnavailable):
        KafkaLog(unknown, ENTRIES, timeout=timedelta(seconds=10))
