"""What a leaf gives to those who may read one of its scopes, from its rows (S19).

The cost of a branch follows what its leaf holds, never the length of its session; no log is read.
"""

from collections.abc import Iterable

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.ids import observation_ref, reflection_ref
from ombus_schemas.records import Observation, Reflection, is_memory_id

from ombus_streams.memory import keys, reading
from ombus_streams.memory.head import LeafHead, NameRow, ScopeRow
from ombus_streams.memory.items import ACTIVE, observations, reflections
from ombus_streams.memory.ledger import Ledger
from ombus_streams.memory.scopes import EMPTY, SCOPE_OPENED, Scope
from ombus_streams.memory.session import Session
from ombus_streams.memory.shared import Branch


class SharedBranch(msgspec.Struct, frozen=True, kw_only=True):
    """What a session holds of one scope, on its default leaf; nothing invalidated is in it."""

    opening_id: str | None = None
    """The entry that opened the scope; ``None``: it was never opened there."""
    observations: tuple[Observation, ...] = ()
    reflections: tuple[Reflection, ...] = ()
    """Bound to the scope, in ledger order; what is dropped, too: recall finds it (S19)."""
    refs: tuple[str, ...] = ()
    """Everything bound to the scope."""
    dropped_ids: tuple[str, ...] = ()
    pruned_ids: tuple[str, ...] = ()
    """All of the leaf's: a drop counts for whoever reads beside it (S19)."""
    entries: tuple[Entry, ...] = ()
    """The sources of the one memory that was asked for, else none."""


def shared_branch(
    session: Session, leaf: LeafHead, scope_id: str, memory_id: str | None = None
) -> SharedBranch:
    """Return what the leaf holds of the scope; with ``memory_id`` also the sources of that memory.

    Only what is bound to the scope gives sources, and nothing that is invalidated does.
    """
    opening_id = opening_of(session, leaf, scope_id)
    if opening_id is None:
        return SharedBranch()
    refs = reading.bound_scopes(session, leaf).refs_by_scope_id.get(scope_id, ())
    bound = frozenset(refs)
    observed = tuple(
        row.item
        for row in observations(session, leaf, *ACTIVE, "dropped")
        if observation_ref(row.item.id) in bound
    )
    reflected = tuple(
        row.item
        for row in reflections(session, leaf, "visible", "hidden")
        if reflection_ref(row.item.id) in bound
    )
    dropped: list[str] = []
    pruned: list[str] = []
    prefix = keys.of_leaf(session.prefix, b"k", leaf.segment)
    for key, name in session.scan(prefix, NameRow):
        if name.dropped:
            dropped.append(key[len(prefix) :].decode("utf-8", "surrogatepass"))
        if name.pruned:
            pruned.append(dropped[-1])
    entries: tuple[Entry, ...] = ()
    if memory_id is not None and is_memory_id(memory_id):
        entries = _sources(session, leaf, memory_id, observed, reflected)
    return SharedBranch(
        opening_id=opening_id,
        observations=observed,
        reflections=reflected,
        refs=refs,
        dropped_ids=tuple(dropped),
        pruned_ids=tuple(pruned),
        entries=entries,
    )


def opening_of(session: Session, leaf: LeafHead, scope_id: str) -> str | None:
    """Return the entry that opened the scope on this leaf; ``None``: none has."""
    for _, row in session.scan(keys.of_leaf(session.prefix, b"g", leaf.segment), ScopeRow):
        if row.value.get("type") == SCOPE_OPENED and row.value.get("id") == scope_id:
            return row.entry_id
    return None


def as_branch(shared: SharedBranch, scope_id: str) -> Branch:
    """Return the branch as the decision over it takes it."""
    scope_map = EMPTY
    if shared.opening_id is not None:
        scope_map = msgspec.structs.replace(
            EMPTY,
            scopes={**EMPTY.scopes, scope_id: Scope(id=scope_id)},
            refs_by_scope_id={scope_id: shared.refs} if shared.refs else {},
        )
    ledger = Ledger(
        observations=shared.observations,
        reflections=shared.reflections,
        dropped_ids=shared.dropped_ids,
        pruned_ids=frozenset(shared.pruned_ids),
    )
    return Branch(ledger=ledger, scope_map=scope_map, entries=shared.entries)


def _sources(
    session: Session,
    leaf: LeafHead,
    memory_id: str,
    observed: Iterable[Observation],
    reflected: Iterable[Reflection],
) -> tuple[Entry, ...]:
    named = {memory_id}
    for item in reflected:
        if item.id == memory_id:
            named.update(item.supporting_observation_ids)
    sources = dict.fromkeys(
        source for item in observed if item.id in named for source in item.source_entry_ids
    )
    found = reading.entries_on(session, leaf, sources)
    return tuple(entry for entry in found if entry.id not in session.invalid_from())
