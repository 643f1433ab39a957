"""What a broker of a development cluster is told: ``server.properties`` in KRaft mode, as text.

Each broker is a controller, too, has two listeners for clients and one for controllers, all on
loopback. ``PROXIED`` is for fault proxies: it listens on one port and tells clients to come to
another one, where the test's proxy stands.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ombus.dev.processes import HOST


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of one broker; they stay the same from one start to the next."""

    node_id: int
    client_port: int
    proxied_port: int
    """Where a fault proxy forwards to."""
    advertised_port: int
    """Where clients that came through a proxy are sent: the proxy listens here."""
    controller_port: int
    secured_port: int = 0
    """SASL_SSL, if the cluster was made with ``Security``; nothing listens here otherwise."""

    @property
    def address(self) -> str:
        return f"{HOST}:{self.client_port}"


class Security(msgspec.Struct, frozen=True, kw_only=True):
    """One more listener, with TLS and passwords, to try out what production will ask for."""

    keystore: str
    """A PEM file: the brokers' private key (PKCS 8), and their certificate for 127.0.0.1."""
    password_by_user: dict[str, str]
    """For the mechanism PLAIN. Whoever comes through the other listeners may do everything."""


def server_properties(
    broker: Broker, brokers: Sequence[Broker], folder: Path, security: Security | None = None
) -> str:
    """Return the configuration of ``broker`` with its data in ``folder``."""
    n_replicas = min(3, len(brokers))
    voters = ",".join(f"{each.node_id}@{HOST}:{each.controller_port}" for each in brokers)
    properties = {
        "process.roles": "broker,controller",
        "node.id": broker.node_id,
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "CLIENT",
        "listeners": f"CLIENT://{broker.address},PROXIED://{HOST}:{broker.proxied_port},"
        f"CONTROLLER://{HOST}:{broker.controller_port}",
        "advertised.listeners": f"CLIENT://{broker.address},"
        f"PROXIED://{HOST}:{broker.advertised_port}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": folder / "data",
        "auto.create.topics.enable": "false",
        # ACLs can be made and looked at; whoever comes without a name may do all the same.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
        "default.replication.factor": n_replicas,
        "offsets.topic.replication.factor": n_replicas,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": n_replicas,
        "transaction.state.log.min.isr": min(2, n_replicas),
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": n_replicas,
        "share.coordinator.state.topic.min.isr": min(2, n_replicas),
        "group.initial.rebalance.delay.ms": 0,
        # A killed broker is missed after three seconds, not nine: tests wait for that.
        "broker.session.timeout.ms": 3_000,
        "broker.heartbeat.interval.ms": 500,
        "controlled.shutdown.enable": "true" if len(brokers) > 1 else "false",
        # Small: several of these share two cores and little memory with the tests.
        "num.network.threads": 2,
        "num.io.threads": 4,
        "background.threads": 2,
        "log.cleaner.dedupe.buffer.size": 8_388_608,
    }
    if security is not None:
        for name, value in _secured(broker, security).items():
            properties[name] = f"{properties[name]},{value}" if name in properties else value
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def _secured(broker: Broker, security: Security) -> dict[str, str]:
    """Return what is added for the listener SECURED, to lists where there are some."""
    address = f"SECURED://{HOST}:{broker.secured_port}"
    users = " ".join(f'user_{name}="{word}"' for name, word in security.password_by_user.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    prefix = "listener.name.secured"
    return {
        "listeners": address,
        "advertised.listeners": address,
        "listener.security.protocol.map": "SECURED:SASL_SSL",
        f"{prefix}.ssl.keystore.type": "PEM",
        f"{prefix}.ssl.keystore.location": security.keystore,
        f"{prefix}.sasl.enabled.mechanisms": "PLAIN",
        f"{prefix}.plain.sasl.jaas.config": f"{module} required {users};",
    }
