"""What a read answers, from the rows of one leaf: context, recall, pages, status, view (section 8).

Cost follows the active memory and the window, never the length of the session. The texts are those
of the pure functions, fed with the few entries and items that matter.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType
from ombus_schemas.codec import decode
from ombus_schemas.entries import Entry
from ombus_schemas.ids import observation_ref, reflection_ref
from ombus_schemas.jsontext import JsonObject, JsonValue, trim
from ombus_schemas.records import Observation, Reflection, is_memory_id

from ombus_streams.memory import keys
from ombus_streams.memory.commands import Status, View
from ombus_streams.memory.context import Block, memory_block, window_block
from ombus_streams.memory.coverage import is_eligible
from ombus_streams.memory.head import EntryRow, ItemRow, ItemState, LeafHead, ScopeRow
from ombus_streams.memory.items import (
    ACTIVE,
    name_of,
    observation_row,
    observations,
    reflection_row,
    reflections,
)
from ombus_streams.memory.keys import number_at_end
from ombus_streams.memory.ledger import Ledger, active
from ombus_streams.memory.pages import MAX_LIMIT, NoPage, Page, page
from ombus_streams.memory.recall import Recalled, recall, recall_of
from ombus_streams.memory.recent import recent
from ombus_streams.memory.render import OutlineLine, render_memory
from ombus_streams.memory.scope_projection import project_scopes
from ombus_streams.memory.scopes import ScopeMap, unbound
from ombus_streams.memory.session import Session, chain, chain_backwards, is_on
from ombus_streams.memory.shared import SharedMemory, with_shared_refs
from ombus_streams.memory.shared_join import joined
from ombus_streams.memory.terms import scope_map_of, settings_of


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Items in ledger order."""

    observations: tuple[Observation, ...] = ()
    reflections: tuple[Reflection, ...] = ()
    outline: tuple[OutlineLine, ...] = ()


def visible(session: Session, leaf: LeafHead) -> Memory:
    """Return the visible memory: the last payload and what was recorded since, or all of it."""
    return Memory(
        observations=tuple(row.item for row in observations(session, leaf, "visible")),
        reflections=tuple(row.item for row in reflections(session, leaf, "visible")),
    )


def scoped(session: Session, leaf: LeafHead, memory: Memory) -> Memory:
    """Return what of ``memory`` is bound around the scope the work is in; all, without scopes."""
    if not leaf.n_scopes:
        return memory
    scope_map = bound_scopes(session, leaf)
    ledger = Ledger(observations=memory.observations, reflections=memory.reflections)
    shown = project_scopes(ledger, scope_map, scope_map.leaf, "self+ancestors")
    return Memory(
        observations=shown.observations, reflections=shown.reflections, outline=shown.outline
    )


def bound_scopes(session: Session, leaf: LeafHead) -> ScopeMap:
    """Return the scope map with what records bind by themselves (design.md section 5)."""
    scope_map = scope_map_of(session, leaf)
    if not leaf.n_scopes:
        return scope_map
    refs = {scope: dict.fromkeys(bound) for scope, bound in scope_map.refs_by_scope_id.items()}
    states: tuple[ItemState, ...] = (*ACTIVE, "dropped")
    own: list[tuple[ItemRow, str]] = [
        (row, observation_ref(row.item.id)) for row in observations(session, leaf, *states)
    ]
    own += [(row, reflection_ref(row.item.id)) for row in reflections(session, leaf, "visible")]
    released = _released(session, leaf, scope_map)
    for row, ref in own:
        scope = row.scope_id
        if scope is None or scope not in scope_map.scopes:
            continue
        at = released.get((scope, ref), 0)
        place = session.place_of(row.record) if at else None
        if place is None or place.ordinal > at:
            refs.setdefault(scope, {})[ref] = None
    return msgspec.structs.replace(
        scope_map, refs_by_scope_id={scope: tuple(bound) for scope, bound in refs.items()}
    )


def _released(session: Session, leaf: LeafHead, scope_map: ScopeMap) -> dict[tuple[str, str], int]:
    """Return the ordinal of the last record that unbinds a reference from a scope, by both."""
    found: dict[tuple[str, str], int] = {}
    for key, row in session.scan(keys.of_leaf(session.prefix, b"g", leaf.segment), ScopeRow):
        record = Entry(id="", session_id="", kind="", data=row.value)
        gone = unbound(scope_map, record)
        if gone is not None:
            found.update(dict.fromkeys(((gone[0], ref) for ref in gone[1]), number_at_end(key)))
    return found


def context(
    session: Session,
    leaf: LeafHead,
    keep: int | None = None,
    max_tokens: float | None = None,
    secrets: Sequence[str] = (),
    shared: SharedMemory | None = None,
) -> tuple[Block, ...]:
    """Return the blocks of the leaf: the memory, then the recent messages if there are any.

    ``shared`` is what other sessions share with this one, decided for this read (S19).
    """
    memory = visible(session, leaf)
    ledger = Ledger(observations=memory.observations, reflections=memory.reflections)
    scope_map = bound_scopes(session, leaf)
    if shared is not None and scope_map.is_scoped:  # the implicit scope is never shared (S11)
        ledger = joined(session, leaf, memory.observations, memory.reflections, shared)
        scope_map = with_shared_refs(scope_map, shared)
    held = memory_block(ledger, scope_map, secrets)
    messages = window_block(recent(session, leaf, keep, max_tokens, secrets), secrets)
    return (held,) if messages is None else (held, messages)


def view(
    session: Session,
    leaf: LeafHead,
    mode: Literal["visible", "full"],
    secrets: Sequence[str] = (),
    shared: SharedMemory | None = None,
) -> View:
    """Return the visible memory, or with ``full`` all that is active and every reflection of it.

    What others share is part of the first alone (S22).
    """
    memory = visible(session, leaf)
    if shared is not None:
        held = joined(session, leaf, memory.observations, memory.reflections, shared)
        memory = Memory(observations=active(held), reflections=held.reflections)
    if mode == "full":
        memory = Memory(
            observations=tuple(row.item for row in observations(session, leaf, *ACTIVE)),
            reflections=tuple(row.item for row in reflections(session, leaf, "visible", "hidden")),
        )
    return View(
        mode=mode,
        n_observations=len(memory.observations),
        n_reflections=len(memory.reflections),
        text=render_memory(memory.observations, memory.reflections, secrets=secrets),
    )


def status(session: Session, leaf: LeafHead, runtime: JsonObject) -> Status:
    """Return the counts of the leaf; ``raw_tokens`` are those after the last compaction."""
    limits = settings_of(session, leaf).context
    seen = visible(session, leaf)
    return Status(
        n_recorded=leaf.n_observations,
        n_dropped=leaf.n_dropped,
        n_active=leaf.n_active,
        n_visible=len(seen.observations),
        n_reflections=leaf.n_reflections,
        n_visible_reflections=len(seen.reflections),
        raw_tokens=leaf.chain_tokens,
        pool_tokens=leaf.active_tokens,
        pool_target_tokens=limits.observations_pool_target_tokens,
        pool_max_tokens=limits.observations_pool_max_tokens,
        runtime=runtime,
    )


def recall_at(
    session: Session,
    leaf: LeafHead,
    memory_id: str,
    secrets: Sequence[str] = (),
    shared: SharedMemory | None = None,
) -> Recalled:
    """Return what a memory id names on this leaf, with its sources; O(sources).

    A source that was ``corrected`` stays readable; what is revoked or deleted shows ids only.
    """
    if not is_memory_id(memory_id):
        return recall((), memory_id)
    name = name_of(session, leaf, memory_id)
    reflection = reflection_row(session, leaf, name)
    reflected = () if reflection is None else (reflection.item,)
    # What the leaf knows of the supports of a shared reflection counts before what others say.
    others = () if shared is None else shared.reflections
    resting = (*reflected, *(item for item in others if item.id == memory_id))
    found: list[Observation] = []
    dropped: list[str] = []
    supports = (one for item in resting for one in item.supporting_observation_ids)
    for support in dict.fromkeys((memory_id, *supports)):
        support_name = name_of(session, leaf, support)
        row = observation_row(session, leaf, support_name)
        if row is not None:
            found.append(row.item)
        if support_name.dropped:
            dropped.append(support)
    sources = dict.fromkeys(source for item in found for source in item.source_entry_ids)
    return recall_of(
        Ledger(observations=tuple(found), reflections=reflected, dropped_ids=tuple(dropped)),
        entries_on(session, leaf, sources),
        memory_id,
        secrets,
        _withheld(session),
        shared,
    )


def page_at(
    session: Session,
    leaf: LeafHead,
    cursor: JsonValue,
    limit: JsonValue | UnsetType = UNSET,
    direction: JsonValue = None,
    detail: JsonValue = None,
    secrets: Sequence[str] = (),
) -> Page | NoPage:
    """Return raw messages of the leaf from a cursor; O(page)."""
    asked = trim(cursor) if isinstance(cursor, str) else ""
    place = session.place_of(asked) if asked else None
    around: list[Entry] = []
    if place is not None and is_on(leaf.lineage, place.anchor_segment, place.anchor_ordinal):
        hidden = _withheld(session)
        if place.place == "chain":
            older = chain_backwards(session, leaf.lineage, place.ordinal)
            newer = chain(session, leaf.lineage, place.ordinal)
            around = _eligible(older, MAX_LIMIT + 1, hidden)[::-1]
            around += _eligible(newer, MAX_LIMIT + 1, hidden)
        entry = session.entry(asked)
        if entry is not None and entry.id not in hidden and not is_eligible(entry):
            around.append(entry)
    return page(around, cursor, limit, direction, detail, secrets)


def entries_on(session: Session, leaf: LeafHead, ids: Iterable[str]) -> list[Entry]:
    """Return the entries of this view among ``ids``, in that order; others are off-branch."""
    found: list[Entry] = []
    for entry_id in ids:
        place = session.place_of(entry_id)
        if place is None or not is_on(leaf.lineage, place.anchor_segment, place.anchor_ordinal):
            continue
        row = session.row_at(place)
        if row is not None:
            found.append(decode(row.value))
    return found


def _withheld(session: Session) -> frozenset[str]:
    """Return the invalidated ids whose content nobody may read any more."""
    return frozenset(
        name for row in session.invalidations() if row.reason != "corrected" for name in row.ids
    )


def _eligible(
    rows: Iterable[tuple[int, EntryRow]], limit: int, hidden: frozenset[str]
) -> list[Entry]:
    found: list[Entry] = []
    for _, row in rows:
        entry = decode(row.value)
        if is_eligible(entry) and entry.id not in hidden:
            found.append(entry)
            if len(found) == limit:
                break
    return found
