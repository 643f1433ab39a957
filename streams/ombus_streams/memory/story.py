"""What became of one memory on one leaf: who recorded it, and all that happened to it since.

The view is folded once more, entry by entry, so every verdict is the fold's own, never a guess.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET
from ombus_schemas.entries import Entry
from ombus_schemas.ids import observation_ref, reflection_ref
from ombus_schemas.records import (
    FoldedMemory,
    ObservationsDropped,
    ObservationsRecorded,
    ProducedBy,
    ReflectionsRecorded,
    compaction_of,
    folded_of,
    record_of,
)

from ombus_streams.memory import acceptance
from ombus_streams.memory.head import InvalidationRow, ItemState, LeafHead
from ombus_streams.memory.items import ACTIVE, name_of, observation_row, reflection_row
from ombus_streams.memory.leaf import Item
from ombus_streams.memory.session import Session
from ombus_streams.memory.terms import scope_map_of
from ombus_streams.memory.tree import history

Happening = Literal[
    "recorded",
    "listed_again",
    "not_accepted",
    "dropped",
    "drop_not_accepted",
    "hidden",
    "carried",
    "trimmed",
    "bound",
    "invalidated",
]
"""``hidden``: a reflection whose support was dropped without ``pruned``. ``carried``: listed by a
compaction's payload. ``trimmed``: left out of it, so out of sight, but active."""


class Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One thing that happened to the memory."""

    what: Happening
    entry_id: str
    at_ms: int
    why: str | None = None
    """The verdict of a record that was not accepted, the reason of a drop or an invalidation."""
    produced_by: ProducedBy | None = None


class Story(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A memory id on one leaf."""

    id: str
    kind: Literal["observation", "reflection", "unknown"]
    state: ItemState | Literal["never_accepted", "not_found"]
    content: str | None
    """``None`` when it is invalidated or was never seen."""
    relevance: str | None
    source_ids: tuple[str, ...]
    """Entries of an observation, observations of a reflection."""
    events: tuple[Event, ...]


class _Seen(msgspec.Struct):
    kind: Literal["observation", "reflection"]
    content: str
    relevance: str | None
    source_ids: tuple[str, ...]


def story(session: Session, leaf: LeafHead, memory_id: str) -> Story:
    """Return what became of ``memory_id`` in the leaf's view; O(view), over a scratch session."""
    seen: _Seen | None = None
    events: list[Event] = []
    past = list(session.invalidations())
    for before, item in history(session, leaf):
        seen = seen or _listed(item.entry, memory_id)
        events += _events(session, before, item, memory_id)
    name = name_of(session, leaf, memory_id)
    observation = observation_row(session, leaf, name)
    reflection = reflection_row(session, leaf, name)
    held = observation or reflection
    ids = {memory_id, *(seen.source_ids if seen else ())}
    if seen is not None and seen.kind == "reflection":
        for support in seen.source_ids:
            row = observation_row(session, leaf, name_of(session, leaf, support))
            ids.update(row.item.source_entry_ids if row is not None else ())
    events += _invalidations(session, past, ids) if seen is not None else ()
    hidden = held is not None and held.state == "invalidated"
    state: ItemState | Literal["never_accepted", "not_found"] = (
        held.state if held is not None else "never_accepted" if seen else "not_found"
    )
    return Story(
        id=memory_id,
        kind=seen.kind if seen else "unknown",
        state=state,
        content=seen.content if seen and not hidden else None,
        relevance=seen.relevance if seen else None,
        source_ids=seen.source_ids if seen else (),
        events=tuple(sorted(events, key=lambda event: event.at_ms)),
    )


def _listed(entry: Entry, memory_id: str) -> _Seen | None:
    record, payload = record_of(entry), folded_of(entry)
    observations = payload.observations if payload else ()
    reflections = payload.reflections if payload else ()
    if isinstance(record, ObservationsRecorded):
        observations += record.observations
    if isinstance(record, ReflectionsRecorded):
        reflections += record.reflections
    for each in observations:
        if each.id == memory_id:
            return _Seen("observation", each.content, each.relevance, each.source_entry_ids)
    for one in reflections:
        if one.id == memory_id:
            return _Seen("reflection", one.content, None, one.supporting_observation_ids)
    return None


def _events(session: Session, leaf: LeafHead, item: Item, memory_id: str) -> Iterator[Event]:
    """Yield what the entry does to the memory, judged by the leaf as it stands before it."""
    entry = item.entry
    payload = folded_of(entry)
    if payload is not None:
        yield from _shown(session, leaf, item, payload, memory_id)
    record = record_of(entry)
    match record:
        case ObservationsRecorded() if any(each.id == memory_id for each in record.observations):
            verdict = acceptance.judge_observations(
                session, leaf, record, item.anchor, item.ordinal
            )
            known = name_of(session, leaf, memory_id).observation
            yield _recorded(item, verdict, bool(known), record.produced_by)
        case ReflectionsRecorded() if any(each.id == memory_id for each in record.reflections):
            verdict = acceptance.judge_reflections(session, leaf, record, item.ordinal)
            known = name_of(session, leaf, memory_id).reflection
            yield _recorded(item, verdict, bool(known), record.produced_by)
        case ObservationsDropped():
            verdict = acceptance.judge_drops(session, leaf, record, item.ordinal)
            if memory_id in record.observation_ids:
                accepted = verdict == "accepted"
                yield Event(
                    what="dropped" if accepted else "drop_not_accepted",
                    entry_id=entry.id,
                    at_ms=item.row.at_ms,
                    why=record.reason if accepted else verdict,
                    produced_by=record.produced_by,
                )
            elif verdict == "accepted" and record.reason != "pruned":
                row = reflection_row(session, leaf, name_of(session, leaf, memory_id))
                gone = set(record.observation_ids)
                if row is not None and gone & set(row.item.supporting_observation_ids):
                    yield Event(what="hidden", entry_id=entry.id, at_ms=item.row.at_ms)
    if entry.data_type == "om.scope.bound" and isinstance(entry.data, dict):
        refs = entry.data.get("refs")
        ours = (observation_ref(memory_id), reflection_ref(memory_id))
        scope = entry.data.get("scopeId")
        if isinstance(refs, list) and any(ref in ours for ref in refs):
            known_scope = isinstance(scope, str) and scope in scope_map_of(session, leaf).scopes
            if known_scope:
                yield Event(what="bound", entry_id=entry.id, at_ms=item.row.at_ms, why=str(scope))


def _recorded(
    item: Item, verdict: acceptance.Verdict, known: bool, produced_by: ProducedBy | None
) -> Event:
    what: Happening = "not_accepted"
    if verdict == "accepted":
        what = "listed_again" if known else "recorded"
    return Event(
        what=what,
        entry_id=item.entry.id,
        at_ms=item.row.at_ms,
        why=None if verdict == "accepted" else verdict,
        produced_by=produced_by,
    )


def _shown(
    session: Session, leaf: LeafHead, item: Item, payload: FoldedMemory, memory_id: str
) -> Iterator[Event]:
    """Yield what a payload does to the memory: an import may bring it, ours may leave it out."""
    record = compaction_of(item.entry)
    is_import = record is None or record.base is UNSET
    if record is not None:
        verdict = acceptance.judge_compaction(session, leaf, record, item.anchor, item.ordinal)
        if verdict != "accepted":
            return
    name = name_of(session, leaf, memory_id)
    row = observation_row(session, leaf, name)
    listed = {each.id for each in payload.observations}
    is_listed = memory_id in listed.union(each.id for each in payload.reflections)
    what: Happening | None = None
    if is_listed:
        is_new = row is None and not name.reflection
        what = "recorded" if is_import and is_new else "carried"
    elif is_import:
        is_active = row is not None and row.state in ACTIVE
        what = "dropped" if is_active and memory_id in payload.dropped_observation_ids else None
    elif row is not None and row.state == "visible" and record is not None:
        folded = record.folded_through.observations if record.folded_through else None
        number = folded and acceptance.accepted_number(session, leaf, "observations", folded)
        what = "trimmed" if row.record_number <= (number or 0) else None
    if what is not None:
        made = None if record is None else record.produced_by
        yield Event(what=what, entry_id=item.entry.id, at_ms=item.row.at_ms, produced_by=made)


def _invalidations(
    session: Session, rows: Sequence[InvalidationRow], ids: set[str]
) -> Iterator[Event]:
    for row in rows:
        hit = sorted(ids.intersection(row.ids))
        if hit:
            place = session.place_of(row.id)
            held = None if place is None else session.row_at(place)
            yield Event(
                what="invalidated",
                entry_id=row.id,
                at_ms=held.at_ms if held is not None else 0,
                why=f"{row.reason}: {', '.join(hit)}",
            )
