"""Who may read the scopes of one session, as its key of ``ombus.scope.grants`` says (section 10).

The fold is total and takes the records of one key in log order, whatever branch the owner is on.
The first ``om.session.owner`` opens the key; what somebody else issued changes nothing, and neither
does a grant that names no opening entry, as imported ones do.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import UNSET
from ombus_schemas.control import SessionOwner
from ombus_schemas.entries import Entry
from ombus_schemas.facts import fact_of
from ombus_schemas.scopes import ScopeGranted, ScopeRevoked

from ombus_streams.memory.grants import MAX_PRINCIPALS

MAX_OPENINGS: Final = 8
"""Opening entries for which one principal holds a scope; scopes of a name are rare, on forks."""

GRANTS_VERSION: Final = 1
"""Part of the keys of every cache: another fold never writes into the maps of this one."""


class ScopeGrants(msgspec.Struct, frozen=True, array_like=True):
    """Who may read one scope."""

    openings_by_principal: Mapping[str, tuple[str, ...]] = {}
    """Opening entries a principal holds the scope for, in the order of grants; none: revoked."""

    def granted(self, opening_id: str) -> tuple[str, ...]:
        """Return the principals that hold the scope as this entry opened it, in order."""
        return tuple(
            principal
            for principal, openings in self.openings_by_principal.items()
            if opening_id in openings
        )


class OwnerGrants(msgspec.Struct, frozen=True, array_like=True):
    """What the owner of one session has granted."""

    owner_id: str
    by_scope_id: Mapping[str, ScopeGrants] = {}


def evolve(held: OwnerGrants | None, entry: Entry) -> OwnerGrants | None:
    """Return what is granted after ``entry``: the same object when it changes nothing."""
    match fact_of(entry):
        case SessionOwner(owner_id=owner) if held is None:
            return OwnerGrants(owner)
        case ScopeGranted(opening_entry_id=str(opening)) as fact if _counts(held, fact):
            assert held is not None
            return _with(held, fact.scope_id, _granted(held, fact, opening))
        case ScopeRevoked() as fact if _counts(held, fact):
            assert held is not None
            return _with(held, fact.scope_id, _revoked(held, fact))
        case _:
            return held


def _counts(held: OwnerGrants | None, fact: ScopeGranted | ScopeRevoked) -> bool:
    return held is not None and fact.issued_by is not UNSET and fact.issued_by == held.owner_id


def _granted(held: OwnerGrants, fact: ScopeGranted, opening: str) -> dict[str, tuple[str, ...]]:
    """The cap counts those who hold the scope; beyond it the rest is ignored (S18)."""
    known = held.by_scope_id.get(fact.scope_id, ScopeGrants()).openings_by_principal
    found = dict(known)
    n_holding = sum(bool(openings) for openings in found.values())
    for principal in fact.principal_ids:
        openings = found.get(principal, ())
        if not openings:
            if n_holding >= MAX_PRINCIPALS:
                continue
            n_holding += 1
            found.pop(principal, None)
        others = tuple(each for each in openings if each != opening)
        found[principal] = (*others, opening)[-MAX_OPENINGS:]
    return found


def _revoked(held: OwnerGrants, fact: ScopeRevoked) -> dict[str, tuple[str, ...]]:
    known = held.by_scope_id.get(fact.scope_id, ScopeGrants()).openings_by_principal
    gone = frozenset(fact.principal_ids)
    return {
        principal: () if principal in gone else openings for principal, openings in known.items()
    }


def _with(held: OwnerGrants, scope_id: str, found: dict[str, tuple[str, ...]]) -> OwnerGrants:
    known = held.by_scope_id.get(scope_id, ScopeGrants()).openings_by_principal
    if found == known and tuple(found) == tuple(known):
        return held
    return msgspec.structs.replace(
        held, by_scope_id={**held.by_scope_id, scope_id: ScopeGrants(found)}
    )
