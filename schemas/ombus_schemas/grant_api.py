"""What the gateway is asked and answers about shared scopes (S19), as ``api``."""

from typing import Annotated

from msgspec import Meta

from ombus_schemas.api import Api, OwnId
from ombus_schemas.entries import Entry
from ombus_schemas.limits import MAX_PRINCIPALS
from ombus_schemas.records import Observation, Reflection
from ombus_schemas.scope_api import ScopeId

_BLANK = r"\s\ufeff"
SessionId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        pattern=rf"^[^\x00-\x1f\x7f{_BLANK}]([^\x00-\x1f\x7f]*[^\x00-\x1f\x7f{_BLANK}])?$",
    ),
]
"""As ``is_principal_id``: no control characters, no blank at either end."""


class GrantRequest(Api, frozen=True, kw_only=True):
    """Let sessions read what is bound to a scope, or let them no longer."""

    scope_id: ScopeId
    principals: Annotated[tuple[SessionId, ...], Meta(min_length=1, max_length=MAX_PRINCIPALS)]
    """Ids of sessions of the same tenant."""
    entry_id: OwnId | None = None
    """The id of the record on the log; the same one again asks for the same thing once."""
    leaf: str | None = None


class GrantAnswer(Api, frozen=True, kw_only=True):
    """It holds for every read that begins from now on, on every node."""

    session: str
    scope_id: str
    granted: tuple[str, ...]
    """Who may read the scope now, in the order of grants."""
    id: str | None = None
    """The record on the log; absent: there was nothing new to say."""
    position: str | None = None
    """Its position on ``ombus.scope.grants``."""


class GrantsAnswer(Api, frozen=True, kw_only=True):
    """Who may read which scope of a session."""

    session: str
    owner: str | None = None
    """Who owns the session's grants; absent: nobody has granted anything yet."""
    granted: dict[str, tuple[str, ...]]
    """Sessions by scope, those without any left out."""


class AccessRow(Api, frozen=True, kw_only=True):
    """One decision over a shared scope."""

    at_ms: int
    scope_id: str
    owner_session_id: str
    reader_session_id: str
    granted: bool
    branches: int = 0
    observations: int = 0
    reflections: int = 0
    reason: str | None = None
    """``invalid_config``, ``not_opened``, ``unavailable``, ``unknown_scope``, ``not_granted``."""


class AccessAnswer(Api, frozen=True, kw_only=True):
    """The last decisions this gateway has made over scopes the session owns or reads."""

    session: str
    instance: str
    decisions: tuple[AccessRow, ...]
    """Newest first."""


class ShareAnswer(Api, frozen=True, kw_only=True):
    """What the default leaf of a session holds of one scope, for the gateway of a reader."""

    opening_id: str | None = None
    observations: tuple[Observation, ...] = ()
    reflections: tuple[Reflection, ...] = ()
    refs: tuple[str, ...] = ()
    dropped_ids: tuple[str, ...] = ()
    pruned_ids: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    """The sources of the one memory that was asked for."""
