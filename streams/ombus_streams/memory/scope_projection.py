"""The memory of one part of the work: what is bound to the scopes around a place in the tree (S18).

As soon as one host scope exists, unbound memory is invisible here; recall by id still finds it.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from ombus_schemas.ids import ROOT_SCOPE
from ombus_schemas.jsontext import JsonValue
from ombus_schemas.records import Observation, Reflection

from ombus_streams.memory.ledger import Ledger, active, blocks_reflection
from ombus_streams.memory.render import OutlineLine
from ombus_streams.memory.scopes import ScopeMap, lineage

INCLUDES: Final = ("self", "self+ancestors", "self+descendants", "lineage")

Closed = Literal["hide", "include"]


class ScopedMemory(msgspec.Struct, kw_only=True, frozen=True):
    """What is visible from a scope; items keep ledger order."""

    observations: tuple[Observation, ...] = ()
    reflections: tuple[Reflection, ...] = ()
    outline: tuple[OutlineLine, ...] = ()
    """Empty while only the root exists."""


def project_scopes(
    ledger: Ledger,
    scope_map: ScopeMap,
    from_id: str,
    include: str,
    closed: Closed = "hide",
    kinds: Sequence[JsonValue] | None = None,
) -> ScopedMemory:
    """Return the active memory bound to the scopes that ``include`` names around ``from_id``.

    A closed scope is hidden unless asked for or a proper ancestor of ``from_id``. ``kinds`` keeps
    scopes of the listed kinds (none is the empty string); a list without any string filters
    nothing. Without host scopes everything is returned; an unknown scope or ``include`` finds
    nothing. Reflections on a dropped support are left out, on a merely pruned one they stay.
    """
    blocking = frozenset(ledger.dropped_ids) - ledger.pruned_ids
    observations = active(ledger)
    reflections = tuple(
        item for item in ledger.reflections if not blocks_reflection(blocking, item)
    )
    if not scope_map.is_scoped:
        return ScopedMemory(observations=observations, reflections=reflections)
    path = lineage(scope_map, from_id)
    if path is None or include not in INCLUDES:
        return ScopedMemory()
    wanted = {item for item in kinds or () if isinstance(item, str)}
    ancestors = frozenset(path[:-1])
    kept = [
        scope_map.scopes[scope_id]
        for scope_id in _around(scope_map, path, include)
        if closed == "include"
        or scope_id in ancestors
        or scope_map.scopes[scope_id].status == "open"
    ]
    if wanted:
        kept = [scope for scope in kept if (scope.kind or "") in wanted]
    bound = {ref for scope in kept for ref in scope_map.refs_by_scope_id.get(scope.id, ())}
    return ScopedMemory(
        observations=tuple(item for item in observations if f"om:{item.id}" in bound),
        reflections=tuple(item for item in reflections if f"reflection:{item.id}" in bound),
        outline=tuple(OutlineLine(id=scope.id, label=scope.label) for scope in kept),
    )


def _around(scope_map: ScopeMap, path: tuple[str, ...], include: str) -> tuple[str, ...]:
    match include:
        case "self":
            return path[-1:]
        case "self+ancestors":
            return path
        case "self+descendants":
            return _below(scope_map, path[-1])
        case _:
            return path[:-1] + _below(scope_map, path[-1])


def _below(scope_map: ScopeMap, scope_id: str) -> tuple[str, ...]:
    """Return the scope and all below it in opening order; a parent is always opened first."""
    found = dict.fromkeys((scope_id,))
    for scope in scope_map.scopes.values():
        if scope.id != ROOT_SCOPE and (scope.parent_id or ROOT_SCOPE) in found:
            found[scope.id] = None
    return tuple(found)
