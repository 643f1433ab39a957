"""``ombus dlq``: what could not be folded, and what is decided about it."""

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ombus.cli.options import Data, Json
from ombus.cli.output import columns, say, say_json
from ombus.cli.shell import desk_for, settings_for

if TYPE_CHECKING:
    from ombus.operator.letters import Letter

app = typer.Typer(
    help="Dead letters: records that could not be folded, kept whole.", no_args_is_help=True
)

LetterId = Annotated[
    str, typer.Argument(metavar="LETTER", help="PARTITION:OFFSET, as `list` prints it.")
]
Again = Annotated[
    bool, typer.Option("--again", help="Also a letter that was decided about before.")
]


@app.command("list")
def list_letters(
    context: typer.Context,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that were retried or discarded.")
    ] = False,
    json: Json = False,
    data: Data = None,
) -> None:
    """List the open dead letters."""
    from ombus.operator.letters import letters

    with desk_for(settings_for(context, data)) as desk:
        desk.catch_up()
        found = letters(desk.engine.dead_letters)
    shown = [each for each in found if everything or each.state == "open"]
    if json:
        for each in shown:
            say_json(each.as_json())
        return
    if not shown:
        say("no open dead letters" if not everything else "no dead letters")
        return
    rows: list[tuple[str, ...]] = [("LETTER", "REASON", "STATE", "BYTES", "SESSION", "DETAIL")]
    rows += [
        (each.id, each.reason, each.state, f"{each.n_bytes:,}", each.session, each.detail)
        for each in shown
    ]
    for line in columns(rows, right=frozenset({3})):
        say(line)


@app.command("show")
def show(context: typer.Context, letter: LetterId, json: Json = False, data: Data = None) -> None:
    """Print a dead letter whole: why, whence, its headers, its bytes, what was decided."""
    found = _found(context, data, letter)
    shown = found.as_json(with_value=True)
    if json:
        say_json(shown)
        return
    say(f"letter {found.id} of {found.topic}, {found.state}")
    say(f"reason {found.reason}: {found.detail}")
    say(f"session {found.session or '(no key)'}, {found.n_bytes:,} bytes")
    for decision in found.decisions:
        where = f" at {decision.position}" if decision.position else ""
        say(f"{decision.action} by {decision.by}{where}")
    say()
    say(str(shown["value"]))


@app.command("retry")
def retry(
    context: typer.Context, letter: LetterId, again: Again = False, data: Data = None
) -> None:
    """Append the original record once more: it folds if what was wrong is mended."""
    from ombus.operator.letters import letter as find
    from ombus.operator.letters import retry as retry_letter

    with desk_for(settings_for(context, data)) as desk:
        found = find(desk.engine.dead_letters, letter)
        engine = desk.engine
        position = retry_letter(
            engine.log, engine.dead_letters, found, getpass.getuser(), again=again
        )
    say(f"retried {letter}: appended at {position}")


@app.command("discard")
def discard(
    context: typer.Context, letter: LetterId, again: Again = False, data: Data = None
) -> None:
    """Note that nobody needs a dead letter any more."""
    from ombus.operator.letters import discard as discard_letter
    from ombus.operator.letters import letter as find

    with desk_for(settings_for(context, data)) as desk:
        found = find(desk.engine.dead_letters, letter)
        discard_letter(desk.engine.dead_letters, found, getpass.getuser(), again=again)
    say(f"discarded {letter}")


def _found(context: typer.Context, data: Path | None, letter: str) -> "Letter":
    from ombus.operator.letters import letter as find

    with desk_for(settings_for(context, data)) as desk:
        desk.catch_up()
        return find(desk.engine.dead_letters, letter)
