"""Memory of other sessions that a scope shares: who may read it, and what there is (S19).

Pure: the edge fetches branches and grants first, this decides over what it was given. Every
declared scope gets exactly one decision, and what is missing is denied.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Literal

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.records import Observation, Reflection
from ombus_schemas.settings import SharedScope

from ombus_streams.memory import ledger as ledgers
from ombus_streams.memory import scopes
from ombus_streams.memory.ledger import Ledger
from ombus_streams.memory.projection import Projection
from ombus_streams.memory.scopes import ScopeMap

Denial = Literal["invalid_config", "not_opened", "unavailable", "unknown_scope", "not_granted"]
Foreign = Literal["traced", "named"]


class Branch(msgspec.Struct, kw_only=True, frozen=True):
    """What was fetched of one session."""

    ledger: Ledger
    scope_map: ScopeMap
    entries: tuple[Entry, ...]


class Supply(msgspec.Struct, kw_only=True, frozen=True):
    """What was fetched for one declared scope. A session that is not among ``branches`` failed."""

    branches: Mapping[str, Branch]
    granted: tuple[str, ...] | None = None
    """Principals of the scope as its owner granted them; ``None``: they could not be read."""


class AccessDecision(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """One decision, for the log; counts are zero when denied."""

    scope_id: str
    owner_session_id: str
    principal_id: str
    granted: bool
    n_branches: int = 0
    n_observations: int = 0
    n_reflections: int = 0
    reason: Denial | None = None


class ResolvedScope(msgspec.Struct, kw_only=True, frozen=True):
    """What one scope shares with its reader; items of the first branch win, by id."""

    scope_id: str
    owner_session_id: str
    ledger: Ledger
    """Bound items only, but every dropped id of every branch read."""
    refs: tuple[str, ...]
    """The reader's own binds first."""
    branch_ids: tuple[str, ...]
    entries: tuple[Entry, ...]


class SharedMemory(msgspec.Struct, kw_only=True, frozen=True):
    """All resolved scopes as one; what context, view and recall take beside the local branch."""

    observations: tuple[Observation, ...] = ()
    reflections: tuple[Reflection, ...] = ()
    dropped_ids: tuple[str, ...] = ()
    pruned_ids: frozenset[str] = frozenset()
    refs_by_scope_id: Mapping[str, tuple[str, ...]] = {}
    entries: tuple[Entry, ...] = ()

    @property
    def ledger(self) -> Ledger:
        """The shared items as a ledger without coverage."""
        return Ledger(
            observations=self.observations,
            reflections=self.reflections,
            dropped_ids=self.dropped_ids,
            pruned_ids=self.pruned_ids,
        )


def branch_of(entries: Iterable[Entry]) -> Branch:
    """Return the folds of a fetched branch."""
    held = tuple(entries)
    return Branch(ledger=ledgers.fold(held), scope_map=scopes.fold(held), entries=held)


def sessions_to_read(
    owner_session_id: str, granted: Iterable[str], principal_id: str
) -> tuple[str, ...]:
    """Return the owner and its grantees without the reader, each once, by UTF-16 code unit."""
    sessions = {owner_session_id, *granted} - {principal_id}
    return tuple(sorted(sessions, key=lambda text: text.encode("utf-16-be", "surrogatepass")))


def resolve(
    declared: Sequence[SharedScope],
    principal_id: str,
    scope_map: ScopeMap,
    supplies: Mapping[str, Supply],
) -> tuple[tuple[AccessDecision, ...], tuple[ResolvedScope, ...]]:
    """Return one decision per declared scope, in their order, and what the granted ones share.

    A peer that could not be read, or that binds nothing to the scope, is left out in silence; the
    owner that could not be read denies. Grants inside any other branch count for nothing, and the
    owner needs a grant of its own to read its peers.
    """
    decisions: list[AccessDecision] = []
    resolved: list[ResolvedScope] = []
    for scope in declared:
        supply = supplies.get(scope.scope_id)
        reason = _denial(scope, principal_id, scope_map, supply)
        shared = None
        if reason is None and supply is not None:
            shared = _read(scope, principal_id, scope_map, supply)
            resolved.append(shared)
        decisions.append(
            AccessDecision(
                scope_id=scope.scope_id,
                owner_session_id=scope.owner_session_id,
                principal_id=principal_id,
                granted=shared is not None,
                n_branches=len(shared.branch_ids) if shared else 0,
                n_observations=len(shared.ledger.observations) if shared else 0,
                n_reflections=len(shared.ledger.reflections) if shared else 0,
                reason=reason,
            )
        )
    return tuple(decisions), tuple(resolved)


def merge(resolved: Sequence[ResolvedScope]) -> SharedMemory:
    """Return the scopes as one: the first id wins, drops and references are united."""
    union = ledgers.merge(scope.ledger for scope in resolved)
    refs: dict[str, dict[str, None]] = {}
    entries: dict[str, Entry] = {}
    for scope in resolved:
        refs.setdefault(scope.scope_id, {}).update(dict.fromkeys(scope.refs))
        for entry in scope.entries:
            entries.setdefault(entry.id, entry)
    return SharedMemory(
        observations=union.observations,
        reflections=union.reflections,
        dropped_ids=union.dropped_ids,
        pruned_ids=union.pruned_ids,
        refs_by_scope_id={scope_id: tuple(held) for scope_id, held in refs.items()},
        entries=tuple(entries.values()),
    )


def with_shared_refs(scope_map: ScopeMap, shared: SharedMemory) -> ScopeMap:
    """Return the map with the binds of each shared scope replaced by the merged ones."""
    return msgspec.structs.replace(
        scope_map, refs_by_scope_id={**scope_map.refs_by_scope_id, **shared.refs_by_scope_id}
    )


def join(
    projection: Projection,
    shared: SharedMemory,
    invalidated_ids: Set[str] = frozenset(),
    foreign: Foreign = "traced",
) -> Ledger:
    """Return the visible memory and the shared one as one ledger; local items win by id.

    What ``invalidated_ids`` hits is left out, and every reflection on a dropped support that was
    not merely pruned. ``foreign="named"`` is the reference's rule: it looks at the ids that are
    named alone and still shows a shared reflection whose support has lost its sources.
    """
    full = projection.full
    held = ledgers.merge(
        (
            Ledger(
                observations=projection.observations,
                reflections=projection.reflections,
                dropped_ids=projection.dropped_ids,
                pruned_ids=full.pruned_ids.intersection(projection.dropped_ids),
            ),
            shared.ledger,
        )
    )
    blocking = (frozenset(held.dropped_ids) - held.pruned_ids) | invalidated_ids
    if foreign == "traced":
        blocking |= {
            item.id
            for item in (*full.observations, *held.observations)
            if ledgers.blocks_observation(invalidated_ids, item)
        }
    return msgspec.structs.replace(
        held,
        observations=tuple(
            item
            for item in held.observations
            if not ledgers.blocks_observation(invalidated_ids, item)
        ),
        reflections=tuple(
            item for item in held.reflections if not ledgers.blocks_reflection(blocking, item)
        ),
    )


def _denial(
    scope: SharedScope, principal_id: str, scope_map: ScopeMap, supply: Supply | None
) -> Denial | None:
    if not scope.is_valid:
        return "invalid_config"
    if scope.scope_id not in scope_map.scopes:
        return "not_opened"
    owner = supply.branches.get(scope.owner_session_id) if supply else None
    if supply is None or supply.granted is None or owner is None:
        return "unavailable"
    if scope.scope_id not in owner.scope_map.scopes:
        return "unknown_scope"
    return None if principal_id in supply.granted else "not_granted"


def _read(
    scope: SharedScope, principal_id: str, scope_map: ScopeMap, supply: Supply
) -> ResolvedScope:
    own = scope_map.refs_by_scope_id.get(scope.scope_id, ())
    refs = dict.fromkeys(own)
    parts: list[Ledger] = []
    branch_ids: list[str] = []
    entries: list[Entry] = []
    for session_id in sessions_to_read(scope.owner_session_id, supply.granted or (), principal_id):
        branch = supply.branches.get(session_id)
        bound = branch.scope_map.refs_by_scope_id.get(scope.scope_id) if branch else None
        if branch is None or not bound:
            continue
        parts.append(_bound_part(branch.ledger, frozenset(bound)))
        branch_ids.append(session_id)
        refs.update(dict.fromkeys(bound))
        entries.extend(branch.entries)
    return ResolvedScope(
        scope_id=scope.scope_id,
        owner_session_id=scope.owner_session_id,
        ledger=ledgers.merge(parts),
        refs=tuple(refs),
        branch_ids=tuple(branch_ids),
        entries=tuple(entries),
    )


def _bound_part(whole: Ledger, bound: frozenset[str]) -> Ledger:
    return msgspec.structs.replace(
        whole,
        observations=tuple(item for item in whole.observations if f"om:{item.id}" in bound),
        reflections=tuple(item for item in whole.reflections if f"reflection:{item.id}" in bound),
    )
