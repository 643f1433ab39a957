"""A session as a tree in which memory stands where it holds: in every branch behind its anchor.

Elsewhere there are no side records. So each one is put right behind the entry it is anchored at,
before what follows there, and every branch that has the entry has the record.
"""

import heapq
from collections.abc import Iterator

import msgspec
from ombus_schemas.codec import decode
from ombus_schemas.entries import Entry
from ombus_schemas.records import OBSERVATIONS_DROPPED, OBSERVATIONS_RECORDED, REFLECTIONS_RECORDED
from ombus_streams.memory import keys
from ombus_streams.memory.head import TRUNK, AcceptedRow, EntryRow
from ombus_streams.memory.session import Session

RECORDS = frozenset({OBSERVATIONS_RECORDED, REFLECTIONS_RECORDED, OBSERVATIONS_DROPPED})


class Knot(msgspec.Struct, frozen=True):
    """An entry and the one before it in every branch it is in."""

    entry: Entry
    before_id: str | None
    tokens: int
    """Estimated, of the entry alone."""
    is_accepted: bool
    """Of a record of a worker: whether it counts in any branch."""


def knots(session: Session) -> Iterator[Knot]:
    """Yield the entries in the order they attached, side records behind their anchors.

    Those on the losing side of ``expectedLeaf`` are left out.
    """
    heads = [session.leaf(segment) for segment in session.segments()]
    losing = {head.segment for head in heads if head.conflict}
    above = {head.segment: head.lineage[-2] for head in heads if len(head.lineage) > 1}
    forks = {place for place in above.values()}
    tails: dict[tuple[int, int], str | None] = {(TRUNK, 0): None}
    before: dict[int, str | None] = {}
    start: str | None = None
    for entry in _sides(session, TRUNK, None):
        yield Knot(entry, start, 0, _is_accepted(session, entry))
        start = entry.id
    for ordinal, segment, row in heapq.merge(
        *(_chain(session, each.segment) for each in heads if each.segment not in losing),
        key=lambda one: one[0],
    ):
        entry = decode(row.value)
        last = before.get(segment)
        if segment not in before:
            place = above.get(segment, (TRUNK, 0))
            last = start if place[0] == TRUNK else tails.get(place)
        yield Knot(entry, last, row.tokens, _is_accepted(session, entry))
        last = entry.id
        for side in _sides(session, segment, ordinal):
            yield Knot(side, last, 0, _is_accepted(session, side))
            last = side.id
        before[segment] = last
        if (segment, ordinal) in forks:
            tails[segment, ordinal] = last


def _chain(session: Session, segment: int) -> Iterator[tuple[int, int, EntryRow]]:
    for key, row in session.scan(keys.entries(session.prefix, segment), EntryRow):
        yield keys.number_at_end(key), segment, row


def _sides(session: Session, segment: int, anchor: int | None) -> Iterator[Entry]:
    """Yield the side records of an anchor, of all anchors of the trunk for ``None``."""
    prefix = keys.sides(session.prefix, segment)
    start = None if anchor is None else keys.side(session.prefix, segment, anchor, 0)
    for _, row in session.scan(prefix, EntryRow, start):
        if anchor is not None and row.anchor != anchor:
            return
        yield decode(row.value)


def _is_accepted(session: Session, entry: Entry) -> bool:
    data = entry.data
    is_ours = entry.kind == "compaction" or entry.data_type in RECORDS
    if not is_ours or not isinstance(data, dict) or "base" not in data:
        return True
    return any(
        session.read(keys.named(session.prefix, b"a", segment, entry.id), AcceptedRow) is not None
        for segment in session.segments()
    )
