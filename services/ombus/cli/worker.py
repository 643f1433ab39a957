"""``ombus worker NAME…``: fold what Kafka assigns to this machine, and do the named work."""

import socket
from typing import TYPE_CHECKING, Annotated, Final

import typer
from ombus_schemas.topics import DEAD_LETTERS, ENTRIES, GRANTS, SUPERVISION

from ombus.cli.options import Data, Json, Servers, TopicName, refuse
from ombus.cli.output import say, say_json
from ombus.cli.shell import connection_for_command, redis_for_command, settings_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ombus_schemas.jsontext import JsonValue
    from ombus_streams.runtime.metrics import Gauges

    from ombus.settings import ProcessSettings
    from ombus.wiring_grants import RedisConnection
    from ombus.wiring_kafka import Connection
    from ombus.wiring_worker import WorkerStatus

_READ_BY: Final = {
    "events": ("milestones", "supervisor"),
    "grants": ("funnel", "all", "granter"),
}
"""Which roles read a topic that not every worker opens, by the parameter that names it."""


def worker(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="observer, reflector, dropper, compactor, funnel, projector, or all; milestones; "
            "supervisor; granter.",
        ),
    ],
    servers: Servers = None,
    instance: Annotated[
        str | None,
        typer.Option(
            "--instance",
            metavar="NAME",
            help="Names this machine and its rows, the same after every start. Default: the host.",
        ),
    ] = None,
    health: Annotated[
        str | None,
        typer.Option(
            "--health",
            metavar="HOST:PORT",
            help="Answer GET /live, GET /ready and GET /metrics there.",
        ),
    ] = None,
    topic: TopicName = ENTRIES,
    dead_letters: Annotated[
        str, typer.Option("--dead-letters", metavar="NAME", help="Where what is no entry goes.")
    ] = DEAD_LETTERS,
    events: Annotated[
        str, typer.Option("--events", metavar="NAME", help="Where supervision events are.")
    ] = SUPERVISION,
    grants: Annotated[
        str, typer.Option("--grants", metavar="NAME", help="Where grants of scopes are.")
    ] = GRANTS,
    json: Json = False,
    data: Data = None,
) -> None:
    """Fold partitions of Kafka and do the work of the named workers, until terminated.

    Names share nothing but the process: each has its own rows and its own consumer group. `all`
    does the work of the first six over one set of rows. Exactly one kind of worker must write dead
    letters: the projector does, and `all`. Milestones tell parents of their children.
    The granter keeps the maps of shared scopes in Redis; several are each other's spares.
    """
    import asyncio

    from ombus.wiring_worker import check_roles

    for option, readers in _READ_BY.items():
        if not set(names) & set(readers):
            fact = f"is read by {', '.join(readers)}, and none of them is named"
            refuse(context, fact, option)
    check_roles(names)
    connection = connection_for_command(context, servers)
    settings = settings_for(context, data, quiet=False)
    asyncio.run(
        _run(
            settings,
            connection,
            names,
            instance or socket.gethostname(),
            health,
            topic,
            dead_letters,
            events,
            redis_for_command(context),
            grants,
            as_json=json,
        )
    )
    if not json:
        say("stopped")


async def _run(
    settings: "ProcessSettings",
    connection: "Connection",
    names: list[str],
    instance: str,
    health: str | None,
    topic: str,
    dead_letters: str,
    events: str,
    redis: "RedisConnection | None",
    grants: str,
    *,
    as_json: bool,
) -> None:
    import asyncio
    import signal
    from contextlib import AsyncExitStack

    from ombus.cli.extras import required
    from ombus.health import Health, serve_health
    from ombus.wiring import telemetry_of
    from ombus.wiring_worker import run_workers

    with required("kafka"):
        from ombus.telemetry.exposition import exposition

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    seen: list[WorkerStatus] = []
    gauges: list[Gauges] = []
    telemetry = telemetry_of(settings)

    def metrics() -> bytes:
        return exposition(telemetry.tally, [sample for ask in gauges for sample in ask()])

    def watch(statuses: "Sequence[WorkerStatus]") -> None:
        was_ready = _are_ready(seen)
        seen[:] = statuses
        if _are_ready(seen) != was_ready:
            _say(seen, as_json=as_json)

    async with AsyncExitStack() as opened:
        if health is not None:
            host, port = _address(health)
            details = serve_health(
                host, port, lambda: Health(_are_ready(seen), _details(seen)), metrics
            )
            await opened.enter_async_context(details)
        await run_workers(
            settings, connection, names, instance, stop, watch, topic, dead_letters,
            events=events, telemetry=telemetry, measure=gauges.append, redis=redis, grants=grants,
        )  # fmt: skip


def _are_ready(statuses: "Sequence[WorkerStatus]") -> bool:
    return bool(statuses) and all(each.is_ready for each in statuses)


def _say(statuses: "Sequence[WorkerStatus]", *, as_json: bool) -> None:
    ready = _are_ready(statuses)
    if as_json:
        say_json({"ready": ready, "workers": _details(statuses)})
        return
    names = ", ".join(each.role for each in statuses)
    n_partitions = sum(len(each.partitions) for each in statuses)
    instance = statuses[0].instance
    if ready:
        say(f"ready: {names} on {instance}, {n_partitions} partitions; Ctrl-C ends it")
    else:
        progress = min(each.progress for each in statuses)
        say(f"catching up: {names} on {instance}, {progress:.0%} of {n_partitions} partitions")


def _details(statuses: "Sequence[WorkerStatus]") -> "JsonValue":
    import msgspec

    found: JsonValue = msgspec.to_builtins(tuple(statuses))
    return found


def _address(text: str) -> tuple[str, int]:
    from ombus.settings import BadSetting

    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise BadSetting("--health", f"{text} is no address: give HOST:PORT")
    return host.strip("[]"), int(port)
