"""``ombus usage``: what the workers' models have cost, by day and whatever else is asked."""

from typing import Annotated

import typer

from ombus.cli.options import Data, Json
from ombus.cli.output import columns, note, object_of, say, say_json
from ombus.cli.shell import desk_for, settings_for

app = typer.Typer(
    help="What the workers' models have cost.", invoke_without_command=True, no_args_is_help=False
)

_COUNTS = ("runs", "failed", "turns", "tokens in", "of it cached", "tokens out", "reserved")


@app.callback()
def usage(
    context: typer.Context,
    by: Annotated[
        str,
        typer.Option(
            "--by", metavar="A,B", help="Group by any of day, tenant, worker, provider, model."
        ),
    ] = "day,worker,model",
    since: Annotated[
        str, typer.Option("--since", metavar="DAY", help="First day (UTC), as 2026-01-31.")
    ] = "",
    until: Annotated[str, typer.Option("--until", metavar="DAY", help="Last day, included.")] = "~",
    json: Json = False,
    data: Data = None,
) -> None:
    """Show what runs have cost. Failed runs count: they were paid for, too."""
    from ombus.operator.errors import Misaddressed
    from ombus.operator.spending import BY, spending

    groups = [name for each in by.split(",") for name in BY if name == each.strip()]
    if len(groups) != len(by.split(",")):
        raise Misaddressed(f"--by {by}: group by any of {', '.join(BY)}")
    with desk_for(settings_for(context, data)) as desk:
        accounts = spending(desk.engine, groups, since, until)
    if json:
        for account in accounts:
            shown = object_of(account)
            del shown["group"]
            for name, value in zip(groups, account.group, strict=True):
                shown[name] = value
            say_json(shown)
        return
    if not accounts:
        note("no model was asked")
        return
    rows = [
        [
            *account.group,
            *(
                f"{count:,}"
                for count in (
                    account.runs,
                    account.failed,
                    account.turns,
                    account.input_tokens,
                    account.cached_tokens,
                    account.output_tokens,
                    account.reserved_tokens,
                )
            ),
        ]
        for account in accounts
    ]
    right = frozenset(range(len(groups), len(groups) + len(_COUNTS)))
    for line in columns([[*groups, *_COUNTS], *rows], right):
        say(line)
