"""Commands on work scopes: judged against the folded branch, answered with the record to append.

Every function returns the ``data`` of one entry, ``None`` when there is nothing new to say, or
raises (S18): ``TypeError`` for an argument of the wrong shape, ``ScopeLimitExceeded`` above a cap,
``ScopeRefused`` when the branch does not allow it. A fold never refuses; these do, before the
append.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from ombus_schemas.entries import Entry
from ombus_schemas.ids import ROOT_SCOPE, is_bind_ref, is_principal_id, is_scope_id
from ombus_schemas.jsontext import JsonObject, JsonValue, utf16_length

from ombus_streams.memory import scopes
from ombus_streams.memory.errors import MemoryFault
from ombus_streams.memory.grants import MAX_PRINCIPALS, SCOPE_GRANTED, SCOPE_REVOKED, Grants
from ombus_streams.memory.ledger import Ledger
from ombus_streams.memory.redact import redact_text
from ombus_streams.memory.scopes import (
    MAX_BINDS,
    MAX_DEPTH,
    MAX_LABEL_UNITS,
    MAX_SCOPES,
    SCOPE_BOUND,
    SCOPE_CLOSED,
    SCOPE_ENTERED,
    SCOPE_LEFT,
    SCOPE_OPENED,
    SCOPE_UNBOUND,
    ScopeMap,
    is_open,
    lineage,
    strings_of,
)

Refusal = Literal["reserved", "exists", "unknown", "not_open", "not_recorded"]
Revoking = Literal["always", "open_and_changed"]
"""``always``: a revoke appends whatever the scope's state, even if it seems to change nothing
(design.md sections 10 and 12, row 8). ``open_and_changed`` is the reference's rule."""


class ScopeRefused(MemoryFault):
    """The branch does not allow the command; ``code`` says why and stays the same."""

    def __init__(self, scope_id: str, code: Refusal, message: str) -> None:
        super().__init__(f"scope {scope_id!r} {message}")
        self.scope_id, self.code = scope_id, code


class ScopeLimitExceeded(ValueError):
    """The command would pass a cap."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(what, limit)
        self.what, self.limit = what, limit

    def __str__(self) -> str:
        return f"{self.what}: the cap is {self.limit:,}"


def has_scope(scope_map: ScopeMap, scope_id: JsonValue) -> bool:
    """Say whether the scope was ever opened; the root always is."""
    return _scope_id(scope_id) in scope_map.scopes


def open_scope(scope_map: ScopeMap, scope: JsonValue, secrets: Sequence[str] = ()) -> JsonObject:
    """Return the record that opens ``{id, parentId?, kind?, label?}``.

    Secrets are replaced in kind and label, never in the id, which others must be able to name.
    """
    if not isinstance(scope, dict):
        raise TypeError("a scope is an object with an id")
    scope_id = _scope_id(scope.get("id"))
    record: JsonObject = {"type": SCOPE_OPENED, "id": scope_id}
    parent_id = ROOT_SCOPE
    if "parentId" in scope:
        parent_id = _scope_id(scope["parentId"])
        record["parentId"] = parent_id
    texts = {key: _text(scope[key], key) for key in ("kind", "label") if key in scope}
    for key, text in texts.items():
        record[key] = _text(redact_text(text, secrets), key)
    if scope_id == ROOT_SCOPE:
        raise ScopeRefused(scope_id, "reserved", "is the implicit root: name yours otherwise")
    if scope_id in scope_map.scopes:
        raise ScopeRefused(scope_id, "exists", "was opened before: enter it, or take another id")
    if len(scope_map.scopes) > MAX_SCOPES:
        raise ScopeLimitExceeded(f"scope {scope_id!r} would be one too many", MAX_SCOPES)
    if not is_open(scope_map, parent_id):
        raise ScopeRefused(parent_id, "not_open", "is not open and cannot be a parent")
    above = lineage(scope_map, parent_id)
    if above is None or len(above) > MAX_DEPTH:
        raise ScopeLimitExceeded(f"scope {scope_id!r} would be too deep", MAX_DEPTH)
    return record


def close_scope(scope_map: ScopeMap, scope_id: JsonValue) -> JsonObject:
    """Return the record that closes an open host scope."""
    closing = _scope_id(scope_id)
    if closing == ROOT_SCOPE:
        raise ScopeRefused(closing, "reserved", "is the implicit root and stays open")
    _require_open(scope_map, closing)
    return {"type": SCOPE_CLOSED, "scopeId": closing}


def enter_scope(scope_map: ScopeMap, scope_id: JsonValue) -> JsonObject:
    """Return the record that makes the scope the place of the work; every parent must be open."""
    entering = _scope_id(scope_id)
    path = lineage(scope_map, entering)
    for at in path or (entering,):
        _require_open(scope_map, at)
    if path is None:  # known, but no legal lineage: only a map that no fold has made
        raise ScopeLimitExceeded(f"scope {entering!r} lies too deep", MAX_DEPTH)
    return {"type": SCOPE_ENTERED, "scopeId": entering}


def leave_scope(scope_map: ScopeMap) -> JsonObject | None:
    """Return the record that goes back one scope; nothing at the root."""
    return {"type": SCOPE_LEFT} if len(scope_map.stack) > 1 else None


def bind(
    scope_map: ScopeMap,
    ledger: Ledger,
    scope_id: JsonValue,
    refs: JsonValue,
    own: frozenset[str] = frozenset(),
) -> JsonObject | None:
    """Return the record that binds those of ``refs`` that are not bound yet; closed scopes too.

    ``own`` are references that records have bound to the scope by themselves: they count towards
    no cap.
    """
    binding, given = _bindable(scope_map, ledger, scope_id, refs)
    bound = scope_map.refs_by_scope_id.get(binding, ())
    held = own.union(bound)
    fresh = [ref for ref in given if ref not in held]
    if len(bound) + len(fresh) > MAX_BINDS:
        raise ScopeLimitExceeded(f"references of scope {binding!r} would be too many", MAX_BINDS)
    return _of_refs(SCOPE_BOUND, binding, fresh)


def unbind(
    scope_map: ScopeMap,
    ledger: Ledger,
    scope_id: JsonValue,
    refs: JsonValue,
    own: frozenset[str] = frozenset(),
) -> JsonObject | None:
    """Return the record that unbinds those of ``refs`` that are bound, ``own`` ones included."""
    binding, given = _bindable(scope_map, ledger, scope_id, refs)
    bound = own.union(scope_map.refs_by_scope_id.get(binding, ()))
    return _of_refs(SCOPE_UNBOUND, binding, [ref for ref in given if ref in bound])


def grant(
    scope_map: ScopeMap, grants: Grants, scope_id: JsonValue, principal_ids: JsonValue
) -> JsonObject | None:
    """Return the record that grants an open host scope to those who do not have it yet."""
    named = _principals(principal_ids)
    granting = _host_scope(scope_map, scope_id)
    _require_open(scope_map, granting)
    held = frozenset(grants.get(granting, ()))
    fresh = [principal for principal in named if principal not in held]
    if len(held) + len(fresh) > MAX_PRINCIPALS:
        raise ScopeLimitExceeded(
            f"principals of scope {granting!r} would be too many", MAX_PRINCIPALS
        )
    return _of_principals(SCOPE_GRANTED, granting, fresh)


def revoke(
    scope_map: ScopeMap,
    grants: Grants,
    scope_id: JsonValue,
    principal_ids: JsonValue,
    revoking: Revoking = "always",
) -> JsonObject | None:
    """Return the record that takes the scope from ``principal_ids``.

    A closed scope can be revoked, and a revoke is appended even where this branch knows no grant:
    the grant may be under way.
    """
    named = _principals(principal_ids)
    granting = _host_scope(scope_map, scope_id)
    if revoking == "open_and_changed":
        _require_open(scope_map, granting)
        held = frozenset(grants.get(granting, ()))
        named = [principal for principal in named if principal in held]
    elif len(named) > MAX_PRINCIPALS:
        raise ScopeLimitExceeded("one record names too many principals", MAX_PRINCIPALS)
    return _of_principals(SCOPE_REVOKED, granting, named)


@contextmanager
def work_scope(
    read: Callable[[], Sequence[Entry]],
    append: Callable[[JsonObject], None],
    scope: JsonValue,
    secrets: Sequence[str] = (),
) -> Iterator[str]:
    """Open the scope if it is missing, enter it, and leave it once, whatever the body does.

    An existing scope keeps its label; a closed one fails on entering. Never closes.
    """
    scope_id = _scope_id(scope.get("id") if isinstance(scope, dict) else None)
    if not has_scope(scopes.fold(read()), scope_id):
        append(open_scope(scopes.fold(read()), scope, secrets))
    append(enter_scope(scopes.fold(read()), scope_id))
    try:
        yield scope_id
    finally:
        left = leave_scope(scopes.fold(read()))
        if left is not None:
            append(left)


def _scope_id(value: JsonValue) -> str:
    if not isinstance(value, str) or not is_scope_id(value):
        raise TypeError(f"{value!r} is no scope id: 1 to 128 of A-Z a-z 0-9 . _ : / -, no '..'")
    return value


def _host_scope(scope_map: ScopeMap, value: JsonValue) -> str:
    scope_id = _scope_id(value)
    if scope_id == ROOT_SCOPE:
        raise ScopeRefused(scope_id, "reserved", "is the implicit root and is never shared")
    if scope_id not in scope_map.scopes:
        raise ScopeRefused(scope_id, "unknown", "was never opened on this branch")
    return scope_id


def _require_open(scope_map: ScopeMap, scope_id: str) -> None:
    if scope_id not in scope_map.scopes:
        raise ScopeRefused(scope_id, "unknown", "was never opened on this branch")
    if not is_open(scope_map, scope_id):
        raise ScopeRefused(scope_id, "not_open", "is closed")


def _text(value: JsonValue, key: str) -> str:
    if not isinstance(value, str) or utf16_length(value) > MAX_LABEL_UNITS:
        raise ScopeLimitExceeded(f"a scope's {key} is a text that is too long", MAX_LABEL_UNITS)
    return value


def _bindable(
    scope_map: ScopeMap, ledger: Ledger, scope_id: JsonValue, refs: JsonValue
) -> tuple[str, list[str]]:
    binding, given = _scope_id(scope_id), strings_of(refs)
    if not given or not all(map(is_bind_ref, given)):
        raise TypeError("references are a list of om:<id> and reflection:<id>, at least one")
    if binding not in scope_map.scopes:
        raise ScopeRefused(binding, "unknown", "was never opened on this branch")
    recorded = {f"om:{item.id}" for item in ledger.observations}
    recorded.update(f"reflection:{item.id}" for item in ledger.reflections)
    for ref in given:
        if ref not in recorded:
            raise ScopeRefused(binding, "not_recorded", f"cannot hold {ref}: not recorded here")
    return binding, list(dict.fromkeys(given))


def _principals(value: JsonValue) -> list[str]:
    named = strings_of(value)
    if not named or not all(map(is_principal_id, named)):
        raise TypeError("principals are a list of ids of 1 to 256 characters, at least one")
    return list(dict.fromkeys(named))


def _of_refs(kind: str, scope_id: str, refs: Sequence[str]) -> JsonObject | None:
    return {"type": kind, "scopeId": scope_id, "refs": list(refs)} if refs else None


def _of_principals(kind: str, scope_id: str, named: Sequence[str]) -> JsonObject | None:
    return {"type": kind, "scopeId": scope_id, "principalIds": list(named)} if named else None
