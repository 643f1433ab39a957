"""``ombus token create|list|revoke``: who may call the gateway of this data folder."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from ombus.cli.options import Data, Json, Tenant
from ombus.cli.output import columns, note, object_of, say, say_json
from ombus.cli.shell import settings_for

if TYPE_CHECKING:
    from ombus.gateway.tokens import Tokens
    from ombus.settings import ProcessSettings

app = typer.Typer(help="Tokens of the gateway: create, list, revoke.", no_args_is_help=True)


@app.command("create")
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is; owns what it grants.")],
    role: Annotated[
        list[str],
        typer.Option("--role", metavar="ROLE", help="publisher, reader, supervisor or operator."),
    ],
    sessions: Annotated[
        list[str] | None,
        typer.Option("--sessions", metavar="PATTERN", help="As `chat-*`. Default: all."),
    ] = None,
    days: Annotated[
        float | None, typer.Option("--days", metavar="N", help="How long it lives.")
    ] = None,
    tenant: Tenant = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Make a token and print it, the only time it is seen.

    Scopes it grants are its name's: whoever has a later token of this name owns them. So the name
    of a valid token is refused, unless role, sessions and tenant are the same: that is how one is
    rotated.
    """
    from ombus.gateway.tokens import BadToken
    from ombus.settings import BadSetting
    from ombus.wiring import SystemClock

    settings = settings_for(context, data, tenant)
    lifetime = None if days is None else timedelta(days=days)
    tokens = _tokens(settings)
    try:
        token = tokens.create(
            name, settings.tenant, role, sessions or ["*"], SystemClock().now(), lifetime
        )
    except BadToken as error:
        raise BadSetting("token", f"cannot be made: {error}") from error
    finally:
        tokens.close()
    if json:
        say_json({"token": token, "id": token.split("_")[1]})
    else:
        say(token)
        note("keep it: only its hash is stored, and it is not shown again")


@app.command("list")
def list_tokens(context: typer.Context, json: Json = False, data: Data = None) -> None:
    """List the tokens there are, revoked and expired ones included."""
    from ombus.wiring import SystemClock

    tokens = _tokens(settings_for(context, data))
    rows, now = tokens.rows(), SystemClock().now()
    tokens.close()
    if json:
        for row in rows:
            say_json({**object_of(row), "state": row.state(now)})
        return
    shown = [("ID", "NAME", "TENANT", "ROLES", "SESSIONS", "STATE")]
    shown += [
        (
            row.id, row.name, row.tenant, ",".join(row.roles), ",".join(row.sessions),
            row.state(now),
        )
        for row in rows
    ]  # fmt: skip
    for line in columns(shown) if rows else ["no tokens"]:
        say(line)


@app.command("revoke")
def revoke(
    context: typer.Context,
    token_id: Annotated[str, typer.Argument(metavar="ID", help="As `ombus token list` shows it.")],
    data: Data = None,
) -> None:
    """Let a token be worth nothing from the next request on."""
    from ombus.settings import BadSetting
    from ombus.wiring import SystemClock

    tokens = _tokens(settings_for(context, data))
    is_known = tokens.revoke(token_id, SystemClock().now())
    tokens.close()
    if not is_known:
        raise BadSetting(f"token {token_id}", "is not there: `ombus token list` shows them")
    say(f"revoked {token_id}")


def _tokens(settings: "ProcessSettings") -> "Tokens":
    from ombus.gateway.tokens import Tokens

    return Tokens(settings.folder)
