"""Commands that read: ``sessions status view context recall page tail``.

Each folds what is on the log first, or waits until its owner has; each names its leaf and the
position it reflects.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ombus.cli.options import AsOf, Data, Json, LeafId, SessionName
from ombus.cli.output import columns, note, say, say_json
from ombus.cli.shell import caught_up, desk_for, settings_for

if TYPE_CHECKING:
    from ombus_schemas.jsontext import JsonObject

    from ombus.operator.desk import Desk
    from ombus.operator.lookup import Lens
    from ombus.operator.tail import Shown


def sessions(context: typer.Context, json: Json = False, data: Data = None) -> None:
    """List the sessions of all tenants."""
    from ombus.operator.overview import overview

    with caught_up(context, data) as desk:
        found = overview(desk.engine)
    if json:
        for each in found:
            say_json(each)
        return
    if not found:
        say("no sessions")
        return
    rows: list[tuple[str, ...]] = [
        ("SESSION", "ENTRIES", "BRANCHES", "OBSERVATIONS", "REFLECTIONS", "LAST")
    ]
    for each in found:
        counts = (each.entries, each.branches, each.observations, each.reflections)
        rows.append((each.session, *(f"{count:,}" for count in counts), _instant(each.last_at_ms)))
    for line in columns(rows, right=frozenset({1, 2, 3, 4})):
        say(line)


def status(
    context: typer.Context,
    session: SessionName = None,
    leaf: LeafId = None,
    as_of: AsOf = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Show what is recorded, what is pending and which workers wait."""
    from ombus.operator.overview import status_of

    with _lens(context, data, session, leaf, as_of) as (desk, lens):
        found = status_of(desk, lens)
    if json:
        say_json({**_where(lens), **found.as_json()})
        return
    _say_where(lens)
    for line in found.lines():
        say(line)


def view(
    context: typer.Context,
    session: SessionName = None,
    leaf: LeafId = None,
    as_of: AsOf = None,
    full: Annotated[
        bool, typer.Option("--full", help="All active memory, not only what is visible.")
    ] = False,
    json: Json = False,
    data: Data = None,
) -> None:
    """Print the memory of a leaf."""
    from ombus_streams.memory import reading
    from ombus_streams.memory.commands import view_json

    from ombus.wiring_grants import shared_with

    with _lens(context, data, session, leaf, as_of) as (desk, lens):
        shared = None if full else shared_with(desk, lens)
        found = reading.view(
            lens.session, lens.leaf, "full" if full else "visible", desk.settings.secrets, shared
        )
    if json:
        say_json({**_where(lens), **view_json(found)})
    else:
        say(found.text)


def context(
    context: typer.Context,
    session: SessionName = None,
    leaf: LeafId = None,
    as_of: AsOf = None,
    recent: Annotated[
        int | None,
        typer.Option("--recent", metavar="N", min=0, help="Recent messages, not the setting's."),
    ] = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Print the blocks an agent reads before it answers."""
    from ombus_streams.memory import reading

    from ombus.wiring_grants import shared_with

    with _lens(context, data, session, leaf, as_of) as (desk, lens):
        blocks = reading.context(
            lens.session, lens.leaf, recent, None, desk.settings.secrets, shared_with(desk, lens)
        )
    if json:
        say_json({**_where(lens), "blocks": blocks})
        return
    for at, block in enumerate(blocks):
        if at:
            say()
        say(f"<{block.title}>")
        say(block.content)
        say(f"</{block.title}>")


def recall(
    context: typer.Context,
    memory_id: Annotated[
        str, typer.Argument(metavar="ID", help="Twelve hex digits, as `view` prints them.")
    ],
    session: SessionName = None,
    leaf: LeafId = None,
    as_of: AsOf = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Print what a memory rests on: the exact words of its sources."""
    from ombus_streams.memory import reading
    from ombus_streams.memory.recall import NotRecalled, recall_json

    from ombus.cli.exits import FOUND, MISUSED
    from ombus.wiring_grants import shared_with

    with _lens(context, data, session, leaf, as_of) as (desk, lens):
        shared = shared_with(desk, lens, memory_id)
        found = reading.recall_at(lens.session, lens.leaf, memory_id, desk.settings.secrets, shared)
    _say_answer({**_where(lens), **recall_json(found)}, desk.settings.secrets, json)
    if isinstance(found, NotRecalled):
        if found.reason == "invalid_id":
            raise typer.Exit(MISUSED)
        note(f"ombus: {memory_id} is not in the memory of {_named(lens)}: {_ELSEWHERE}")
        raise typer.Exit(FOUND)


def page(
    context: typer.Context,
    cursor: Annotated[
        str,
        typer.Argument(
            metavar="CURSOR",
            help="The id of a message, as `context`, `recall` and `tail` print them.",
        ),
    ],
    session: SessionName = None,
    leaf: LeafId = None,
    as_of: AsOf = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, max=100, help="Messages, 1 to 100.")
    ] = 20,
    forward: Annotated[
        bool, typer.Option("--forward", help="From the cursor on, not up to it.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Whole entries, not their lines.")] = False,
    json: Json = False,
    data: Data = None,
) -> None:
    """Print raw messages around one of them."""
    from ombus_streams.memory import reading
    from ombus_streams.memory.pages import NoPage, page_json

    from ombus.cli.exits import FOUND

    with _lens(context, data, session, leaf, as_of) as (desk, lens):
        found = reading.page_at(
            lens.session,
            lens.leaf,
            cursor,
            limit,
            "forward" if forward else "backward",
            "full" if full else None,
            desk.settings.secrets,
        )
    _say_answer({**_where(lens), **page_json(found)}, desk.settings.secrets, json)
    if isinstance(found, NoPage):
        if found.reason == "cursor_not_found":
            note(f"ombus: {cursor} is no entry of {_named(lens)}: {_ELSEWHERE}")
        raise typer.Exit(FOUND)


def tail(
    context: typer.Context,
    session: SessionName = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", min=0, help="The last so many records.")
    ] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is appended from now on.")
    ] = False,
    json: Json = False,
    data: Data = None,
) -> None:
    """Print the log itself: records of a session, or of all of them."""
    from ombus.operator.lookup import key_named
    from ombus.operator.tail import records

    with desk_for(settings_for(context, data), needs_log=not follow) as desk:
        key = None if session is None else key_named(desk, session)
        try:
            for shown in records(desk.engine, key, lines, follow=follow):
                if json:
                    say_json(shown)
                else:
                    say(_line(shown))
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


@contextmanager
def _lens(
    context: typer.Context,
    data: Path | None,
    session: str | None,
    leaf: str | None,
    as_of: str | None,
) -> Iterator[tuple["Desk", "Lens"]]:
    from ombus.operator.lookup import chosen_session, looking

    with caught_up(context, data) as desk:
        key = chosen_session(desk, session)
        with looking(desk, key, leaf, as_of) as lens:
            yield desk, lens


def _where(lens: "Lens") -> "JsonObject":
    return {
        "session": lens.session.key.decode(),
        "leaf": lens.leaf.tip_id,
        "position": str(lens.position),
    }


def _say_where(lens: "Lens") -> None:
    say(f"Session {lens.session.key.decode()}, leaf {lens.leaf.tip_id}, position {lens.position}")


def _say_answer(answer: "JsonObject", secrets: Sequence[str], json: bool) -> None:
    """Print an answer, or its text, redacted whole like that of the tool (S22)."""
    from ombus_schemas.redaction import redact, redact_text

    if json:
        say_json(redact(answer, secrets, max_depth=None))
    else:
        say(redact_text(str(answer["text"]), secrets))


_ELSEWHERE: Final = "try another --session or --leaf"


def _named(lens: "Lens") -> str:
    return f"{lens.session.key.decode()}, leaf {lens.leaf.tip_id}"


def _line(shown: "Shown") -> str:
    return f"{shown.position} {_instant(shown.at_ms)} {shown.session} {shown.gist}"


def _instant(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="seconds")[:19] + "Z"
