"""``ombus scope``: the parts of a session's work, and which memory belongs to which part."""

from typing import TYPE_CHECKING, Annotated

import typer

from ombus.cli.options import AsOf, Data, Json, LeafId, ScopeName, SessionName
from ombus.cli.output import columns, note, say, say_json
from ombus.cli.shell import caught_up

if TYPE_CHECKING:
    from pathlib import Path

    from ombus.operator.scoping import Command

app = typer.Typer(
    help="Work scopes: parts of a session's work, each with the memory bound to it. As soon as a "
    "session has one, its context shows what is bound around the place where the work stands.",
    no_args_is_help=True,
)

Refs = Annotated[
    list[str],
    typer.Argument(metavar="REF...", help="om:ID or reflection:ID, as `ombus view` shows ids."),
]


@app.command("open")
def open_(
    context: typer.Context,
    scope: ScopeName,
    parent: Annotated[
        str | None,
        typer.Option("--parent", metavar="SCOPE", help="An open scope. Default: `session`."),
    ] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="What sort of work it is.")] = None,
    label: Annotated[
        str | None, typer.Option("--label", help="What people call it; in the outline.")
    ] = None,
    session: SessionName = None,
    leaf: LeafId = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Open a scope: it exists from here on, once."""
    from ombus.operator.scoping import Command

    said = {"id": scope, "parentId": parent, "kind": kind, "label": label}
    wanted = Command(
        name="open", scope={key: value for key, value in said.items() if value is not None}
    )
    _carry_out(context, wanted, session, leaf, json, data, f"opened {scope}")


@app.command()
def close(
    context: typer.Context,
    scope: ScopeName,
    session: SessionName = None,
    leaf: LeafId = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Close a scope for good; its children stay as they are, and recall finds its memory."""
    from ombus.operator.scoping import Command

    wanted = Command(name="close", scope=scope)
    _carry_out(context, wanted, session, leaf, json, data, f"closed {scope}")


@app.command()
def enter(
    context: typer.Context,
    scope: ScopeName,
    session: SessionName = None,
    leaf: LeafId = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Make a scope the place of the work: what is observed from here on is bound to it."""
    from ombus.operator.scoping import Command

    wanted = Command(name="enter", scope=scope)
    _carry_out(context, wanted, session, leaf, json, data, f"entered {scope}")


@app.command()
def leave(
    context: typer.Context,
    scope: Annotated[
        str | None,
        typer.Argument(metavar="[SCOPE]", help="Only if this one is on top."),
    ] = None,
    session: SessionName = None,
    leaf: LeafId = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Go back one scope; nothing at the root."""
    from ombus.operator.scoping import Command

    wanted = Command(name="leave", scope=scope)
    _carry_out(context, wanted, session, leaf, json, data, f"left {scope or 'a scope'}")


@app.command()
def bind(
    context: typer.Context,
    scope: ScopeName,
    refs: Refs,
    session: SessionName = None,
    leaf: LeafId = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Bind memory to a scope, a closed one too: new memory is bound by itself."""
    from ombus.operator.scoping import Command

    wanted = Command(name="bind", scope=scope, refs=list(refs))
    _carry_out(context, wanted, session, leaf, json, data, f"bound to {scope}")


@app.command()
def unbind(
    context: typer.Context,
    scope: ScopeName,
    refs: Refs,
    session: SessionName = None,
    leaf: LeafId = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Unbind memory from a scope; recall by id still finds it."""
    from ombus.operator.scoping import Command

    wanted = Command(name="unbind", scope=scope, refs=list(refs))
    _carry_out(context, wanted, session, leaf, json, data, f"unbound from {scope}")


@app.command("list")
def list_(
    context: typer.Context,
    session: SessionName = None,
    leaf: LeafId = None,
    as_of: AsOf = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """List the scopes of a leaf; `*` is where the work stands, `+` what lies above it."""
    from ombus.operator.lookup import chosen_session, looking
    from ombus.operator.scoping import rows_of, stack_of, warnings_of_leaf

    with (
        caught_up(context, data) as desk,
        looking(desk, chosen_session(desk, session), leaf, as_of) as lens,
    ):
        rows, warnings, stack = rows_of(lens), warnings_of_leaf(lens), stack_of(lens)
    if json:
        say_json({"scopes": rows, "stack": stack, "warnings": warnings})
        return
    shown: list[tuple[str, ...]] = [("", "SCOPE", "PARENT", "STATUS", "BOUND", "KIND", "LABEL")]
    for row in rows:
        mark = "*" if row.id == stack[-1] else "+" if row.id in stack else ""
        parent = row.parent_id or ("" if row.id == stack[0] else stack[0])
        shown.append(
            (mark, row.id, parent, row.status, f"{row.bound:,}", row.kind or "", row.label or "")
        )
    for line in columns(shown, right=frozenset({4})):
        say(line)
    for warning in warnings:
        note(f"warning: {warning}")


@app.command()
def show(
    context: typer.Context,
    scope: Annotated[
        str | None,
        typer.Argument(metavar="[SCOPE]", help="Default: where the work stands."),
    ] = None,
    include: Annotated[
        str,
        typer.Option(
            "--include",
            metavar="WHAT",
            help="self, self+ancestors, self+descendants or lineage.",
        ),
    ] = "self+ancestors",
    closed: Annotated[bool, typer.Option("--closed", help="Closed scopes, too.")] = False,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help="Only scopes of this kind; repeat it.")
    ] = None,
    session: SessionName = None,
    leaf: LeafId = None,
    as_of: AsOf = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Show the memory that is visible from a scope."""
    from ombus_streams.memory.scope_projection import INCLUDES

    from ombus.operator.lookup import chosen_session, looking
    from ombus.operator.scoping import memory_of

    if include not in INCLUDES:
        raise typer.BadParameter(f"--include is one of {', '.join(INCLUDES)}")
    with (
        caught_up(context, data) as desk,
        looking(desk, chosen_session(desk, session), leaf, as_of) as lens,
    ):
        found = memory_of(
            lens,
            scope,
            include,
            "include" if closed else "hide",
            tuple(kind or ()),
            desk.settings.secrets,
        )
    if json:
        say_json(found)
        return
    for line in found.outline:
        say(f"scope {line.id}{f': {line.label}' if line.label else ''}")
    for name, items in (("reflection", found.reflections), ("om", found.observations)):
        for item in items:
            say(f"{name}:{item['id']} {item['content']}")
    if not found.observations and not found.reflections:
        note("nothing is bound here")


def _carry_out(
    context: typer.Context,
    wanted: "Command",
    session: str | None,
    leaf: str | None,
    json: bool,
    data: "Path | None",
    done: str,
) -> None:
    from ombus_streams.memory.scope_controller import ScopeRefused

    from ombus.operator.lookup import chosen_session
    from ombus.operator.scoping import NotAllowed, command

    with caught_up(context, data) as desk:
        key = chosen_session(desk, session)
        try:
            found = command(desk, key, wanted, leaf)
        except ScopeRefused as error:
            raise NotAllowed(key.decode(), error) from error
    if json:
        say_json(found)
    elif found.id is None:
        say(f"nothing new to say; the work stands in {found.current}")
    else:
        say(f"{done}; the work stands in {found.current}")
    for warning in found.warnings:
        note(f"warning: {warning}")
