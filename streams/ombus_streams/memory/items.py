"""The ledger of one leaf as rows: observations and reflections, what drops and invalidations do.

The rules are S6 and S8 with design.md section 12 row 14: the first record of an id wins, a drop
is permanent, only a drop without ``reason: pruned`` or an invalidation hides what rests on it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace
from ombus_schemas.control import invalidation_of
from ombus_schemas.entries import Entry
from ombus_schemas.records import Observation, Reflection

from ombus_streams.memory import keys
from ombus_streams.memory.head import (
    InvalidationRow,
    ItemRow,
    ItemState,
    LeafHead,
    NameRow,
    ObservationRow,
    ReflectionRow,
)
from ombus_streams.memory.ledger import blocks_observation, blocks_reflection
from ombus_streams.memory.session import Session
from ombus_streams.memory.tokens import item_tokens

RowType = TypeVar("RowType", bound=ItemRow)

_OBSERVATION_FAMILY: Final[dict[ItemState, bytes]] = {
    "visible": b"o",
    "trimmed": b"t",
    "dropped": b"d",
    "invalidated": b"d",
}
_REFLECTION_FAMILY: Final[dict[ItemState, bytes]] = {
    "visible": b"r",
    "hidden": b"q",
    "invalidated": b"q",
}
ACTIVE: Final[tuple[ItemState, ...]] = ("visible", "trimmed")


def name_of(session: Session, leaf: LeafHead, memory_id: str) -> NameRow:
    """Return what the leaf knows of a memory id; all zero for an unknown one."""
    return session.read(_name_key(session, leaf, memory_id), NameRow) or NameRow()


def observations(session: Session, leaf: LeafHead, *states: ItemState) -> Iterator[ObservationRow]:
    """Yield the leaf's observations in these states, in ledger order."""
    return _rows(session, leaf, ObservationRow, _OBSERVATION_FAMILY, states)


def reflections(session: Session, leaf: LeafHead, *states: ItemState) -> Iterator[ReflectionRow]:
    """Yield the leaf's reflections in these states, in ledger order."""
    return _rows(session, leaf, ReflectionRow, _REFLECTION_FAMILY, states)


def observation_row(session: Session, leaf: LeafHead, name: NameRow) -> ObservationRow | None:
    """Return the row of the observation a name stands for, if it was recorded."""
    key = _observation_key(session, leaf, name.observation, name.observation_state)
    return session.read(key, ObservationRow) if name.observation else None


def reflection_row(session: Session, leaf: LeafHead, name: NameRow) -> ReflectionRow | None:
    """Return the row of the reflection a name stands for, if it was recorded."""
    key = _reflection_key(session, leaf, name.reflection, name.reflection_state)
    return session.read(key, ReflectionRow) if name.reflection else None


def add_observation(
    session: Session,
    leaf: LeafHead,
    observation: Observation,
    *,
    record: str,
    record_number: int,
    scope_id: str | None,
    ordinal: int,
) -> bool:
    """Record an observation at ``ordinal``; return whether the leaf did not know it.

    Listing a known one again makes it uncovered again (S7), and visible, since its record stands
    after what the last compaction folded.
    """
    name = name_of(session, leaf, observation.id)
    row = observation_row(session, leaf, name)
    if row is not None:
        if row.state in ACTIVE and row.record_number <= leaf.reflected_records < record_number:
            leaf.n_uncovered += 1
            leaf.uncovered_tokens += row.item.token_count
        key = _observation_key(session, leaf, name.observation, name.observation_state)
        session.write(key, replace(row, record_number=max(row.record_number, record_number)))
        if row.state == "trimmed" and record_number > row.record_number:
            _move_observation(session, leaf, observation.id, "visible")
        return False
    state: ItemState = "dropped" if name.dropped else "visible"
    if _is_invalid(session, observation.id, observation.source_entry_ids, ordinal):
        state = "invalidated"
        leaf.n_invalidated += 1
    leaf.n_observations += 1
    number = leaf.n_observations
    session.write(
        _observation_key(session, leaf, number, state),
        ObservationRow(state, record, record_number, scope_id, observation),
    )
    session.write(
        _name_key(session, leaf, observation.id),
        replace(name, observation=number, observation_state=state),
    )
    if state == "visible":
        leaf.n_active += 1
        leaf.active_tokens += observation.token_count
        if record_number > leaf.reflected_records:
            leaf.n_uncovered += 1
            leaf.uncovered_tokens += observation.token_count
    if state == "invalidated":  # imports may bring what rests on it first
        for resting in list(reflections(session, leaf, "visible", "hidden")):
            if observation.id in resting.item.supporting_observation_ids:
                _move_reflection(session, leaf, resting.item.id, "invalidated")
    return True


def add_reflection(
    session: Session,
    leaf: LeafHead,
    reflection: Reflection,
    *,
    record: str,
    scope_id: str | None,
    ordinal: int,
) -> bool:
    """Record a reflection at ``ordinal``; return whether the leaf did not know it."""
    name = name_of(session, leaf, reflection.id)
    if name.reflection:
        return False
    supports = reflection.supporting_observation_ids
    names = [name_of(session, leaf, support) for support in supports]
    state: ItemState = "visible"
    if any(each.dropped and not each.pruned for each in (name, *names)):
        state = "hidden"
    if _is_invalid(session, reflection.id, supports, ordinal) or any(
        support.observation_state == "invalidated" for support in names
    ):
        state = "invalidated"
    leaf.n_reflections += 1
    number = leaf.n_reflections
    session.write(
        _reflection_key(session, leaf, number, state),
        ReflectionRow(state, record, leaf.n_reflection_records, scope_id, reflection),
    )
    session.write(
        _name_key(session, leaf, reflection.id),
        replace(name, reflection=number, reflection_state=state),
    )
    return True


def drop(session: Session, leaf: LeafHead, ids: tuple[str, ...], *, pruned: bool) -> int:
    """Drop observations for ever; return how many active ones went. Unknown ids count, too."""
    n_gone = 0
    hiding: set[str] = set()
    for memory_id in ids:
        name = name_of(session, leaf, memory_id)
        if not name.dropped:
            leaf.n_dropped += 1
        keeps = pruned if not name.dropped else pruned and name.pruned
        if not keeps:
            hiding.add(memory_id)
        name = replace(name, dropped=True, pruned=keeps)
        session.write(_name_key(session, leaf, memory_id), name)
        if name.observation and name.observation_state in ACTIVE:
            _move_observation(session, leaf, memory_id, "dropped")
            n_gone += 1
    if n_gone:
        _recount_fractions(session, leaf)
    if hiding:
        for row in list(reflections(session, leaf, "visible")):
            if blocks_reflection(hiding, row.item):
                _move_reflection(session, leaf, row.item.id, "hidden")
    return n_gone


def show_payload(
    session: Session, leaf: LeafHead, payload_ids: frozenset[str], folded_records: int
) -> None:
    """Make visible = the payload's observations and those of records after ``folded_records``."""
    for row in list(observations(session, leaf, *ACTIVE)):
        shown = row.item.id in payload_ids or row.record_number > folded_records
        state: ItemState = "visible" if shown else "trimmed"
        if row.state != state:
            _move_observation(session, leaf, row.item.id, state)


def recount_uncovered(session: Session, leaf: LeafHead) -> None:
    """Count the active observations that the last reflection has not read."""
    leaf.n_uncovered, leaf.uncovered_tokens = 0, 0
    for row in observations(session, leaf, *ACTIVE):
        if row.record_number > leaf.reflected_records:
            leaf.n_uncovered += 1
            leaf.uncovered_tokens += row.item.token_count


def _recount_fractions(session: Session, leaf: LeafHead) -> None:
    """Add the pool up afresh where a count was a fraction: taking it off again loses the rest.

    Whole numbers, which all our workers record, never come here.
    """
    if isinstance(leaf.active_tokens, float):
        leaf.active_tokens = item_tokens(row.item for row in observations(session, leaf, *ACTIVE))
        recount_uncovered(session, leaf)


def invalidate(session: Session, entry: Entry) -> InvalidationRow | None:
    """Apply ``om.sources.invalidated`` to every leaf, at once, wherever it hangs (section 10)."""
    said = invalidation_of(entry.data) if isinstance(entry.data, dict) else None
    if said is None or not said.ids:
        return None
    row = InvalidationRow(
        ordinal=session.head.next_ordinal,
        id=entry.id,
        reason=said.reason,
        ids=said.ids,
        hold=said.hold,
    )
    session.add_invalidation(row)
    for segment in session.segments():
        leaf = session.leaf(segment)
        if not leaf.conflict:
            invalidate_leaf(session, leaf, row)
    return row


def invalidate_leaf(session: Session, leaf: LeafHead, row: InvalidationRow) -> None:
    """Take what the ids name, and what rests on it, out of one leaf's memory."""
    ids = set(row.ids)
    blocked = set(ids)
    states: tuple[ItemState, ...] = ("visible", "trimmed", "dropped")
    for held in list(observations(session, leaf, *states)):
        if blocks_observation(ids, held.item):
            blocked.add(held.item.id)
            _move_observation(session, leaf, held.item.id, "invalidated")
            leaf.n_invalidated += 1
    _recount_fractions(session, leaf)
    for resting in list(reflections(session, leaf, "visible", "hidden")):
        if blocks_reflection(blocked, resting.item):
            _move_reflection(session, leaf, resting.item.id, "invalidated")
    session.changed(leaf)


def _rows(
    session: Session,
    leaf: LeafHead,
    kind: type[RowType],
    family_by_state: Mapping[ItemState, bytes],
    states: Sequence[ItemState],
) -> Iterator[RowType]:
    families = dict.fromkeys(family_by_state[state] for state in states)
    rows: list[tuple[bytes, RowType]] = []
    for family in families:
        prefix = keys.of_leaf(session.prefix, family, leaf.segment)
        rows += session.scan(prefix, kind)
    if len(families) > 1:
        rows.sort(key=lambda item: item[0][-8:])
    for _, row in rows:
        if row.state in states:
            yield row


def _is_invalid(session: Session, item_id: str, ids: tuple[str, ...], ordinal: int) -> bool:
    if not session.head.n_invalidations:
        return False
    known = session.invalid_from()
    return any(known.get(name, ordinal + 1) <= ordinal for name in (item_id, *ids))


def _move_observation(session: Session, leaf: LeafHead, memory_id: str, state: ItemState) -> None:
    name = name_of(session, leaf, memory_id)
    row = observation_row(session, leaf, name)
    assert row is not None
    session.rows.delete(_observation_key(session, leaf, name.observation, name.observation_state))
    session.write(
        _observation_key(session, leaf, name.observation, state), replace(row, state=state)
    )
    session.write(_name_key(session, leaf, memory_id), replace(name, observation_state=state))
    change = (state in ACTIVE) - (row.state in ACTIVE)
    leaf.n_active += change
    leaf.active_tokens += change * row.item.token_count
    if row.record_number > leaf.reflected_records:
        leaf.n_uncovered += change
        leaf.uncovered_tokens += change * row.item.token_count


def _move_reflection(session: Session, leaf: LeafHead, memory_id: str, state: ItemState) -> None:
    name = name_of(session, leaf, memory_id)
    row = reflection_row(session, leaf, name)
    assert row is not None
    session.rows.delete(_reflection_key(session, leaf, name.reflection, name.reflection_state))
    session.write(_reflection_key(session, leaf, name.reflection, state), replace(row, state=state))
    session.write(_name_key(session, leaf, memory_id), replace(name, reflection_state=state))


def _name_key(session: Session, leaf: LeafHead, memory_id: str) -> bytes:
    return keys.named(session.prefix, b"k", leaf.segment, memory_id)


def _observation_key(session: Session, leaf: LeafHead, number: int, state: ItemState) -> bytes:
    return keys.item(session.prefix, _OBSERVATION_FAMILY[state], leaf.segment, number)


def _reflection_key(session: Session, leaf: LeafHead, number: int, state: ItemState) -> bytes:
    return keys.item(session.prefix, _REFLECTION_FAMILY[state], leaf.segment, number)
