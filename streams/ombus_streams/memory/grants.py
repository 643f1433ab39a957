"""Grants: who may read a scope of somebody else's session.

The fold is independent of the scope map: a grant for a scope that is closed, or was never opened,
accumulates like any other (S18). It takes the records of one owner, in log order.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ombus_schemas.entries import Entry
from ombus_schemas.ids import is_principal_id, is_scope_id
from ombus_schemas.jsontext import JsonObject

from ombus_streams.memory.scopes import strings_of

SCOPE_GRANTED: Final = "om.scope.granted"
SCOPE_REVOKED: Final = "om.scope.revoked"

MAX_PRINCIPALS: Final = 1024
"""Principals of one scope, and of one record."""

Grants = Mapping[str, tuple[str, ...]]
"""Principals by scope id, in the order they were granted; a scope without any is absent."""


def fold(entries: Iterable[Entry]) -> Grants:
    """Return who is granted what after ``entries``."""
    held: dict[str, dict[str, None]] = {}
    for entry in entries:
        apply(held, entry)
    return {scope_id: tuple(principals) for scope_id, principals in held.items()}


def apply(held: dict[str, dict[str, None]], entry: Entry) -> None:
    """Bring ``held`` up to ``entry``; an entry that is no well-formed grant record changes nothing.

    Beyond the cap the rest of a record is ignored in silence, so the order of grants decides.
    """
    data = entry.data
    if not isinstance(data, dict) or data.get("type") not in (SCOPE_GRANTED, SCOPE_REVOKED):
        return
    scope_id, named = data.get("scopeId"), _principals(data)
    if named is None or not isinstance(scope_id, str) or not is_scope_id(scope_id):
        return
    principals = held.get(scope_id, {})
    for principal_id in named:
        if data["type"] == SCOPE_REVOKED:
            principals.pop(principal_id, None)
        elif len(principals) < MAX_PRINCIPALS:
            principals[principal_id] = None
    if principals:
        held[scope_id] = principals
    else:
        held.pop(scope_id, None)


def _principals(data: JsonObject) -> tuple[str, ...] | None:
    named = strings_of(data.get("principalIds"))
    if named is None or not 1 <= len(named) <= MAX_PRINCIPALS:
        return None
    return tuple(named) if all(map(is_principal_id, named)) else None
