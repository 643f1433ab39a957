"""The Faust app of one worker type: its group, its settings, its life.

No web server, no tables, no changelogs, no leader topic, no topic is ever declared: what is left
is membership. The fold version is in the group's name, so the next version is built beside.
"""

from datetime import timedelta
from pathlib import Path
from typing import Final, cast

import faust
import msgspec
from faust.types.auth import CredentialsT
from faust.types.transports import TransportT
from yarl import URL

from ombus_streams.engine.kafka.connection import Connection, client_options
from ombus_streams.engine.kafka.standing import SESSION_TIMEOUT, Standing
from ombus_streams.engine.kafka.transport import BatchConsumer, Batches, BatchTransport
from ombus_streams.memory.head import FOLD_VERSION

MAX_POLL_RECORDS: Final = 5_000
"""Records taken from the fetched ones at once; fewer cost throughput (1,000: a tenth less)."""


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """How soon a group notices that a member is gone, and who it is."""

    session_timeout: timedelta = SESSION_TIMEOUT
    heartbeat: timedelta = timedelta(seconds=2)
    rebalance_timeout: timedelta = timedelta(seconds=60)
    """How long members may take to close their partitions."""
    commit_interval: timedelta = timedelta(seconds=1)
    """Offsets are declared this often, for monitoring."""
    max_fetch_bytes: int = 4 * 1024 * 1024
    """Of one partition in one fetch."""


class BatchApp(faust.App):
    """An app without agents; ``batches`` gets all records of its topic."""

    batches: Batches
    standing: Standing

    @property
    def batch_consumer(self) -> BatchConsumer:
        return cast("BatchConsumer", self.consumer)

    def _new_transport(self) -> TransportT:
        return BatchTransport(self.conf.broker_consumer, self)

    def _create_directories(self) -> None:
        """Make none: Faust has nothing to keep."""


def group_of(worker: str, prefix: str = "ombus") -> str:
    """Return the consumer group of a worker type: one for each fold version."""
    return f"{prefix}-{worker}-v{FOLD_VERSION}"


def create_app(
    worker: str,
    connection: Connection,
    batches: Batches,
    *,
    group_prefix: str = "ombus",
    membership: Membership | None = None,
    standing: Standing | None = None,
) -> BatchApp:
    """Return the app of one worker type, subscribed to the topic of ``batches``, not started.

    Call it inside of the event loop it is to live on.
    """
    said = membership or Membership()
    app = BatchApp(
        group_of(worker, group_prefix),
        broker=_broker_urls(connection),
        broker_credentials=_credentials(connection),
        broker_client_id=f"{connection.client_id}-{worker}-{batches.instance}",
        broker_session_timeout=said.session_timeout.total_seconds(),
        broker_heartbeat_interval=said.heartbeat.total_seconds(),
        broker_rebalance_timeout=said.rebalance_timeout.total_seconds(),
        broker_commit_interval=said.commit_interval.total_seconds(),
        broker_max_poll_records=MAX_POLL_RECORDS,
        consumer_max_fetch_size=said.max_fetch_bytes,
        # An offset that is not there must be told to us, not be replaced by another one.
        consumer_auto_offset_reset="none",
        autodiscover=False,
        datadir=Path("unused"),
        store="memory://",
        stream_recovery_delay=0,
        stream_wait_empty=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        value_serializer="raw",
        web_enabled=False,
    )
    app.batches, app.standing = batches, standing or Standing(batches.instance)
    app.finalize()
    app.topics.add(app.topic(batches.topic, acks=False, value_serializer="raw"))
    return app


def _broker_urls(connection: Connection) -> list[URL]:
    servers = connection.bootstrap_servers.split(",")
    return [URL(f"kafka://{each.strip()}") for each in servers]


def _credentials(connection: Connection) -> CredentialsT | None:
    options = client_options(connection)
    context = options["ssl_context"]
    match connection.security_protocol:
        case "PLAINTEXT":
            return None
        case "SSL":
            return faust.SSLCredentials(context=context)
        case _:
            return faust.SASLCredentials(
                username=options["sasl_plain_username"],
                password=options["sasl_plain_password"],
                mechanism=options["sasl_mechanism"],
                ssl_context=context,
            )
