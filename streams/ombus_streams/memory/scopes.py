"""Work scopes: which part of the work the session is in, and what memory is bound to which part.

The map is a fold of ``om.scope.*`` records, recognised by ``data.type`` whatever the entry's kind.
It is total: what is malformed or comes too late changes nothing (S18). Scopes form a tree under
one implicit root that is always open.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.ids import ROOT_SCOPE, is_bind_ref, is_scope_id
from ombus_schemas.jsontext import JsonObject, JsonValue, utf16_length

SCOPE_OPENED: Final = "om.scope.opened"
SCOPE_CLOSED: Final = "om.scope.closed"
SCOPE_ENTERED: Final = "om.scope.entered"
SCOPE_LEFT: Final = "om.scope.left"
SCOPE_BOUND: Final = "om.scope.bound"
SCOPE_UNBOUND: Final = "om.scope.unbound"

MAX_SCOPES: Final = 256
"""Host scopes of one session; the root does not count."""
MAX_DEPTH: Final = 8
"""Scopes below the root on one path; so a stack or lineage holds one id more."""
MAX_BINDS: Final = 4096
"""References bound to one scope."""
MAX_LABEL_UNITS: Final = 512
"""UTF-16 units of a label or a kind."""

Status = Literal["open", "closed"]


class Scope(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """One part of the work."""

    id: str
    parent_id: str | None = None
    """``None``: directly under the root."""
    kind: str | None = None
    label: str | None = None
    status: Status = "open"


class ScopeMap(msgspec.Struct, kw_only=True, frozen=True):
    """Every scope of a branch, what is bound to it, and where the work stands."""

    scopes: Mapping[str, Scope]
    """By id, in opening order, the root first."""
    refs_by_scope_id: Mapping[str, tuple[str, ...]]
    """``om:`` and ``reflection:`` references, in the order they were bound."""
    stack: tuple[str, ...]
    """From the root to the scope the work is in."""

    @property
    def leaf(self) -> str:
        """The scope the work is in."""
        return self.stack[-1]

    @property
    def is_scoped(self) -> bool:
        """Whether a host scope was ever opened."""
        return len(self.scopes) > 1


EMPTY: Final = ScopeMap(
    scopes={ROOT_SCOPE: Scope(id=ROOT_SCOPE)}, refs_by_scope_id={}, stack=(ROOT_SCOPE,)
)


def fold(entries: Iterable[Entry]) -> ScopeMap:
    """Return the scope map of a branch."""
    scope_map = EMPTY
    for entry in entries:
        scope_map = evolve(scope_map, entry)
    return scope_map


def evolve(scope_map: ScopeMap, entry: Entry) -> ScopeMap:
    """Return the map after ``entry``: the same object when the entry changes nothing."""
    data = entry.data
    if not isinstance(data, dict):
        return scope_map
    match data.get("type"):
        case "om.scope.opened":
            return _open(scope_map, data)
        case "om.scope.closed":
            return _close(scope_map, data.get("scopeId"))
        case "om.scope.entered":
            return _enter(scope_map, data.get("scopeId"))
        case "om.scope.left":
            return _leave(scope_map, data.get("scopeId"))
        case "om.scope.bound":
            return _bind(scope_map, data)
        case "om.scope.unbound":
            return _unbind(scope_map, data)
        case _:
            return scope_map


def lineage(scope_map: ScopeMap, scope_id: str) -> tuple[str, ...] | None:
    """Return the ids from the root to ``scope_id``.

    ``None`` if a scope on the way is unknown, if the way is a circle, or if it is longer than a
    legal one.
    """
    path: list[str] = []
    at = scope_id
    while at != ROOT_SCOPE:
        scope = scope_map.scopes.get(at)
        if scope is None or len(path) == MAX_DEPTH:
            return None
        path.append(at)
        at = scope.parent_id or ROOT_SCOPE
    return (ROOT_SCOPE, *reversed(path))


def is_open(scope_map: ScopeMap, scope_id: str) -> bool:
    """Say whether the scope is known and not closed; its parents may be."""
    scope = scope_map.scopes.get(scope_id)
    return scope is not None and scope.status == "open"


def unbound(scope_map: ScopeMap, entry: Entry) -> tuple[str, Sequence[str]] | None:
    """Return the known scope and the references that ``entry`` unbinds, if it is well-formed."""
    data = entry.data
    if not isinstance(data, dict) or data.get("type") != SCOPE_UNBOUND:
        return None
    scope_id, refs = data.get("scopeId"), _refs(data)
    if not refs or not isinstance(scope_id, str) or scope_id not in scope_map.scopes:
        return None
    return scope_id, refs


def strings_of(value: JsonValue) -> Sequence[str] | None:
    """Return a JSON array of strings, or ``None`` for anything else."""
    if not isinstance(value, list):
        return None
    strings = [item for item in value if isinstance(item, str)]
    return strings if len(strings) == len(value) else None


def _open(scope_map: ScopeMap, data: JsonObject) -> ScopeMap:
    scope_id = data.get("id")
    if not isinstance(scope_id, str) or not is_scope_id(scope_id) or not _texts_fit(data):
        return scope_map
    parent_id = data.get("parentId", ROOT_SCOPE)
    known = scope_map.scopes
    # The root is known from the start, so its reserved id is refused like any id seen before.
    if scope_id in known or len(known) > MAX_SCOPES:
        return scope_map
    if not isinstance(parent_id, str) or not is_open(scope_map, parent_id):
        return scope_map
    above = lineage(scope_map, parent_id)
    if above is None or len(above) > MAX_DEPTH:
        return scope_map
    scope = Scope(
        id=scope_id,
        parent_id=parent_id if "parentId" in data else None,
        kind=_text(data.get("kind")),
        label=_text(data.get("label")),
    )
    return msgspec.structs.replace(scope_map, scopes={**known, scope_id: scope})


def _close(scope_map: ScopeMap, scope_id: JsonValue) -> ScopeMap:
    if not isinstance(scope_id, str) or scope_id == ROOT_SCOPE or not is_open(scope_map, scope_id):
        return scope_map
    closed = msgspec.structs.replace(scope_map.scopes[scope_id], status="closed")
    stack = scope_map.stack
    if scope_id in stack:
        stack = stack[: stack.index(scope_id)]
    return msgspec.structs.replace(
        scope_map, scopes={**scope_map.scopes, scope_id: closed}, stack=stack
    )


def _enter(scope_map: ScopeMap, scope_id: JsonValue) -> ScopeMap:
    path = lineage(scope_map, scope_id) if isinstance(scope_id, str) else None
    if path is None or not all(is_open(scope_map, at) for at in path):
        return scope_map
    return msgspec.structs.replace(scope_map, stack=path)


def _leave(scope_map: ScopeMap, scope_id: JsonValue) -> ScopeMap:
    """Pop the leaf. A record of ours names it, so that it pops no other handle's scope."""
    if len(scope_map.stack) == 1 or scope_id not in (None, scope_map.leaf):
        return scope_map
    return msgspec.structs.replace(scope_map, stack=scope_map.stack[:-1])


def _bind(scope_map: ScopeMap, data: JsonObject) -> ScopeMap:
    scope_id, refs = data.get("scopeId"), _refs(data)
    if refs is None or not isinstance(scope_id, str) or scope_id not in scope_map.scopes:
        return scope_map
    bound = dict.fromkeys((*scope_map.refs_by_scope_id.get(scope_id, ()), *refs))
    if len(bound) > MAX_BINDS:
        return scope_map
    return msgspec.structs.replace(
        scope_map, refs_by_scope_id={**scope_map.refs_by_scope_id, scope_id: tuple(bound)}
    )


def _unbind(scope_map: ScopeMap, data: JsonObject) -> ScopeMap:
    scope_id, refs = data.get("scopeId"), _refs(data)
    if refs is None or not isinstance(scope_id, str):
        return scope_map
    bound = scope_map.refs_by_scope_id.get(scope_id)
    if bound is None:
        return scope_map
    gone = frozenset(refs)
    left = tuple(ref for ref in bound if ref not in gone)
    others = {key: held for key, held in scope_map.refs_by_scope_id.items() if key != scope_id}
    if not left:
        return msgspec.structs.replace(scope_map, refs_by_scope_id=others)
    if left == bound:
        return scope_map
    return msgspec.structs.replace(
        scope_map, refs_by_scope_id={**scope_map.refs_by_scope_id, scope_id: left}
    )


def _texts_fit(data: JsonObject) -> bool:
    for key in ("kind", "label"):
        if key in data:
            text = data[key]
            if not isinstance(text, str) or utf16_length(text) > MAX_LABEL_UNITS:
                return False
    return True


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def _refs(data: JsonObject) -> Sequence[str] | None:
    refs = strings_of(data.get("refs"))
    return refs if refs is not None and all(map(is_bind_ref, refs)) else None
