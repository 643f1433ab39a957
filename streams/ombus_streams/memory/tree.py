"""How entries attach: the tree of a session in a log that several append to (design.md section 4).

Each segment is one run of chain entries without a fork in it, so each segment that is not in
conflict is one leaf. ``fold`` is total: whatever is on the log has a defined outcome.
"""

import heapq
from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import UNSET
from ombus_schemas.codec import decode
from ombus_schemas.copies import copied_from
from ombus_schemas.entries import Entry

from ombus_streams.memory import funnel, keys
from ombus_streams.memory.head import (
    NEVER,
    PARKED_FOR,
    TRUNK,
    EntryRow,
    IdRow,
    LeafHead,
    ParkedRow,
)
from ombus_streams.memory.items import invalidate, invalidate_leaf
from ombus_streams.memory.leaf import Item, step
from ombus_streams.memory.parking import park, unpark, waiting_for
from ombus_streams.memory.session import Session, is_on, view
from ombus_streams.memory.tokens import entry_tokens

Outcome = Literal["attached", "parked", "duplicate", "repeated_run", "refused"]
"""What an entry came to. Refused: its id is taken by other content; a case for dead letters."""

Known = Literal["new", "same", "other"]
"""What an id is to a session: not there, there with this content, there with other content."""

_ROOT = IdRow("chain", TRUNK, 0)


def fold(
    session: Session, entry: Entry, value: bytes, at_ms: int, id_key: bytes | None = None
) -> Outcome:
    """Fold one entry, whose record's bytes are ``value``, appended at ``at_ms``.

    ``id_key`` is the key of its id's row, for whoever has asked for that row already.

    The first entry with an id wins. A later one that is equal but for parent, timestamp and what a
    gateway stamps is a duplicate; a worker's other answer to a run is a repeated run.
    """
    head = session.head
    id_key = id_key or keys.entry_id(session.prefix, entry.id)
    known = session.place_at(id_key) if head.arrivals else None
    session.head_changed()
    if known is not None:
        return _again(session, known, entry)
    head.arrivals += 1
    head.at_ms = at_ms = at_ms if at_ms > head.at_ms else head.at_ms
    if entry.data is not None:
        _fold_sources(session, entry)
    outcome: Outcome = "attached"
    leaf = session.leaves.get(head.default_segment)
    if leaf is not None and not head.n_parked and _follows(entry, leaf):
        _extend(session, leaf, entry, id_key, value, at_ms, orphan=False)
    elif (parent := _parent_of(session, entry)) is not None:
        _attach_all(session, entry, value, at_ms, parent, orphan=False)
    else:
        park(session, entry, value, at_ms)
        outcome = "parked"
    while head.oldest_parked and head.arrivals - head.oldest_parked >= PARKED_FOR:
        _give_up(session, head.oldest_parked)
    return outcome


def _fold_sources(session: Session, entry: Entry) -> None:
    """Fold what is said of sources on all branches, wherever the entry hangs."""
    match entry.data_type:
        case "om.sources.invalidated":
            row = invalidate(session, entry)
            if row is not None:
                session.emissions += funnel.follow(session, row, entry.timestamp)
        case "om.sources.linked":
            session.emissions += funnel.link(session, entry)


def known_as(session: Session, entry: Entry) -> Known:
    """Say whether the session holds the id of an entry, and with its content: fold, but ask only.

    Whoever appends at least once asks before, so that nothing is appended twice.
    """
    place = session.place_of(entry.id)
    if place is None:
        return "new"
    return "same" if _is_same(session, place, entry) else "other"


def lineage_of(session: Session, place: IdRow) -> list[tuple[int, int]]:
    """Return the chain that ends at an attached chain entry."""
    if place.segment == TRUNK:
        return [(TRUNK, NEVER)]
    above = session.leaf(place.segment).lineage[:-1]
    return [*above, (place.segment, place.ordinal)]


def leaf_at(session: Session, place: IdRow) -> LeafHead:
    """Return the memory of the view that ends at ``place``: a leaf's own, or one folded for it.

    A leaf folded for an interior entry has rows in the session's overlay: open a scratch session.
    """
    held = session.leaf(place.segment)
    if held.tip_ordinal == place.ordinal and not held.conflict:
        return held
    return _grow(session, lineage_of(session, place))


def _again(session: Session, known: IdRow, entry: Entry) -> Outcome:
    head = session.head
    if _is_same(session, known, entry):
        head.n_duplicates += 1
        return "duplicate"
    if entry.id.startswith("om:"):
        head.n_repeated_runs += 1
        return "repeated_run"
    head.n_refused += 1
    return "refused"


def _is_same(session: Session, known: IdRow, entry: Entry) -> bool:
    """Say whether the entry kept at ``known`` has the content of ``entry``."""
    if known.place in ("parked", "left_out"):
        key = keys.parked if known.place == "parked" else keys.left_out
        parked = session.read(key(session.prefix, known.ordinal), ParkedRow)
        stored = parked.value if parked else None
    else:
        row = session.row_at(known)
        stored = row.value if row else None
    return stored is None or _content(decode(stored)) == _content(entry)


def _content(entry: Entry) -> Entry:
    return msgspec.structs.replace(
        entry, parent_id=UNSET, timestamp="", origin=None, ownership=None, expected_leaf=None
    )


def _parent_of(session: Session, entry: Entry) -> IdRow | None:
    """Return where the entry hangs: a chain entry's place, the root, or ``None`` while unknown."""
    name = entry.parent
    if name is None and copied_from(entry) is not None and session.head.default_segment:
        leaf = session.leaf(session.head.default_segment)
        return IdRow("chain", leaf.segment, leaf.tip_ordinal)
    if name is None:
        return _ROOT
    default = session.leaves.get(session.head.default_segment)
    if default is not None and default.tip_id == name:
        return IdRow("chain", default.segment, default.tip_ordinal)
    place = session.place_of(name)
    match place:
        case IdRow(place="chain"):
            return place
        case IdRow(place="side"):
            return IdRow("chain", place.anchor_segment, place.anchor_ordinal)
        case _:
            return None


def _give_up(session: Session, arrival: int) -> None:
    """Make a parked entry a root for ever, or leave a side record out."""
    row = unpark(session, arrival)
    entry = decode(row.value)
    if entry.side:
        session.head.n_left_out += 1
        session.write(keys.entry_id(session.prefix, entry.id), IdRow("left_out", TRUNK, arrival))
        session.write(keys.left_out(session.prefix, arrival), row)
        return
    session.head.n_orphans += 1
    _attach_all(session, entry, row.value, row.at_ms, _ROOT, orphan=True)


def _attach_all(
    session: Session, entry: Entry, value: bytes, at_ms: int, parent: IdRow, *, orphan: bool
) -> None:
    """Attach an entry, then what waited for it: in arrival order, until nothing attaches."""
    _attach(session, entry, value, at_ms, parent, orphan=orphan)
    if not session.head.n_parked:
        return
    this_pass = waiting_for(session, entry.id)
    next_pass: list[int] = []
    while this_pass or next_pass:
        if not this_pass:
            this_pass, next_pass = next_pass, []
        arrival = heapq.heappop(this_pass)
        row = unpark(session, arrival)
        child = decode(row.value)
        place = _parent_of(session, child)
        assert place is not None
        _attach(session, child, row.value, row.at_ms, place, orphan=orphan)
        for waiting in waiting_for(session, child.id):
            heapq.heappush(this_pass if waiting > arrival else next_pass, waiting)


def _attach(
    session: Session, entry: Entry, value: bytes, at_ms: int, parent: IdRow, *, orphan: bool
) -> None:
    if not entry.side:
        leaf = _leaf_for(session, entry, parent)
        id_key = keys.entry_id(session.prefix, entry.id)
        _extend(session, leaf, entry, id_key, value, at_ms, orphan=orphan)
        return
    head, prefix = session.head, session.prefix
    ordinal = head.next_ordinal
    head.next_ordinal += 1
    place = IdRow("side", parent.segment, ordinal, parent.segment, parent.ordinal)
    row = EntryRow(parent.ordinal, entry_tokens(entry), at_ms, True, value)
    session.write(keys.side(prefix, parent.segment, parent.ordinal, ordinal), row)
    session.write(keys.entry_id(prefix, entry.id), place)
    item = Item(ordinal, row, entry)
    for segment in session.segments():
        leaf = session.leaf(segment)
        if not leaf.conflict and is_on(leaf.lineage, parent.segment, parent.ordinal):
            step(session, leaf, item)


def _follows(entry: Entry, leaf: LeafHead) -> bool:
    """Say whether an entry goes on where the leaf ends, as nearly all do, and claims nothing."""
    is_plain = not entry.side and entry.expected_leaf is None
    return is_plain and entry.parent_id == leaf.tip_id and not leaf.conflict


def _extend(
    session: Session,
    leaf: LeafHead,
    entry: Entry,
    id_key: bytes,
    value: bytes,
    at_ms: int,
    *,
    orphan: bool,
) -> None:
    """Attach a chain entry at the end of a leaf."""
    head = session.head
    ordinal = head.next_ordinal
    head.next_ordinal += 1
    row = EntryRow(ordinal, entry_tokens(entry), at_ms, False, value)
    session.write(keys.entry(session.prefix, leaf.segment, ordinal), row)
    place = IdRow("chain", leaf.segment, ordinal, leaf.segment, ordinal, leaf.conflict)
    session.write(id_key, place)
    leaf.tip_id, leaf.tip_ordinal = entry.id, ordinal
    if at_ms > leaf.at_ms:
        leaf.at_ms = at_ms
    if leaf.conflict:
        head.n_conflicts += 1
        session.changed(leaf)
        return
    step(session, leaf, Item(ordinal, row, entry))
    if not orphan:
        head.default_segment = leaf.segment


def _leaf_for(session: Session, entry: Entry, parent: IdRow) -> LeafHead:
    """Return the leaf the entry extends, or a new one that forks at ``parent``."""
    held = session.leaf(parent.segment) if parent.segment != TRUNK else None
    at_tip = held is not None and held.tip_ordinal == parent.ordinal
    in_conflict = held is not None and held.conflict
    if entry.expected_leaf is not None and not in_conflict:
        in_conflict = not (at_tip and entry.expected_leaf == entry.parent)
        at_tip = at_tip and not in_conflict
    if at_tip and held is not None:
        return held
    return _grow(session, lineage_of(session, parent), conflict=in_conflict)


def _grow(session: Session, above: list[tuple[int, int]], conflict: bool = False) -> LeafHead:
    """Return a new leaf at the end of the chain ``above``, with the memory of that view."""
    segment = session.head.n_segments
    session.head.n_segments += 1
    leaf = LeafHead(segment=segment, lineage=[*above, (segment, NEVER)], conflict=conflict)
    session.changed(leaf)
    if not conflict:
        for _ in _steps(session, leaf, above):
            pass
    return leaf


def history(session: Session, leaf: LeafHead) -> Iterator[tuple[LeafHead, Item]]:
    """Yield each entry of a view with its memory *before* the entry, in view order.

    It folds the view once more, into the session's overlay: open a scratch session.
    """
    again = LeafHead(
        segment=session.head.n_segments,
        lineage=[*leaf.lineage, (session.head.n_segments, NEVER)],
    )
    session.head.n_segments += 1
    session.changed(again)
    yield from _steps(session, again, leaf.lineage)


def _steps(
    session: Session, leaf: LeafHead, above: list[tuple[int, int]]
) -> Iterator[tuple[LeafHead, Item]]:
    """Fold the view of ``above`` into ``leaf``, yielding each entry before it is folded."""
    due = list(session.invalidations())[::-1]
    for ordinal, row in view(session, above):
        while due and due[-1].ordinal <= ordinal:
            invalidate_leaf(session, leaf, due.pop())
        entry = decode(row.value)
        if not row.side:
            leaf.tip_id, leaf.tip_ordinal = entry.id, ordinal
            leaf.at_ms = max(leaf.at_ms, row.at_ms)
        item = Item(ordinal, row, entry)
        yield leaf, item
        step(session, leaf, item)
    while due:
        invalidate_leaf(session, leaf, due.pop())
