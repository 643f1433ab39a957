"""Commands about the data folder as a whole: ``up``, ``verify``, ``rebuild``, ``demo``."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from ombus_schemas.topics import ENTRIES

from ombus.cli.options import (
    OF_KAFKA,
    Data,
    FromCheckpoint,
    Instance,
    Json,
    OnKafka,
    RoleName,
    Servers,
    TopicName,
    refuse,
)
from ombus.cli.output import note, object_of, progress, say, say_json
from ombus.cli.shell import desk_for, settings_for

if TYPE_CHECKING:
    from ombus.operator.verification import Verification

_ADD_KAFKA: Final = "is of rows on Kafka: add --kafka"


def up(
    context: typer.Context,
    wait: Annotated[
        float,
        typer.Option("--wait", metavar="N", min=0, help="Seconds to wait for a command at work."),
    ] = 10.0,
    log_json: Annotated[
        bool, typer.Option("--log-json", help="Logs on standard error as JSON.")
    ] = False,
    json: Json = False,
    data: Data = None,
) -> None:
    """Fold the data folder and run its workers, until interrupted or terminated."""
    import asyncio
    from functools import partial

    from ombus.cli import logs
    from ombus.operator.serving import own, serve
    from ombus.wiring_supervision import supervise

    settings = settings_for(context, data, quiet=False)
    if log_json:
        logs.configure(settings.log_level, as_json=True, secrets=settings.secrets)
    engine = own(settings, wait, "ombus up")

    def ready() -> None:
        log, lag = engine.log, engine.lag()
        if json:
            say_json(
                {
                    "ready": True,
                    "data": str(settings.folder),
                    "incarnation": log.incarnation,
                    "partitions": log.partitions,
                    "lag": lag,
                }
            )
        else:
            say(
                f"ready: folding {settings.folder} (log {log.incarnation}, {log.partitions} "
                f"partitions, {lag:,} records behind); Ctrl-C ends it"
            )

    try:
        asyncio.run(serve(engine, ready, [partial(supervise, settings)]))
    finally:
        engine.close()
    if not json:
        say("stopped")


def verify(
    context: typer.Context,
    kafka: OnKafka = False,
    role: RoleName = "all",
    instance: Instance = None,
    topic: TopicName = ENTRIES,
    servers: Servers = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Fold the log afresh and compare every row; works while `up` or a worker runs.

    With --kafka: the rows this machine has folded from Kafka, each partition as it stands now.
    """
    from ombus.cli.exits import FOUND

    started = time.monotonic()
    if kafka:
        from ombus.cli import rows

        found = rows.verified(rows.Rows(context, data, servers, topic, role, instance))
    else:
        from ombus.operator.verification import verify_folder

        refuse(context, _ADD_KAFKA, *OF_KAFKA)
        with desk_for(settings_for(context, data)) as desk, progress("verifying") as tell:
            found = verify_folder(desk.engine, tell)
    if json:
        say_json({"equal": found.is_equal, **object_of(found)})
    else:
        say_verification(found, time.monotonic() - started)
    if not found.is_equal:
        raise typer.Exit(FOUND)


def rebuild(
    context: typer.Context,
    kafka: OnKafka = False,
    role: RoleName = "all",
    instance: Instance = None,
    topic: TopicName = ENTRIES,
    checkpoints: FromCheckpoint = None,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", metavar="N", min=0, help="With --kafka: seconds for a worker to let go."
        ),
    ] = 60.0,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            metavar="N",
            min=1,
            help="With --kafka: fold in so many. Default: one a core, from 100,000 records on.",
        ),
    ] = None,
    remove_old: Annotated[
        bool,
        typer.Option(
            "--remove-old", help="With --kafka: delete rows of older fold versions, and no more."
        ),
    ] = False,
    servers: Servers = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Fold a new state from the log alone and put it in the place of the old one.

    With --kafka: beside a worker that goes on, from zero or from a checkpoint; it takes the old
    one's place once the worker is stopped. In a new fold version there is no old one to wait for:
    rebuild, start the new worker, stop the old one, then `rebuild --kafka --remove-old`.
    """
    folding = ("processes", "checkpoints", "wait")
    if not kafka:
        refuse(context, _ADD_KAFKA, *OF_KAFKA, *folding, "remove_old")
    if remove_old:
        refuse(context, "folds rows, --remove-old only deletes some: give one of them", *folding)
    if kafka:
        from ombus.cli import rows

        where = rows.Rows(context, data, servers, topic, role, instance)
        if remove_old:
            rows.remove_old(where, as_json=json)
        else:
            rows.rebuild(where, checkpoints, wait, processes, as_json=json)
    else:
        _rebuild_folder(context, data, as_json=json)


def demo(
    context: typer.Context,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="FOLDER", help="Leave the data in this empty folder."),
    ] = None,
) -> None:
    """Show the whole way on a sample transcript, in a temporary folder. Needs no network."""
    from ombus.cli.demo import run

    settings_for(context)
    run(keep)


def say_verification(found: "Verification", seconds: float) -> None:
    """Print what was compared, then the verdict on the last line."""
    say(
        f"compared {found.rows:,} rows of {found.partitions} partitions with a fold of "
        f"{found.records:,} records in {seconds:.2f} s"
    )
    say(f"checked coverage and no-hole on {found.leaves:,} leaves for {found.sources:,} sources")
    if found.lag:
        note(f"not folded yet, hence not compared: {found.lag:,} records")
    for each in found.differences:
        where = f"{each.session}: " if each.session else ""
        say(f"{where}{each.what}: {each.fact}")
    if found.is_equal:
        say(f"verify: {found.rows:,} rows of {found.sessions:,} sessions equal")
    else:
        more = found.n_differences - len(found.differences)
        rest = f", {more:,} of them not shown" if more else ""
        say(f"verify: {found.n_differences:,} differences{rest}")


def _rebuild_folder(context: typer.Context, data: Path | None, *, as_json: bool) -> None:
    from ombus.operator.errors import NoData
    from ombus.operator.rebuilding import rebuild as rebuild_folder
    from ombus.wiring import has_log

    settings = settings_for(context, data)
    if not has_log(settings.folder):
        raise NoData(settings.folder)
    started = time.monotonic()
    with progress("rebuilding") as tell:
        done = rebuild_folder(settings, tell)
    if as_json:
        say_json(done)
        return
    match done.n_differing:
        case None:
            before = "the state before could not be read"
        case 0:
            before = "byte-equal to the state before"
        case count:
            before = f"{count:,} rows differ from the state before"
    say(
        f"rebuilt {done.rows:,} rows of {done.sessions:,} sessions from {done.records:,} records "
        f"in {time.monotonic() - started:.2f} s: {before}"
    )
