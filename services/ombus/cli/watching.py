"""``ombus watch``: files that agents still write, followed onto the log."""

from pathlib import Path
from typing import Annotated

import typer

from ombus.cli.options import Data, Tenant
from ombus.cli.output import note, say
from ombus.cli.shell import desk_for, settings_for


def watch(
    context: typer.Context,
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Folders (or files) of transcripts."),
    ],
    backfill: Annotated[
        bool,
        typer.Option("--backfill", help="Take in what is there already, not only what comes."),
    ] = False,
    interval: Annotated[
        float,
        typer.Option("--interval", metavar="S", min=0.05, max=3_600, help="Seconds between looks."),
    ] = 1.0,
    settle: Annotated[
        float,
        typer.Option(
            "--settle",
            metavar="S",
            min=0,
            help="Seconds without a change after which a message that may go on is complete.",
        ),
    ] = 30.0,
    once: Annotated[
        bool, typer.Option("--once", help="End when everything that is settled is on the log.")
    ] = False,
    log_json: Annotated[
        bool, typer.Option("--log-json", help="Logs on standard error as JSON.")
    ] = False,
    tenant: Tenant = None,
    data: Data = None,
) -> None:
    """Follow transcripts as they grow, until interrupted or terminated.

    How far each file is on the log is kept in the data folder: after a stop or a kill the next
    watch goes on there. Without `ombus up` beside it, it folds and runs the workers itself.
    """
    import signal
    import threading

    from ombus.cli import logs
    from ombus.watch.watcher import Watcher

    absent = [folder for folder in folders if not folder.exists()]
    if len(absent) == len(folders):
        raise typer.BadParameter(f"{absent[0]} is not there, nor is another of the folders")
    for folder in absent:
        note(f"ombus: {folder} is not there yet: it is followed when it is")
    settings = settings_for(context, data, tenant, quiet=False)
    if log_json:
        logs.configure(settings.log_level, as_json=True, secrets=settings.secrets)
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        with desk_for(settings, needs_log=False) as desk:
            watcher = Watcher(desk, folders, settle_seconds=settle, backfill=backfill, stop=stop)
            try:
                if not once:
                    say(f"watching {', '.join(map(str, folders))} for {settings.folder}")
                watcher.run(interval, is_once=once)
            finally:
                watcher.close()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
