"""The part of the composition root that makes a worker process on Kafka.

Each role of the process has its own rows, its own consumer group and its own accounts; they share
the connection to the log, the memory of RocksDB, and the event loop.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ombus_schemas.topics import DEAD_LETTERS, ENTRIES, GRANTS, SUPERVISION
from ombus_streams.engine.kafka.status import WorkerStatus
from ombus_streams.memory.head import FOLD_VERSION
from ombus_streams.runtime.interpreter import Interpreter
from ombus_streams.runtime.metrics import Gauges
from ombus_streams.runtime.owners import GrantsOwners
from ombus_streams.runtime.ports import Clock
from ombus_streams.runtime.provider import ModelProvider, WorkerName
from ombus_streams.runtime.roster import Fixed
from ombus_streams.runtime.staff import Staff
from ombus_streams.runtime.telemetry import Telemetry

from ombus.settings import BadSetting, ProcessSettings
from ombus.wiring import SystemClock, extractive_providers, staff_of, telemetry_of
from ombus.wiring_grants import RedisConnection, open_granter
from ombus.wiring_kafka import Connection, open_kafka_log, require_extra

if TYPE_CHECKING:
    from ombus_streams.engine.granter import Granter
    from ombus_streams.engine.kafka.milestones import MilestonesWorker
    from ombus_streams.engine.kafka.supervision import KafkaSupervision
    from ombus_streams.engine.kafka.threads import Threads
    from ombus_streams.engine.kafka.worker import Worker

__all__ = ["ROLE_NAMES", "WorkerStatus", "run_workers", "staff_for", "state_folder"]

MILESTONES: Final = "milestones"
SUPERVISOR: Final = "supervisor"
GRANTER: Final = "granter"
ROLE_NAMES: Final = (
    "observer", "reflector", "dropper", "compactor", "funnel", "projector", MILESTONES, SUPERVISOR,
    GRANTER, "all",
)  # fmt: skip
KAFKA_FOLDER: Final = "kafka"
"""Under the data folder: what this machine has folded from Kafka."""

Watch = Callable[[Sequence[WorkerStatus]], None]


def state_folder(data: Path, instance: str, role: str) -> Path:
    """Return where the rows of one role of one instance lie, for this fold version."""
    return data / KAFKA_FOLDER / instance / f"{role}-v{FOLD_VERSION}"


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
    _check(roles)
    from ombus_streams.engine.kafka.library_logs import forwarded
    from ombus_streams.engine.kafka.rocks import Memory
    from ombus_streams.engine.kafka.threads import Threads

    clock = clock or SystemClock()
    telemetry = telemetry or telemetry_of(settings)
    with ExitStack() as opened:
        opened.enter_context(forwarded())
        log = await asyncio.to_thread(open_kafka_log, connection, topic, telemetry.tracer)
        opened.callback(log.close)
        letters = await asyncio.to_thread(open_kafka_log, connection, dead_letters)
        opened.callback(letters.close)
        owners = GrantsOwners(lambda: open_kafka_log(connection, GRANTS))
        opened.callback(owners.close)
        memory, computing = Memory(), Threads("ombus-compute", 1)

        def make(role: str) -> "Worker":
            from ombus_streams.engine.kafka.admission import RunLimits
            from ombus_streams.engine.kafka.gauges import WorkerGauges
            from ombus_streams.engine.kafka.partition import FoldOptions
            from ombus_streams.engine.kafka.roles import ROLES
            from ombus_streams.engine.kafka.store import RocksState
            from ombus_streams.engine.kafka.worker import Worker, WorkerOptions

            state = RocksState(state_folder(settings.folder, instance, role), memory)
            opened.callback(state.close)
            caps = settings.models.caps
            options = WorkerOptions(
                instance=instance,
                # Members of a group read the same topic.
                group_prefix="ombus" if topic == ENTRIES else topic,
                fold=FoldOptions(ahead=settings.models.ahead),
                limits=RunLimits(max_runs=caps.max_runs, max_tenant_runs=caps.max_tenant_runs),
            )
            staff = staff_for(settings, clock, environ, computing)
            interpreter = Interpreter(staff, clock, secrets=settings.secrets, owners=owners)
            worker = Worker(
                ROLES[role], options, connection, log, letters, state, interpreter, clock,
                settings.secrets, telemetry=telemetry.of(role),
            )  # fmt: skip
            if measure is not None:
                measure(WorkerGauges(worker, clock).samples)
            return worker

        def make_milestones() -> "MilestonesWorker":
            from ombus_streams.engine.kafka.milestones import MilestonesWorker
            from ombus_streams.engine.kafka.store import RocksState
            from ombus_streams.runtime.deriver import MILESTONES_VERSION

            told = open_kafka_log(connection, events)
            opened.callback(told.close)
            folder = (
                settings.folder / KAFKA_FOLDER / instance / f"{MILESTONES}-v{MILESTONES_VERSION}"
            )
            state = RocksState(folder, memory)
            opened.callback(state.close)
            return MilestonesWorker(
                instance,
                connection,
                log,
                told,
                state,
                settings.secrets,
                group_prefix="ombus" if topic == ENTRIES else topic,
            )

        def make_supervisor() -> "KafkaSupervision":
            from ombus.wiring_delegations import open_kafka_supervision

            made = open_kafka_supervision(
                settings, connection, instance, instance=instance, topic=events, clock=clock
            )
            opened.callback(made.close)
            return made

        def make_granter() -> "Granter":
            if redis is None:
                raise BadSetting("worker granter", "needs a Redis: set url of [redis]")
            return open_granter(instance, connection, redis, opened, grants)

        def make_any(role: str) -> "Worker | MilestonesWorker | KafkaSupervision | Granter":
            match role:
                case "granter":
                    return make_granter()
                case "milestones":
                    return make_milestones()
                case "supervisor":
                    return make_supervisor()
                case _:
                    return make(role)

        try:
            await _run(
                [make_any(role) for role in roles],
                stop,
                watch,
                watch_seconds,
            )
        finally:
            await computing.close()


async def _run(
    workers: Sequence["Worker | MilestonesWorker | KafkaSupervision | Granter"],
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


def staff_for(
    settings: ProcessSettings, clock: Clock, environ: Mapping[str, str], computing: "Threads"
) -> Staff:
    """Return who does the work; the model-free provider computes, so it does that in a thread."""
    if settings.models.providers:
        return staff_of(settings, clock, environ)
    from ombus_streams.engine.kafka.threads import Threaded

    providers: dict[WorkerName, ModelProvider] = {
        name: Threaded(provider, computing) for name, provider in extractive_providers().items()
    }
    return Staff(Fixed(providers))


def _check(roles: Sequence[str]) -> None:
    for role in roles:
        if role not in ROLE_NAMES:
            raise BadSetting(f"worker {role}", f"is none of {', '.join(ROLE_NAMES)}")
    if "all" in roles and set(roles) - {"all", MILESTONES, SUPERVISOR, GRANTER}:
        raise BadSetting("worker all", "does the work of every other one: name it alone")
    if len(set(roles)) < len(roles):
        raise BadSetting("worker", "is named twice")
