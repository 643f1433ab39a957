"""Grants and revocations of a session's scopes, appended to the grants log and folded (S18).

Acknowledged is effective: a record is appended, then the log is folded up to it here, and only what
counts there is answered. A revocation always appends, also where this leaf knows no such scope.
"""

import uuid
from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from ombus_schemas.admission import admit
from ombus_schemas.codec import encode
from ombus_schemas.entries import SCHEMA_VERSION, Entry
from ombus_schemas.grant_api import AccessRow, GrantAnswer, GrantsAnswer
from ombus_schemas.headers import headers_of
from ombus_schemas.ids import WORKER_ID_PREFIX, is_entry_id
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory import scope_controller as controller
from ombus_streams.memory.grants import SCOPE_REVOKED
from ombus_streams.memory.owner_grants import OwnerGrants, ScopeGrants
from ombus_streams.memory.reading import bound_scopes
from ombus_streams.memory.scope_controller import ScopeLimitExceeded
from ombus_streams.memory.shared_rows import opening_of
from ombus_streams.runtime.grants import Decision
from ombus_streams.runtime.ports import Draft
from ombus_streams.runtime.records import iso

from ombus.operator.desk import Desk
from ombus.operator.errors import Misaddressed
from ombus.operator.lookup import Lens, looking
from ombus.operator.sharing import ScopeSharing

LOCAL: Final = "local"
"""Who grants where nobody needs a token."""

Act = Literal["grant", "revoke"]


class OtherTenant(Misaddressed):
    """A principal that is a session of another tenant: nothing is shared across tenants."""

    code = "other_tenant"


class BadGrant(Misaddressed):
    """A principal, a scope or an id that is none."""

    code = "bad_grant"


class GrantLimit(Misaddressed):
    """A command would pass a cap."""

    code = "scope_limit"


class NotTheOwner(Misaddressed):
    """Somebody else owns the session's grants: what the caller issues counts for nothing."""

    code = "not_the_owner"

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"the grants of session {session_id} are somebody else's to give: whoever granted "
            "first owns them"
        )


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A grant or a revocation, and who asks for it."""

    act: Act
    scope_id: str
    principals: tuple[str, ...]
    issuer: str = LOCAL
    entry_id: str | None = None
    leaf: str | None = None


def carry_out(desk: Desk, sharing: ScopeSharing, key: bytes, wanted: Wanted) -> GrantAnswer:
    """Append what is new, and say who may read the scope now.

    Raises:
        BadGrant, OtherTenant, GrantLimit, NotTheOwner, ScopeRefused, NoLeaf: nothing was appended;
            only ``NotTheOwner`` may also come after the append, which then counts for nothing.
        Rejected, StorageError, BrokerError: see their way out.
    """
    tenant, _, session_id = key.decode().partition("/")
    principals = [_principal(each, tenant) for each in wanted.principals]
    if wanted.entry_id is not None and (
        not is_entry_id(wanted.entry_id) or wanted.entry_id.startswith(WORKER_ID_PREFIX)
    ):
        raise BadGrant("an entry id is 1 to 200 printable ASCII characters, not from `om:` on")
    held = sharing.folds.of_owner(key)
    if held is not None and held.owner_id != wanted.issuer:
        raise NotTheOwner(session_id)
    with looking(desk, key, wanted.leaf) as lens:
        record = _record(lens, held, wanted, principals)
    if record is None:
        return _answer(session_id, wanted, held)
    bodies = [record]
    if held is None:
        bodies.insert(0, {"type": "om.session.owner", "ownerId": wanted.issuer})
    entries = [_entry(desk, key, body, wanted) for body in bodies]
    positions = sharing.log.append(
        [Draft(key=key, value=encode(each), headers=headers_of(each)) for each in entries]
    )
    held = sharing.folds.of_owner(key)
    if held is None or held.owner_id != wanted.issuer:
        raise NotTheOwner(session_id)
    answer = _answer(session_id, wanted, held)
    return msgspec.structs.replace(answer, id=entries[-1].id, position=str(positions[-1]))


def grants_of(sharing: ScopeSharing, key: bytes) -> GrantsAnswer:
    """Return who may read which scope."""
    held = sharing.folds.of_owner(key)
    granted = {} if held is None else {each: _holders(held, each) for each in held.by_scope_id}
    return GrantsAnswer(
        session=key.decode().partition("/")[2],
        owner=None if held is None else held.owner_id,
        granted={scope_id: names for scope_id, names in granted.items() if names},
    )


def access_rows(
    sharing: ScopeSharing, key: bytes, scope_id: str | None = None, limit: int = 100
) -> tuple[AccessRow, ...]:
    """Return the last decisions over scopes the session owns or reads, newest first."""
    tenant, _, session_id = key.decode().partition("/")
    return tuple(map(_row, sharing.access.decisions(tenant, session_id, scope_id, limit)))


def _record(
    lens: Lens, held: OwnerGrants | None, wanted: Wanted, principals: Sequence[str]
) -> JsonObject | None:
    scope_map, named = bound_scopes(lens.session, lens.leaf), list(principals)
    known = held.by_scope_id if held is not None else {}
    is_known = wanted.scope_id in known and wanted.scope_id not in scope_map.scopes
    try:
        if wanted.act == "revoke":
            if is_known:
                # On another branch; it must be revocable from here, too.
                return {
                    "type": SCOPE_REVOKED,
                    "scopeId": wanted.scope_id,
                    "principalIds": [*dict.fromkeys(named)],
                }
            return controller.revoke(scope_map, {}, wanted.scope_id, [*named])
        opening = opening_of(lens.session, lens.leaf, wanted.scope_id)
        scope = known.get(wanted.scope_id, ScopeGrants())
        granted = scope.granted(opening) if opening is not None else ()
        record = controller.grant(scope_map, {wanted.scope_id: granted}, wanted.scope_id, [*named])
        return None if record is None else {**record, "openingEntryId": opening}
    except TypeError as error:
        raise BadGrant(str(error)) from error
    except ScopeLimitExceeded as error:
        raise GrantLimit(str(error)) from error


def _principal(name: str, tenant: str) -> str:
    """Return the session a principal names. Across tenants nothing is ever shared."""
    where, slash, session_id = name.rpartition("/")
    if slash and where != tenant:
        raise OtherTenant(f"{name} is a session of another tenant: share within {tenant} only")
    return session_id if slash else name


def _entry(desk: Desk, key: bytes, body: JsonObject, wanted: Wanted) -> Entry:
    tenant, _, session_id = key.decode().partition("/")
    name = str(body["type"]).removeprefix("om.")
    entry_id = wanted.entry_id if name != "session.owner" else None
    entry = Entry(
        id=entry_id or f"{name}:{uuid.uuid4().hex}",
        session_id=session_id,
        tenant_id=tenant,
        parent_id=None,
        timestamp=iso(desk.clock.now()),
        kind="custom",
        schema_version=SCHEMA_VERSION,
        data=body,
    )
    policy = msgspec.structs.replace(desk.policy("owner"), principal_id=wanted.issuer)
    return admit(entry, policy)


def _answer(session_id: str, wanted: Wanted, held: OwnerGrants | None) -> GrantAnswer:
    granted = () if held is None else _holders(held, wanted.scope_id)
    return GrantAnswer(session=session_id, scope_id=wanted.scope_id, granted=granted)


def _holders(held: OwnerGrants, scope_id: str) -> tuple[str, ...]:
    scope = held.by_scope_id.get(scope_id, ScopeGrants())
    return tuple(name for name, openings in scope.openings_by_principal.items() if openings)


def _row(decision: Decision) -> AccessRow:
    access = decision.access
    return AccessRow(
        at_ms=int(decision.at.timestamp() * 1_000),
        scope_id=access.scope_id,
        owner_session_id=access.owner_session_id,
        reader_session_id=access.principal_id,
        granted=access.granted,
        branches=access.branches,
        observations=access.observations,
        reflections=access.reflections,
        reason=access.reason,
    )
