"""The commands, the options before them, and how errors end."""

import inspect
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ombus.cli import (
    caring,
    checkpoint,
    dev,
    eval,
    exporting,
    granting,
    letters,
    operating,
    reading,
    scope,
    token,
    topics,
    usage,
    watching,
    writing,
)
from ombus.cli.archive import archive, restore
from ombus.cli.child import child
from ombus.cli.invalidating import invalidate
from ombus.cli.mcp import mcp
from ombus.cli.replay import replay
from ombus.cli.rows import replica
from ombus.cli.serve import serve
from ombus.cli.shadow import shadow
from ombus.cli.shell import Flags
from ombus.cli.tree import tree
from ombus.cli.worker import worker

_EPILOG = (
    "The data folder is --data, else OMBUS_DATA, else `data` in ./ombus.toml or "
    "~/.config/ombus/config.toml, else ~/.local/share/ombus.  "
    "Exit codes: 0 fine, 1 a finding, 2 misused, 3 unreachable, busy or out of time."
)


_WHOLE = 1_000
"""Characters of a command's first sentence that the list shows: all of them."""


class Commands(TyperGroup):
    """Prints the list of commands without rich, which costs more than all else of it.

    Known errors become one line and an exit code.
    """

    def format_help(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        self.rich_markup_mode = None  # the list's own: each command keeps what the app says
        super().format_help(ctx, formatter)

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        width = max(len(name) for name in self.commands)
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            row = (name.ljust(width), command.get_short_help_str(_WHOLE))
            panels.setdefault(getattr(command, "rich_help_panel", "Commands"), []).append(row)
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]  # click's own Context
        from ombus.cli.exits import KNOWN, code_of, line_of

        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Whoever read has gone, as `head` does; nothing may be written at exit either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KNOWN as error:
            print(line_of(error), file=sys.stderr)
            raise typer.Exit(code_of(error)) from error


app = typer.Typer(
    name="ombus",
    cls=Commands,
    help="Observational memory on the bus: long agent sessions that stay coherent.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"ombus {version('ombus')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="FOLDER",
            help="The data folder. Default: OMBUS_DATA, else `data` in ombus.toml, "
            "else ~/.local/share/ombus.",
        ),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="ID", help="Default: local.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="This settings file and no other."),
    ] = None,
    wait_seconds: Annotated[
        float | None,
        typer.Option(
            "--wait-seconds",
            metavar="N",
            help="Give up when whoever folds made no progress for so long. Default: 60.",
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error."),
    ] = None,
    log_json: Annotated[
        bool | None, typer.Option("--log-json/--log-text", help="How logs look on standard error.")
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    context.obj = Flags(
        data=data,
        tenant=tenant,
        config=config,
        wait_seconds=wait_seconds,
        log_level=log_level,
        log_json=log_json,
    )


app.command("up", rich_help_panel="Work")(operating.up)
app.command("serve", rich_help_panel="Work")(serve)
app.command("mcp", rich_help_panel="Work")(mcp)
app.command("worker", rich_help_panel="Work")(worker)
app.command("child", rich_help_panel="Work")(child)
app.command("import", rich_help_panel="Work")(writing.import_files)
app.command("watch", rich_help_panel="Work")(watching.watch)
app.command("export", rich_help_panel="Work")(exporting.export)
app.command("append", rich_help_panel="Work")(writing.append)
app.command("flush", rich_help_panel="Work")(writing.flush)
app.command("compact", rich_help_panel="Work")(writing.compact)
app.command("invalidate", rich_help_panel="Work")(invalidate)
for _sharing in (granting.grant, granting.revoke, granting.grants, granting.access):
    scope.app.command(_sharing.__name__)(_sharing)
app.add_typer(scope.app, name="scope", rich_help_panel="Work")
app.command("sessions", rich_help_panel="Read")(reading.sessions)
app.command("status", rich_help_panel="Read")(reading.status)
app.command("view", rich_help_panel="Read")(reading.view)
app.command("context", rich_help_panel="Read")(reading.context)
app.command("recall", rich_help_panel="Read")(reading.recall)
app.command("page", rich_help_panel="Read")(reading.page)
app.command("tail", rich_help_panel="Read")(reading.tail)
app.command("tree", rich_help_panel="Read")(tree)
app.command("verify", rich_help_panel="Prove")(operating.verify)
app.command("rebuild", rich_help_panel="Prove")(operating.rebuild)
app.command("demo", rich_help_panel="Prove")(operating.demo)
app.add_typer(dev.app, name="dev", rich_help_panel="Develop")
app.add_typer(eval.app, name="eval", rich_help_panel="Prove")
app.add_typer(usage.app, name="usage", rich_help_panel="Operate")
app.command("archive", rich_help_panel="Operate")(archive)
app.command("restore", rich_help_panel="Operate")(restore)
app.command("shadow", rich_help_panel="Prove")(shadow)
app.add_typer(checkpoint.app, name="checkpoint", rich_help_panel="Operate")
app.command("replica", rich_help_panel="Work")(replica)
app.command("replay", rich_help_panel="Operate")(replay)
app.command("explain", rich_help_panel="Read")(caring.explain)
app.command("doctor", rich_help_panel="Operate")(caring.doctor)
app.command("backup", rich_help_panel="Operate")(caring.backup)
app.add_typer(caring.settings_app, name="settings", rich_help_panel="Operate")
app.add_typer(letters.app, name="dlq", rich_help_panel="Operate")
app.add_typer(token.app, name="token", rich_help_panel="Operate")
app.add_typer(topics.app, name="topics", rich_help_panel="Operate")


def _fill(commands: typer.Typer) -> None:
    """Join the lines of each paragraph of help: it is broken at the terminal's width, not ours."""
    for each in commands.registered_commands:
        paragraphs = (each.help or inspect.getdoc(each.callback) or "").split("\n\n")
        each.help = "\n\n".join(" ".join(lines.split()) for lines in paragraphs)
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            _fill(group.typer_instance)


_fill(app)
