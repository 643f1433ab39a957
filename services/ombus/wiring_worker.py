"""The part of the composition root that makes a worker process on Kafka.

Each role of the process has its own rows, its own consumer group and its own accounts; they share
the connection to the log, the memory of RocksDB, and the event loop.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from ombus_schemas.topics import DEAD_LETTERS, ENTRIES, GRANTS, SUPERVISION
from ombus_streams.engine.kafka.status import WorkerStatus
from ombus_streams.runtime.metrics import Gauges
from ombus_streams.runtime.ports import Clock
from ombus_streams.runtime.telemetry import Telemetry

from ombus.settings import BadSetting, ProcessSettings
from ombus.wiring import SystemClock, telemetry_of
from ombus.wiring_equipment import Equipment
from ombus.wiring_grants import RedisConnection, open_granter
from ombus.wiring_kafka import Connection, open_kafka_log, require_extra

if TYPE_CHECKING:
    from ombus_streams.engine.granter import Granter
    from ombus_streams.engine.kafka.milestones import MilestonesWorker
    from ombus_streams.engine.kafka.supervision import KafkaSupervision
    from ombus_streams.engine.kafka.worker import Worker

    AnyWorker = Worker | MilestonesWorker | KafkaSupervision | Granter

__all__ = ["ROLE_NAMES", "WorkerStatus", "check_roles", "run_workers"]

MILESTONES: Final = "milestones"
SUPERVISOR: Final = "supervisor"
GRANTER: Final = "granter"
ROLE_NAMES: Final = (
    "observer", "reflector", "dropper", "compactor", "funnel", "projector", MILESTONES, SUPERVISOR,
    GRANTER, "all",
)  # fmt: skip
Watch = Callable[[Sequence[WorkerStatus]], None]


async def run_workers(
    settings: ProcessSettings,
    connection: Connection,
    roles: Sequence[str],
    instance: str,
    stop: asyncio.Event,
    watch: Watch,
    topic: str = ENTRIES,
    dead_letters: str = DEAD_LETTERS,
    *,
    events: str = SUPERVISION,
    clock: Clock | None = None,
    environ: Mapping[str, str] = os.environ,
    watch_seconds: float = 1.0,
    telemetry: Telemetry | None = None,
    measure: Callable[[Gauges], None] | None = None,
    redis: RedisConnection | None = None,
    grants: str = GRANTS,
) -> None:
    """Run the workers until ``stop`` is set; the first that fails ends all of them.

    ``watch`` is told how far they are, again and again; ``measure`` once of each worker's gauges,
    which are to be asked on this event loop.

    Raises:
        LogContradicts, BrokerError, StoreError: see their way out.
        BadSetting: a name is no role, or the extra is not installed.
    """
    require_extra()
    check_roles(roles)
    from ombus_streams.engine.kafka.library_logs import forwarded

    with ExitStack() as opened:
        opened.enter_context(forwarded())
        equipment = await asyncio.to_thread(
            Equipment,
            settings,
            connection,
            instance,
            opened,
            topic=topic,
            dead_letters=dead_letters,
            grants=grants,
            clock=clock or SystemClock(),
            environ=environ,
            telemetry=telemetry or telemetry_of(settings),
        )
        workers = [_made(role, equipment, events, redis, grants, measure) for role in roles]
        await _run(workers, stop, watch, watch_seconds)


def _made(
    role: str,
    equipment: Equipment,
    events: str,
    redis: RedisConnection | None,
    grants: str,
    measure: Callable[[Gauges], None] | None,
) -> "AnyWorker":
    connection, instance = equipment.connection, equipment.instance
    match role:
        case "granter":
            if redis is None:
                raise BadSetting("worker granter", "needs a Redis: set url of [redis]")
            return open_granter(instance, connection, redis, equipment.opened, grants)
        case "milestones":
            return _milestones(equipment, events)
        case "supervisor":
            return _supervisor(equipment, events)
        case _:
            from ombus_streams.engine.kafka.gauges import WorkerGauges

            worker = equipment.worker(role, equipment.state(role))
            if measure is not None:
                measure(WorkerGauges(worker, equipment.clock).samples)
            return worker


def _milestones(equipment: Equipment, events: str) -> "MilestonesWorker":
    from ombus_streams.engine.kafka.milestones import MilestonesWorker
    from ombus_streams.runtime.deriver import MILESTONES_VERSION

    told = open_kafka_log(equipment.connection, events)
    equipment.opened.callback(told.close)
    return MilestonesWorker(
        equipment.instance,
        equipment.connection,
        equipment.log,
        told,
        equipment.state(MILESTONES, MILESTONES_VERSION),
        equipment.settings.secrets,
        group_prefix=equipment.group_prefix,
    )


def _supervisor(equipment: Equipment, events: str) -> "KafkaSupervision":
    from ombus.wiring_delegations import open_kafka_supervision

    instance = equipment.instance
    made = open_kafka_supervision(
        equipment.settings,
        equipment.connection,
        instance,
        instance=instance,
        topic=events,
        clock=equipment.clock,
    )
    equipment.opened.callback(made.close)
    return made


async def _run(
    workers: Sequence["AnyWorker"],
    stop: asyncio.Event,
    watch: Watch,
    watch_seconds: float,
) -> None:
    ending = asyncio.Event()
    running = {asyncio.create_task(worker.run(ending)) for worker in workers}
    stopped = asyncio.create_task(stop.wait())
    try:
        while not stop.is_set() and not any(each.done() for each in running):
            watch([worker.status() for worker in workers])
            await asyncio.wait(
                {stopped, *running}, timeout=watch_seconds, return_when=asyncio.FIRST_COMPLETED
            )
    finally:
        stopped.cancel()
        ending.set()
        ended = await asyncio.gather(*running, return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException):
            raise each


def check_roles(roles: Sequence[str]) -> None:
    """Refuse names that no worker has, and those that do not go together.

    Raises:
        BadSetting: as it says.
    """
    for role in roles:
        if role not in ROLE_NAMES:
            raise BadSetting(f"worker {role}", f"is none of {', '.join(ROLE_NAMES)}")
    if "all" in roles and set(roles) - {"all", MILESTONES, SUPERVISOR, GRANTER}:
        raise BadSetting("worker all", "does the work of every other one: name it alone")
    if len(set(roles)) < len(roles):
        raise BadSetting("worker", "is named twice")
