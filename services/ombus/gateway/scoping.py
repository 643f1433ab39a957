"""Work scopes over HTTP: commands answered once they hold, and what is visible from where (S18)."""

from msgspec import UNSET
from ombus_schemas import scope_api
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.reading import bound_scopes
from ombus_streams.memory.scope_controller import ScopeRefused

from ombus.gateway.calls import Call
from ombus.gateway.hosting import Host
from ombus.gateway.limits import Limits
from ombus.gateway.problems import ApiError
from ombus.operator import scoping
from ombus.operator.desk import Desk
from ombus.operator.lookup import Lens
from ombus.operator.scoping import BadScope, Command, ScopeFull, ScopeIdTaken, ScopeOvertaken


async def command(host: Host, call: Call) -> scope_api.ScopeAnswer:
    """Carry out the command of the route; folded once this returns.

    Raises:
        ApiError: ``bad_request``, ``conflict``, ``scope_refused``, ``scope_limit`` or ``behind``.
    """
    wanted, leaf = _command(call)
    await host.caught_up(call.key)
    try:
        asked = await host.call(lambda: scoping.ask(host.desk, call.key, wanted, leaf))
        if asked.position is not None:
            await host.until_folded(asked.position)
        return await host.call(lambda: scoping.answer(host.desk, call.key, asked))
    except ScopeIdTaken as error:
        raise ApiError("conflict", str(error)) from error
    except BadScope as error:
        raise ApiError("bad_request", str(error)) from error
    except ScopeFull as error:
        raise ApiError("scope_limit", str(error)) from error
    except (ScopeRefused, ScopeOvertaken) as error:
        raise ApiError("scope_refused", str(error)) from error


def scopes(desk: Desk, lens: Lens, call: Call, limits: Limits) -> scope_api.ScopesAnswer:
    """Return the scopes of the leaf; with ``binds`` the references in each of them."""
    scope_map = bound_scopes(lens.session, lens.leaf)
    return scope_api.ScopesAnswer(
        session=lens.session.session_id,
        leaf=lens.leaf.tip_id,
        position="",
        hash="",
        scopes=scoping.rows_of(lens),
        stack=scope_map.stack,
        binds=dict(scope_map.refs_by_scope_id) if call.query.get("binds") else None,
        warnings=scoping.warnings_of_leaf(lens),
    )


def memory(desk: Desk, lens: Lens, call: Call, limits: Limits) -> scope_api.ScopeMemoryAnswer:
    """Return what is visible from a scope."""
    closed, kinds = call.text("closed"), call.text("kinds")
    if closed not in (None, "", "hide", "include"):
        raise ApiError("bad_request", "closed is include, or not given")
    return scoping.memory_of(
        lens,
        call.text("from"),
        call.text("include") or "self+ancestors",
        "include" if closed == "include" else "hide",
        () if kinds is None else tuple(kinds.split(",")),
        desk.settings.secrets,
    )


def _command(call: Call) -> tuple[Command, str | None]:
    match call.route.name:
        case "scope_open":
            opening = call.decoded(scope_api.ScopeOpening)
            scope: JsonObject = {"id": opening.id}
            for key, text in (
                ("parentId", opening.parent_id),
                ("kind", opening.kind),
                ("label", opening.label),
            ):
                if text is not UNSET:
                    scope[key] = text
            return Command(name="open", scope=scope, entry_id=opening.entry_id), opening.leaf
        case "scope_close" | "scope_enter":
            choice = call.decoded(scope_api.ScopeChoice)
            wanted = Command(
                name="close" if call.route.name == "scope_close" else "enter",
                scope=choice.scope_id,
                entry_id=choice.entry_id,
            )
            return wanted, choice.leaf
        case "scope_leave":
            leaving = call.decoded(scope_api.ScopeLeaving)
            wanted = Command(name="leave", scope=leaving.scope_id, entry_id=leaving.entry_id)
            return wanted, leaving.leaf
        case route:
            binding = call.decoded(scope_api.ScopeBinding)
            wanted = Command(
                name="bind" if route == "scope_bind" else "unbind",
                scope=binding.scope_id,
                refs=list(binding.refs),
                entry_id=binding.entry_id,
            )
            return wanted, binding.leaf
