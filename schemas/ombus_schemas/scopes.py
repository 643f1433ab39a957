"""Records of work scopes, of grants, and of the decisions they led to (S18, S19).

``is_sound`` holds what the types cannot say; a record that is not sound is ignored by the folds
and refused at admission. Null is never "absent" here.
"""

from msgspec import UNSET, UnsetType

from ombus_schemas.bodies import BindRef, Body, Count, EntryId, KeyPart, PrincipalId, ScopeId
from ombus_schemas.ids import is_bind_ref, is_principal_id, is_scope_id
from ombus_schemas.jsontext import utf16_length
from ombus_schemas.limits import MAX_LABEL_UNITS, MAX_PRINCIPALS


class ScopeOpened(Body, tag="om.scope.opened", kw_only=True, frozen=True):
    """A scope exists from here on."""

    id: ScopeId
    parent_id: ScopeId | UnsetType = UNSET
    """Absent: the implicit root ``session``."""
    kind: str | UnsetType = UNSET
    label: str | UnsetType = UNSET


class ScopeClosed(Body, tag="om.scope.closed", kw_only=True, frozen=True):
    """The scope is done; its children stay as they are."""

    scope_id: ScopeId


class ScopeEntered(Body, tag="om.scope.entered", kw_only=True, frozen=True):
    """The stack becomes the lineage of this scope."""

    scope_id: ScopeId


class ScopeLeft(Body, tag="om.scope.left", kw_only=True, frozen=True):
    """The scope is popped, if it is still on top: another handle may have moved on."""

    scope_id: ScopeId | UnsetType = UNSET
    """Absent on imported records, which pop whatever is on top."""


class ScopeBound(Body, tag="om.scope.bound", kw_only=True, frozen=True):
    """Memory belongs to the scope."""

    scope_id: ScopeId
    refs: tuple[BindRef, ...]


class ScopeUnbound(Body, tag="om.scope.unbound", kw_only=True, frozen=True):
    """Memory belongs to the scope no longer."""

    scope_id: ScopeId
    refs: tuple[BindRef, ...]


class ScopeGranted(Body, tag="om.scope.granted", kw_only=True, frozen=True):
    """Others may read what is bound to the scope."""

    scope_id: ScopeId
    principal_ids: tuple[PrincipalId, ...]
    opening_entry_id: EntryId | UnsetType = UNSET
    """The entry that opened the scope; a read checks it. Absent only on imports, which grant
    nothing."""
    issued_by: PrincipalId | UnsetType = UNSET
    """Stamped by the gateway; the fold ignores what the session's owner did not issue."""


class ScopeRevoked(Body, tag="om.scope.revoked", kw_only=True, frozen=True):
    """Others may not any more; appended even if nobody held a grant (pitfalls.md 10)."""

    scope_id: ScopeId
    principal_ids: tuple[PrincipalId, ...]
    opening_entry_id: EntryId | UnsetType = UNSET
    issued_by: PrincipalId | UnsetType = UNSET


class ScopeAccess(Body, tag="om.scope.access", kw_only=True, frozen=True):
    """One decision over a shared read, granted or denied (S19)."""

    scope_id: str
    """As configured: a denial may be that it is no scope id."""
    owner_session_id: str
    principal_id: str
    granted: bool
    branches: Count = 0
    observations: Count = 0
    reflections: Count = 0
    reason: str | None = None
    """``invalid_config``, ``not_opened``, ``unavailable``, ``unknown_scope``, ``not_granted``."""
    reader_session_id: KeyPart | None = None


ScopeRecord = ScopeOpened | ScopeClosed | ScopeEntered | ScopeLeft | ScopeBound | ScopeUnbound
GrantRecord = ScopeGranted | ScopeRevoked


def is_sound(record: ScopeRecord | GrantRecord) -> bool:
    """Say whether ids, refs, principals and labels keep to their grammar and caps."""
    match record:
        case ScopeOpened(id=scope_id, parent_id=parent, kind=kind, label=label):
            is_parent_sound = parent is UNSET or is_scope_id(parent)
            return is_scope_id(scope_id) and is_parent_sound and _fits(kind) and _fits(label)
        case ScopeLeft(scope_id=left):
            return left is UNSET or is_scope_id(left)
        case ScopeBound() | ScopeUnbound():
            return is_scope_id(record.scope_id) and all(map(is_bind_ref, record.refs))
        case ScopeGranted() | ScopeRevoked():
            principals = record.principal_ids
            is_size_sound = 0 < len(principals) <= MAX_PRINCIPALS
            return (
                is_scope_id(record.scope_id)
                and is_size_sound
                and all(map(is_principal_id, principals))
            )
        case ScopeClosed() | ScopeEntered():
            return is_scope_id(record.scope_id)


def _fits(text: str | UnsetType) -> bool:
    return text is UNSET or utf16_length(text) <= MAX_LABEL_UNITS
