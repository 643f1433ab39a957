"""``ombus scope grant|revoke|grants|access``: who may read a scope of a session, and who has."""

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from ombus.cli.options import Data, Json, LeafId, ScopeName, SessionName
from ombus.cli.output import columns, note, say, say_json
from ombus.cli.shell import caught_up

if TYPE_CHECKING:
    from pathlib import Path

    from ombus.operator.granting import Act

Readers = Annotated[
    list[str], typer.Argument(metavar="READER...", help="Sessions of the same tenant.")
]


def grant(
    context: typer.Context,
    scope: ScopeName,
    readers: Readers,
    session: SessionName = None,
    leaf: LeafId = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Let other sessions read what is bound to a scope of this one.

    Each of them must have the scope open itself and declare it under `sharedScopes`, with this
    session as owner. They read this session and each other. It holds from the next read on.
    """
    _carry_out(context, "grant", scope, readers, session, leaf, json, data)


def revoke(
    context: typer.Context,
    scope: ScopeName,
    readers: Readers,
    session: SessionName = None,
    leaf: LeafId = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Let sessions read a scope no longer: the very next read of each is denied.

    It is written down even if they hold no grant, for one may be under way. Whoever has the data
    folder may do it, also where a token of the gateway granted.
    """
    _carry_out(context, "revoke", scope, readers, session, leaf, json, data)


def grants(
    context: typer.Context,
    session: SessionName = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """List who may read which scope of a session."""
    from ombus.operator.granting import grants_of
    from ombus.operator.lookup import chosen_session
    from ombus.wiring_grants import open_sharing

    with caught_up(context, data) as desk, closing(open_sharing(desk)) as sharing:
        found = grants_of(sharing, chosen_session(desk, session))
    if json:
        say_json(found)
        return
    for scope_id, names in found.granted.items():
        say(f"{scope_id}: {', '.join(names)}")
    if not found.granted:
        note("nothing is granted")


def access(
    context: typer.Context,
    session: SessionName = None,
    scope: Annotated[
        str | None, typer.Option("--scope", metavar="SCOPE", help="Only this one.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, max=10_000, help="At most so many.")
    ] = 20,
    json: Json = False,
    data: Data = None,
) -> None:
    """List the last decisions over shared scopes this session owns or reads, newest first.

    Every read of a shared scope leaves one, granted or denied, with the reason. The list is that
    of this data folder: another node has its own.
    """
    from ombus.operator.granting import access_rows
    from ombus.operator.lookup import chosen_session
    from ombus.wiring_grants import open_sharing

    with caught_up(context, data) as desk, closing(open_sharing(desk)) as sharing:
        found = access_rows(sharing, chosen_session(desk, session), scope, limit)
    if json:
        for row in found:
            say_json(row)
        return
    if not found:
        note("nobody has asked yet")
        return
    shown: list[tuple[str, ...]] = [("READER", "OWNER", "SCOPE", "ANSWER", "BRANCHES", "ITEMS")]
    for row in found:
        answer = "granted" if row.granted else f"denied: {row.reason}"
        n_items = row.observations + row.reflections
        shown.append(
            (row.reader_session_id, row.owner_session_id, row.scope_id, answer,
             f"{row.branches:,}", f"{n_items:,}")
        )  # fmt: skip
    for line in columns(shown, right=frozenset({4, 5})):
        say(line)


def _carry_out(
    context: typer.Context,
    act: "Act",
    scope: str,
    readers: list[str],
    session: str | None,
    leaf: str | None,
    json: bool,
    data: "Path | None",
) -> None:
    from msgspec.structs import replace

    from ombus.operator.granting import Wanted, carry_out, grants_of
    from ombus.operator.lookup import chosen_session
    from ombus.wiring_grants import open_sharing

    wanted = Wanted(act=act, scope_id=scope, principals=tuple(readers), leaf=leaf)
    with caught_up(context, data) as desk, closing(open_sharing(desk)) as sharing:
        key = chosen_session(desk, session)
        if act == "revoke":
            # In the name of whoever owns the grants, for only that one's word counts.
            owner = grants_of(sharing, key).owner or wanted.issuer
            wanted = replace(wanted, issuer=owner)
        found = carry_out(desk, sharing, key, wanted)
    if json:
        say_json(found)
        return
    holders = ", ".join(found.granted) or "nobody"
    if found.id is None:
        say(f"nothing new to say; {scope} may be read by {holders}")
    else:
        done = "granted" if act == "grant" else "revoked"
        say(f"{done}; {scope} may be read by {holders}")
