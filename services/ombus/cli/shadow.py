"""``ombus shadow``: what other models or settings would have made of sessions, beside what was."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from ombus_schemas.topics import ENTRIES

from ombus.cli.archive import LogAt, opened_log, refuse_unless_kafka
from ombus.cli.options import Data, Json, Servers, TopicName
from ombus.cli.output import columns, object_of, progress, say, say_json
from ombus.cli.shell import settings_for

if TYPE_CHECKING:
    from ombus.operator.shadow import Comparison


def shadow(
    context: typer.Context,
    into: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Where the two memories go; new, or to go on with."),
    ],
    said: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE...", help="Memory settings, as observation.messageTokens=5000."
        ),
    ] = None,
    from_: Annotated[
        LogAt, typer.Option("--from", help="Which log; `sqlite` is the data folder's.")
    ] = LogAt.SQLITE,
    session: Annotated[
        list[str] | None,
        typer.Option("--session", "-s", metavar="ID", help="Only these, as ID or TENANT/ID."),
    ] = None,
    topic: TopicName = ENTRIES,
    servers: Servers = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Remember sessions again with the models and settings of this process, and compare.

    The log is read and never written: FOLDER/real is a copy, FOLDER/shadow what came of it; both
    are data folders. Name other models with `ombus --config shadow.toml shadow …`. Run again, it
    goes on with what has come since. The models it asks cost what they cost.
    """
    from ombus.operator.origins import parsed
    from ombus.operator.shadow import shadow as run

    refuse_unless_kafka(context, "--from", from_)
    settings = settings_for(context, data)
    chosen = [each if "/" in each else f"{settings.tenant}/{each}" for each in session or ()]
    with opened_log(context, from_, data, topic, servers) as log, progress("remembering") as tell:
        found = run(log, settings, into, sessions=chosen, said=parsed(said or ()), tell=tell)
    if json:
        say_json({**object_of(found), "real": found.total("real"), "shadow": found.total("shadow")})
        return
    _say(found)


def _say(found: "Comparison") -> None:
    say(f"{found.records:,} records of hosts and importers were remembered again")
    real, other = found.total("real"), found.total("shadow")
    rows = [("", "REAL", "SHADOW")]
    rows += [(name, f"{value:,}", f"{other[name]:,}") for name, value in real.items()]
    for line in columns(rows, right=frozenset({1, 2})):
        say(line)
    say()
    pairs = [("SESSION", "REAL", "SHADOW", "AGREEMENT")]
    for each in found.sessions:
        active = f"{each.real.active:,}", f"{each.shadow.active:,}"
        pairs.append((each.session, *active, f"{each.agreement:.0%}"))
    for line in columns(pairs, right=frozenset({1, 2, 3})):
        say(line)
    for spent in found.spent:
        tokens = spent.input_tokens + spent.output_tokens
        say(f"spent: {', '.join(spent.group)}: {spent.runs:,} runs, {tokens:,} tokens")
    n_sessions = len(found.sessions)
    say(f"shadow: {found.agreement:.0%} of the sources agree over {n_sessions:,} sessions")
