"""What the gateway is asked and answers about work scopes (S18), as ``api``."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from ombus_schemas.api import Api, OwnId, Read
from ombus_schemas.jsontext import JsonObject

ScopeId = Annotated[str, Meta(pattern=r"^(?!.*\.\.)[A-Za-z0-9._:/-]{1,128}$")]
BindRef = Annotated[str, Meta(pattern="^(?:om|reflection):[a-f0-9]{12}$")]


class _Command(Api, frozen=True, kw_only=True):
    """What every command on scopes may say beside its own."""

    entry_id: OwnId | None = None
    """The id of the record on the log; the same one again asks for the same thing once."""
    leaf: str | None = None


class ScopeOpening(_Command, frozen=True, kw_only=True):
    """Open a scope; a name for a part of the work, once for each session's branch."""

    id: ScopeId
    parent_id: ScopeId | UnsetType = UNSET
    """Absent: the implicit root ``session``."""
    kind: str | UnsetType = UNSET
    label: str | UnsetType = UNSET


class ScopeChoice(_Command, frozen=True, kw_only=True):
    """Close a scope, or enter it."""

    scope_id: ScopeId


class ScopeLeaving(_Command, frozen=True, kw_only=True):
    """Go back one scope."""

    scope_id: ScopeId | None = None
    """Only if this one is on top: another handle may have moved on."""


class ScopeBinding(_Command, frozen=True, kw_only=True):
    """Bind memory to a scope, or unbind it."""

    scope_id: ScopeId
    refs: Annotated[tuple[BindRef, ...], Meta(min_length=1)]
    """``om:<id>`` and ``reflection:<id>``."""


class ScopeAnswer(Api, frozen=True, kw_only=True):
    """The command is folded."""

    session: str
    leaf: str
    current: str
    """The scope the work is in now."""
    id: str | None = None
    """The record on the log; absent: there was nothing new to say."""
    position: str | None = None
    warnings: tuple[str, ...] = ()
    """Caps that are nearly reached: above them nothing is opened or bound any more."""


class ScopeRow(Api, frozen=True, kw_only=True):
    """One scope."""

    id: str
    parent_id: str | None = None
    kind: str | None = None
    label: str | None = None
    status: Literal["open", "closed"]
    bound: int
    """Memories in it, those included that records have bound by themselves."""


class ScopesAnswer(Read, frozen=True, kw_only=True):
    """The scopes of a leaf in opening order, the root first."""

    scopes: tuple[ScopeRow, ...]
    stack: tuple[str, ...]
    """From the root to the scope the work is in."""
    binds: dict[str, tuple[str, ...]] | None = None
    """References by scope, if asked for."""
    warnings: tuple[str, ...] = ()


class OutlineRow(Api, frozen=True, kw_only=True):
    """A scope that was looked at."""

    id: str
    label: str | None = None


class ScopeMemoryAnswer(Read, frozen=True, kw_only=True):
    """The memory that is visible from a scope, in ledger order."""

    from_id: str = field(name="from")
    include: str
    observations: tuple[JsonObject, ...]
    reflections: tuple[JsonObject, ...]
    outline: tuple[OutlineRow, ...]
