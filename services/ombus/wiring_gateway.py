"""The part of the composition root that lets a gateway work on Kafka.

A gateway is a worker like any other, under a role of its choice, that also answers for what it
folds: its address travels with its membership.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec
from ombus_schemas.topics import DEAD_LETTERS, ENTRIES, GRANTS
from ombus_streams.runtime.ports import Clock

from ombus.settings import BadSetting, ProcessSettings
from ombus.wiring import SystemClock, telemetry_of
from ombus.wiring_equipment import Equipment
from ombus.wiring_kafka import Connection, require_extra

if TYPE_CHECKING:
    from ombus_streams.engine.kafka.engine import KafkaEngine
    from ombus_streams.engine.kafka.worker import Worker

__all__ = ["Sharing", "open_kafka_engine"]

SERVING_ROLES: Final = ("projector", "all")
HEARTBEAT: Final = timedelta(seconds=1)
"""More often than a worker's: readers wait for what a silent gateway owned."""
REPLICAS: Final = "replicas"
LOG_TIMEOUT: Final = timedelta(seconds=10)
"""A request waits no longer for the brokers."""


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """How a gateway shares a log with others."""

    instance: str
    """Names the member and its folder: the same after every restart."""
    role: str = "projector"
    """``all``: it also does the workers' work, for what it folds."""
    replicates: bool = False
    """It folds what others own, too, to answer for them when they do not."""
    topic: str = ENTRIES
    dead_letters: str = DEAD_LETTERS
    grants: str = GRANTS


def open_kafka_engine(
    settings: ProcessSettings,
    connection: Connection,
    sharing: Sharing,
    address: str,
    *,
    clock: Clock | None = None,
    environ: Mapping[str, str] = os.environ,
) -> "KafkaEngine":
    """Return the engine of a gateway whose own address is ``address``; it joins when it runs.

    Raises:
        BrokerError, StoreError: see their way out.
        BadSetting: the role is none, or the extra is not installed.
    """
    require_extra()
    if sharing.role not in SERVING_ROLES:
        raise BadSetting(f"--role {sharing.role}", "is neither projector nor all")
    from ombus_streams.engine.kafka.app import Membership
    from ombus_streams.engine.kafka.engine import KafkaEngine
    from ombus_streams.engine.kafka.library_logs import forwarded
    from ombus_streams.engine.kafka.replicas import Replicas

    clock = clock or SystemClock()
    telemetry = telemetry_of(settings).of(sharing.role)
    opened = ExitStack()
    # What was opened is closed again if the next thing cannot be.
    with opened:
        opened.enter_context(forwarded())
        equipment = Equipment(
            settings,
            connection,
            sharing.instance,
            opened,
            topic=sharing.topic,
            dead_letters=sharing.dead_letters,
            grants=sharing.grants,
            clock=clock,
            environ=environ,
            telemetry=telemetry,
            timeout=LOG_TIMEOUT,
        )
        log, state = equipment.log, equipment.state(sharing.role)
        replicas: Replicas | None = None
        if sharing.replicates:
            replicas = Replicas(log, equipment.state(REPLICAS), settings.secrets)

        def hire(news: Callable[[], None]) -> "Worker":
            membership = Membership(heartbeat=HEARTBEAT)
            return equipment.worker(
                sharing.role, state, membership=membership, address=address, news=news
            )

        closing = opened.pop_all()
    return KafkaEngine(
        log,
        state,
        hire,
        replicas=replicas,
        closing=(closing.close,),
        telemetry=telemetry,
        clock=clock,
    )
