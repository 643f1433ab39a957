"""The part of the composition root that lets a gateway work on Kafka.

A gateway is a worker like any other, under a role of its choice, that also answers for what it
folds: its address travels with its membership.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec
from ombus_schemas.topics import DEAD_LETTERS, ENTRIES, GRANTS
from ombus_streams.runtime.interpreter import Interpreter
from ombus_streams.runtime.ports import Clock

from ombus.settings import BadSetting, ProcessSettings
from ombus.wiring import SystemClock, telemetry_of
from ombus.wiring_kafka import Connection, open_kafka_log, require_extra
from ombus.wiring_worker import staff_for, state_folder

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
    from ombus_streams.engine.kafka.admission import RunLimits
    from ombus_streams.engine.kafka.app import Membership
    from ombus_streams.engine.kafka.engine import KafkaEngine
    from ombus_streams.engine.kafka.library_logs import forwarded
    from ombus_streams.engine.kafka.partition import FoldOptions
    from ombus_streams.engine.kafka.replicas import Replicas
    from ombus_streams.engine.kafka.rocks import Memory
    from ombus_streams.engine.kafka.roles import ROLES
    from ombus_streams.engine.kafka.store import RocksState
    from ombus_streams.engine.kafka.threads import Threads
    from ombus_streams.engine.kafka.worker import Worker, WorkerOptions

    clock = clock or SystemClock()
    telemetry = telemetry_of(settings).of(sharing.role)
    opened = ExitStack()
    # What was opened is closed again if the next thing cannot be.
    with opened:
        opened.enter_context(forwarded())
        log = open_kafka_log(connection, sharing.topic, telemetry.tracer, timeout=LOG_TIMEOUT)
        opened.callback(log.close)
        letters = open_kafka_log(connection, sharing.dead_letters)
        opened.callback(letters.close)
        folder = state_folder(settings.folder, sharing.instance, sharing.role)
        memory = Memory()
        state = RocksState(folder, memory)
        opened.callback(state.close)
        replicas: Replicas | None = None
        if sharing.replicates:
            beside = state_folder(settings.folder, sharing.instance, REPLICAS)
            copies = RocksState(beside, memory)
            opened.callback(copies.close)
            replicas = Replicas(log, copies, settings.secrets)
        computing = Threads("ombus-compute", 1)
        opened.callback(lambda: asyncio.run(computing.close()))
        caps = settings.models.caps
        options = WorkerOptions(
            instance=sharing.instance,
            # Members of a group read the same topic.
            group_prefix="ombus" if sharing.topic == ENTRIES else sharing.topic,
            fold=FoldOptions(ahead=settings.models.ahead),
            limits=RunLimits(max_runs=caps.max_runs, max_tenant_runs=caps.max_tenant_runs),
            membership=Membership(heartbeat=HEARTBEAT),
            address=address,
        )

        def hire(news: Callable[[], None]) -> "Worker":
            staff = staff_for(settings, clock, environ, computing)
            interpreter = Interpreter(staff, clock, secrets=settings.secrets)
            return Worker(
                ROLES[sharing.role], options, connection, log, letters, state, interpreter, clock,
                settings.secrets, news, telemetry,
            )  # fmt: skip

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
