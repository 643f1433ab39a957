"""``ombus invalidate``: take sources out of every memory, or show what was taken out."""

from typing import TYPE_CHECKING, Annotated

import typer

from ombus.cli.options import Data, Json, SessionName, refuse
from ombus.cli.output import note, say, say_json
from ombus.cli.shell import caught_up

if TYPE_CHECKING:
    from ombus_schemas.api import InvalidationAnswer, InvalidationRow

REASONS = ("revoked", "corrected", "deleted")


def invalidate(
    context: typer.Context,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Entries, or memories by their twelve digits."),
    ] = None,
    reason: Annotated[
        str,
        typer.Option(
            "--reason",
            metavar="WHY",
            help="revoked, corrected or deleted. What is corrected stays readable by recall.",
        ),
    ] = "revoked",
    hold: Annotated[
        bool,
        typer.Option("--hold", help="Keep it for audit: nobody reads it, nobody erases it."),
    ] = False,
    list_: Annotated[
        bool, typer.Option("--list", help="Show what was invalidated so far.")
    ] = False,
    session: SessionName = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Take sources out of every memory: no context, recall, view, summary or tail shows them.

    It holds on every branch once this returns, for what rests on them too, and follows them into
    the workspaces that got copies. Nothing can take it back. Exit code 1: an id names nothing.
    """
    from ombus_schemas.control import reason_of

    from ombus.cli.exits import FOUND
    from ombus.operator import invalidating
    from ombus.operator.lookup import chosen_session

    if list_ == bool(ids):
        raise typer.BadParameter("name ids, or ask for the --list")
    if list_:
        refuse(context, "is for ids to invalidate: --list only shows", "reason", "hold")
    if reason not in REASONS:
        raise typer.BadParameter(f"--reason is one of {', '.join(REASONS)}")
    named = ids or []
    if len(named) > invalidating.MAX_IDS:
        raise typer.BadParameter(f"name at most {invalidating.MAX_IDS:,} ids at once")
    with caught_up(context, data) as desk:
        key = chosen_session(desk, session)
        if list_:
            with desk.engine.reading(key) as live:
                rows = invalidating.invalidations_of(live.session)
            _say_rows(rows, json=json)
            return
        done = invalidating.invalidate(desk, key, named, reason_of(reason), hold=hold)
    _say(done, json=json)
    if done.unknown:
        raise typer.Exit(FOUND)


def _say_rows(rows: "tuple[InvalidationRow, ...]", *, json: bool) -> None:
    for row in rows:
        if json:
            say_json(row)
        else:
            held = ", held" if row.hold else ""
            say(f"{row.id} {row.reason}{held}: {' '.join(row.ids)}")


def _say(done: "InvalidationAnswer", *, json: bool) -> None:
    if json:
        say_json(done)
        return
    say(f"invalidated in {done.session}: {done.hidden:,} observations are hidden")
    if done.followed_in:
        say(f"copies are invalidated in {', '.join(done.followed_in)}")
    if done.unknown:
        note(f"names nothing so far: {' '.join(done.unknown)}")
