"""The typed body of an entry, whatever it states: one parse function over every ``om.*`` type.

What workers record is read by ``records``; everything else the folds know is here. Parsing is
total and decides by ``data`` alone, never by the entry's kind (S5).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ombus_schemas.bodies import Body, read_as, tag_of
from ombus_schemas.control import (
    LogCreated,
    SessionArchived,
    SessionErased,
    SessionOwner,
    SettingsChanged,
    SourcesInvalidated,
    SourcesLinked,
    invalidation_of,
)
from ombus_schemas.entries import Entry
from ombus_schemas.ids import is_principal_id
from ombus_schemas.requests import (
    CompactCompleted,
    CompactFailed,
    CompactRequested,
    FlushCompleted,
    FlushFailed,
    FlushRequested,
    RunFinished,
    RunStarted,
)
from ombus_schemas.scopes import (
    GrantRecord,
    ScopeAccess,
    ScopeBound,
    ScopeClosed,
    ScopeEntered,
    ScopeGranted,
    ScopeLeft,
    ScopeOpened,
    ScopeRecord,
    ScopeRevoked,
    ScopeUnbound,
    is_sound,
)

RunFact = RunStarted | RunFinished
Request = FlushRequested | CompactRequested
Answer = FlushCompleted | FlushFailed | CompactCompleted | CompactFailed
SessionFact = (
    SettingsChanged
    | SourcesInvalidated
    | SourcesLinked
    | SessionOwner
    | SessionErased
    | SessionArchived
)
Fact = (
    RunFact | Request | Answer | SessionFact | ScopeRecord | GrantRecord | ScopeAccess | LogCreated
)

_TYPES: Final[tuple[type[Fact], ...]] = (
    RunStarted,
    RunFinished,
    FlushRequested,
    FlushCompleted,
    FlushFailed,
    CompactRequested,
    CompactCompleted,
    CompactFailed,
    SettingsChanged,
    SourcesInvalidated,
    SourcesLinked,
    SessionOwner,
    SessionErased,
    SessionArchived,
    ScopeOpened,
    ScopeClosed,
    ScopeEntered,
    ScopeLeft,
    ScopeBound,
    ScopeUnbound,
    ScopeGranted,
    ScopeRevoked,
    ScopeAccess,
    LogCreated,
)
FACT_TYPE_BY_NAME: Final[Mapping[str, type[Fact]]] = MappingProxyType(
    {tag_of(kind): kind for kind in _TYPES}
)
"""Every type that ``fact_of`` reads, by its ``data.type``."""


def fact_of(entry: Entry) -> Fact | None:
    """Return the fact in ``entry.data``, or ``None`` if there is none that counts."""
    data = entry.data
    if not isinstance(data, dict):
        return None
    name = data.get("type")
    kind = FACT_TYPE_BY_NAME.get(name) if isinstance(name, str) else None
    if kind is None:
        return None
    if kind is SourcesInvalidated:
        return invalidation_of(data)
    fact = read_as(kind, data)
    return fact if fact is not None and _is_sound(fact) else None


def _is_sound(fact: Body) -> bool:
    match fact:
        case SessionOwner(owner_id=owner):
            return is_principal_id(owner)
        case (
            ScopeOpened()
            | ScopeClosed()
            | ScopeEntered()
            | ScopeLeft()
            | ScopeBound()
            | ScopeUnbound()
            | ScopeGranted()
            | ScopeRevoked()
        ):
            return is_sound(fact)
        case _:
            return True
