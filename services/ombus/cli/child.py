"""``ombus child``: any program works on what is delegated to a child id."""

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from ombus_schemas.topics import ENTRIES, SUPERVISION

from ombus.cli.options import OF_KAFKA, Data, Json, Servers, Tenant, refuse
from ombus.cli.output import note, say, say_json
from ombus.cli.shell import connection_for_command, settings_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from ombus.client.child import ChildBus, Offer, Work
    from ombus.client.children import Ended


ChildId: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="The child id to answer to.")
]
Command: TypeAlias = Annotated[
    list[str],
    typer.Argument(metavar="-- COMMAND...", help="The program, and what it is given."),
]
Slots: TypeAlias = Annotated[
    int, typer.Option("--slots", metavar="N", min=1, max=256, help="Delegations at once.")
]
LeaseSeconds: TypeAlias = Annotated[
    float,
    typer.Option(
        "--lease-seconds",
        metavar="S",
        min=0.25,
        max=300,
        help="Without a sign of life for so long, another child may take over.",
    ),
]
Tasks: TypeAlias = Annotated[
    int | None,
    typer.Option("--tasks", metavar="N", min=1, help="End after so many delegations."),
]
MaxLines: TypeAlias = Annotated[
    int, typer.Option("--max-lines", metavar="N", min=1, help="Lines of output.")
]
MaxLineBytes: TypeAlias = Annotated[
    int, typer.Option("--max-line-bytes", metavar="N", min=1, help="Bytes of one line.")
]
MaxBytes: TypeAlias = Annotated[
    int, typer.Option("--max-bytes", metavar="N", min=1, help="Bytes of output.")
]
GraceSeconds: TypeAlias = Annotated[
    float,
    typer.Option(
        "--grace-seconds", metavar="S", min=0, max=10, help="Between SIGTERM and SIGKILL."
    ),
]
GatewayUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="A gateway, instead of the data folder of this machine."
    ),
]
ChildToken: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar="OMBUS_CHILD_TOKEN",
        help="For the gateway: a publisher of the sessions `*-session`.",
    ),
]
ChildOnKafka: TypeAlias = Annotated[
    bool, typer.Option("--kafka", help="On Kafka itself, instead of the data folder.")
]
ChildInstance: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--instance",
        metavar="NAME",
        help="With --kafka: names this process and its rows. Default: the host.",
    ),
]
ChildTopic: TypeAlias = Annotated[
    str, typer.Option("--topic", metavar="NAME", help="With --kafka: where the entries are.")
]
EventsTopic: TypeAlias = Annotated[
    str,
    typer.Option("--events", metavar="NAME", help="With --kafka: where supervision events are."),
]


def child(
    context: typer.Context,
    name: ChildId,
    command: Command,
    slots: Slots = 1,
    lease: LeaseSeconds = 15.0,
    tasks: Tasks = None,
    max_lines: MaxLines = 10_000,
    max_line_bytes: MaxLineBytes = 1_048_576,
    max_bytes: MaxBytes = 67_108_864,
    grace: GraceSeconds = 5.0,
    url: GatewayUrl = None,
    token: ChildToken = None,
    kafka: ChildOnKafka = False,
    servers: Servers = None,
    instance: ChildInstance = None,
    topic: ChildTopic = ENTRIES,
    events: EventsTopic = SUPERVISION,
    json: Json = False,
    tenant: Tenant = None,
    data: Data = None,
) -> None:
    """Let a program be a child: it is started once for each delegation to NAME.

    The delegation's input is on its standard input. Each line it prints becomes an entry of the
    child's session: {"role": "assistant", "content": ...}, an entry, an event such as
    {"type": "turn_started"}, or plain text. Exit code 0 finishes the delegation, any other fails
    it; when it is cancelled or its lease is lost, the program gets SIGTERM, then SIGKILL.
    What it is told besides is in OMBUS_CHILD_DELEGATION, _SESSION, _PARENT, _ATTEMPT, _LIMITS.

    Several processes may answer to one NAME, on the data folder, over a gateway (--url), or on
    Kafka (--kafka, as a group); who dies is taken over when its lease is out. Ends with Ctrl-C or
    SIGTERM.
    """
    import asyncio
    import os
    import socket

    from ombus_schemas.ids import is_child_id

    from ombus.client.child import ChildTask, Done
    from ombus.client.child_bus import gateway_bus
    from ombus.client.command import Caps, run_command
    from ombus.operator.children import folder_bus

    if not is_child_id(name):
        raise typer.BadParameter(f"{name!r} is no child id: A-Z a-z 0-9 . _ : -, 1 to 128")
    if kafka and url is not None:
        raise typer.BadParameter("--kafka and --url are two ways: give one")
    if not kafka:
        refuse(context, "is of a child on Kafka: add --kafka", *OF_KAFKA)
    if url is None:
        refuse(context, "is for a gateway: add --url", "token")
    else:
        refuse(context, "is of a data folder: the gateway at --url has its own", "data", "tenant")
    settings = settings_for(context, data, tenant)
    caps = Caps(
        max_lines=max_lines,
        max_line_bytes=max_line_bytes,
        max_bytes=max_bytes,
        grace_seconds=grace,
    )
    environ = {name: text for name, text in os.environ.items() if name != "OMBUS_CHILD_TOKEN"}

    async def work(task: ChildTask) -> Done:
        return await run_command(task, command, caps, environ)

    def watch(seen: "Offer | Ended") -> None:
        if json:
            say_json(seen)
        else:
            say(_line(seen))

    bus: AbstractAsyncContextManager[ChildBus]
    where: str
    if kafka:
        from ombus.wiring_child import kafka_bus

        connection = connection_for_command(context, servers)
        named = instance or socket.gethostname()
        bus = kafka_bus(settings, connection, name, named, topic=topic, events=events)
        where = "Kafka"
    elif url is not None:
        bus, where = gateway_bus(url, token), url
    else:
        bus, where = folder_bus(settings), str(settings.folder)
        environ |= {"OMBUS_DATA": str(settings.folder), "OMBUS_TENANT": settings.tenant}
    if not json:
        note(f"ombus: child {name} of {where}")
    asyncio.run(_serve(bus, name, work, watch, slots, round(lease * 1_000), tasks))


async def _serve(
    opening: "AbstractAsyncContextManager[ChildBus]",
    name: str,
    work: "Work",
    watch: "Callable[[Offer | Ended], None]",
    slots: int,
    lease_ms: int,
    tasks: int | None,
) -> None:
    import asyncio
    import signal

    from ombus.client.children import serve_children

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with opening as bus:
        await serve_children(
            bus,
            name,
            work,
            slots=slots,
            lease_ms=lease_ms,
            max_tasks=tasks,
            stop=stop,
            watch=watch,
        )


def _line(seen: "Offer | Ended") -> str:
    from ombus.client.child import Offer

    if isinstance(seen, Offer):
        attempt = f", attempt {seen.epoch}" if seen.epoch > 1 else ""
        return f"claimed {seen.delegation_id} of {seen.parent}{attempt}"
    reason = f": {seen.reason}" if seen.reason else ""
    return f"{seen.standing} {seen.offer.delegation_id}{reason}"
