"""A session's rows with their heads decoded: what a fold reads and changes between two commits.

Nothing here decides. A session is opened over any rows (a store's, a snapshot's, a scratch map);
once ``duties.save`` has put the changed heads back, the rows alone are the session.
"""

import sys
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec
from ombus_schemas.codec import decode
from ombus_schemas.entries import Entry
from ombus_schemas.settings import MemorySettings

from ombus_streams.memory import keys
from ombus_streams.memory.errors import RowUnreadable
from ombus_streams.memory.head import (
    NEVER,
    TRUNK,
    AcceptedRow,
    EntryRow,
    IdRow,
    InvalidationRow,
    LeafHead,
    NameRow,
    ObservationRow,
    ParkedRow,
    ReflectionRow,
    ScopeRow,
    SessionHead,
)
from ombus_streams.memory.rows import Overlay
from ombus_streams.memory.scopes import ScopeMap

RowType = TypeVar("RowType")

_encode: Final = msgspec.msgpack.Encoder().encode
_DECODERS: Final[dict[type, msgspec.msgpack.Decoder[Any]]] = {
    row: msgspec.msgpack.Decoder(row)
    for row in (
        AcceptedRow, EntryRow, IdRow, InvalidationRow, LeafHead, NameRow, ObservationRow,
        ParkedRow, ReflectionRow, ScopeRow, SessionHead,
    )
}  # fmt: skip


class Session:
    """One session over ``rows``. ``key`` is its record key, ``tenant/session``."""

    def __init__(self, key: bytes, rows: Overlay) -> None:
        self.key = key
        self.tenant_id, _, self.session_id = key.decode().partition("/")
        self.prefix = keys.session_prefix(key)
        self.rows = rows
        stored = self.read(keys.head(self.prefix), SessionHead)
        self.is_new = stored is None
        self.head = stored or SessionHead()
        self.leaves: dict[int, LeafHead] = {}
        self.scope_maps: dict[int, ScopeMap] = {}
        self.settings_by_leaf: dict[int, MemorySettings] = {}
        self.emissions: list[Entry] = []
        """What other sessions are to be told of: copies, and invalidations of copies."""
        self._invalid_from: dict[str, int] | None = None
        self._changed: set[int] = set()
        self._head_changed = False

    def read(self, key: bytes, kind: type[RowType]) -> RowType | None:
        """Return the decoded row, or ``None``."""
        value = self.rows.get(key)
        if value is None:
            return None
        return _decoded(key, value, kind)

    def scan(
        self, prefix: bytes, kind: type[RowType], start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, RowType]]:
        """Yield decoded rows under ``prefix``, in key order or backwards."""
        decode_row = _DECODERS[kind].decode
        for key, value in self.rows.scan(prefix, start, reverse):
            try:
                row: RowType = decode_row(value)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise RowUnreadable(*keys.described(key)) from error
            yield key, row

    def write(self, key: bytes, row: object) -> None:
        try:
            value = _encode(row)
        except OverflowError:
            value = _encode(_narrowed(msgspec.to_builtins(row, builtin_types=(bytes,))))
        self.rows.put(key, value)

    def leaf(self, segment: int) -> LeafHead:
        """Return the head of an existing leaf."""
        found = self.leaves.get(segment)
        if found is None:
            found = self.read(keys.leaf(self.prefix, segment), LeafHead)
            assert found is not None, f"segment {segment} has no leaf head"
            self.leaves[segment] = found
        return found

    def segments(self) -> range:
        """Return the numbers of all segments but the trunk; each is one leaf, or a conflict."""
        return range(TRUNK + 1, self.head.n_segments)

    def changed(self, leaf: LeafHead) -> None:
        """Note that ``leaf`` must be saved; it may be a new one."""
        self.leaves[leaf.segment] = leaf
        self._changed.add(leaf.segment)

    def head_changed(self) -> None:
        self._head_changed = True

    def take_changes(self) -> tuple[list[LeafHead], bool]:
        """Return the leaf heads that changed since the last call, and whether the head did."""
        leaves = [self.leaves[segment] for segment in sorted(self._changed)]
        head_changed = self._head_changed
        self._changed.clear()
        self._head_changed = False
        return leaves, head_changed

    def place_of(self, entry_id: str) -> IdRow | None:
        return self.place_at(keys.entry_id(self.prefix, entry_id))

    def place_at(self, key: bytes) -> IdRow | None:
        """Return what the row of an entry's id says."""
        value = self.rows.get(key)
        return None if value is None else _decoded(key, value, IdRow)

    def row_at(self, place: IdRow) -> EntryRow | None:
        """Return the stored entry of an attached id."""
        if place.place == "chain":
            return self.read(keys.entry(self.prefix, place.segment, place.ordinal), EntryRow)
        if place.place == "side":
            key = keys.side(self.prefix, place.segment, place.anchor_ordinal, place.ordinal)
            return self.read(key, EntryRow)
        return None

    def entry(self, entry_id: str) -> Entry | None:
        """Return an attached entry by its id."""
        place = self.place_of(entry_id)
        row = None if place is None else self.row_at(place)
        return None if row is None else decode(row.value)

    def invalidations(self, after: int = 0) -> Iterator[InvalidationRow]:
        """Yield the invalidations numbered above ``after``, in order."""
        if after >= self.head.n_invalidations:
            return
        start = keys.invalidation(self.prefix, after + 1)
        for _, row in self.scan(keys.invalidations(self.prefix), InvalidationRow, start):
            yield row

    def invalid_from(self) -> dict[str, int]:
        """Return the ordinal from which each invalidated id (entry or memory) is invalid."""
        if self._invalid_from is None:
            self._invalid_from = {}
            for row in self.invalidations():
                for name in row.ids:
                    self._invalid_from.setdefault(name, row.ordinal)
        return self._invalid_from

    def add_invalidation(self, row: InvalidationRow) -> None:
        """Keep one more invalidation; it is the last one from now on."""
        self.head.n_invalidations += 1
        self.head.last_invalidation = row.id
        self.write(keys.invalidation(self.prefix, self.head.n_invalidations), row)
        known = self.invalid_from()
        for name in row.ids:
            known.setdefault(name, row.ordinal)


def _decoded(key: bytes, value: bytes, kind: type[RowType]) -> RowType:
    try:
        row: RowType = _DECODERS[kind].decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RowUnreadable(*keys.described(key)) from error
    return row


def chain(
    session: Session, lineage: list[tuple[int, int]], after: int = 0, up_to: int = NEVER
) -> Iterator[tuple[int, EntryRow]]:
    """Yield (ordinal, row) of the chain entries after ordinal ``after``, in parent order."""
    for segment, cutoff in lineage:
        last = min(cutoff, up_to)
        if segment == TRUNK or last <= after:
            continue
        start = keys.entry(session.prefix, segment, after + 1)
        for key, row in session.scan(keys.entries(session.prefix, segment), EntryRow, start):
            ordinal = keys.number_at_end(key)
            if ordinal > last:
                break
            yield ordinal, row


def chain_backwards(
    session: Session, lineage: list[tuple[int, int]], before: int = NEVER
) -> Iterator[tuple[int, EntryRow]]:
    """Yield (ordinal, row) of the chain entries up to ordinal ``before``, newest first."""
    for segment, cutoff in reversed(lineage):
        if segment == TRUNK:
            continue
        start = keys.entry(session.prefix, segment, min(cutoff, before))
        rows = session.scan(keys.entries(session.prefix, segment), EntryRow, start, reverse=True)
        for key, row in rows:
            yield keys.number_at_end(key), row


def view(session: Session, lineage: list[tuple[int, int]]) -> Iterator[tuple[int, EntryRow]]:
    """Yield the view of a chain: its entries and the side records anchored on it, as attached."""
    sides: list[tuple[int, EntryRow]] = []
    for segment, cutoff in lineage:
        for key, row in session.scan(keys.sides(session.prefix, segment), EntryRow):
            if row.anchor > cutoff:
                break
            sides.append((keys.number_at_end(key), row))
    sides.sort(key=lambda item: item[0], reverse=True)
    for ordinal, row in chain(session, lineage):
        while sides and sides[-1][0] < ordinal:
            yield sides.pop()
        yield ordinal, row
    while sides:
        yield sides.pop()


def is_on(lineage: list[tuple[int, int]], segment: int, ordinal: int) -> bool:
    """Say whether the chain holds the entry at this place."""
    return any(own == segment and ordinal <= cutoff for own, cutoff in lineage)


def _narrowed(value: object) -> object:
    """Return ``value`` with the integers no row can hold as JavaScript reads and writes them."""
    match value:
        case int() if not -(2**63) <= value < 2**64:
            return float(value) if abs(value) <= sys.float_info.max else None
        case list() | tuple():
            return [_narrowed(item) for item in value]
        case dict():
            return {key: _narrowed(item) for key, item in value.items()}
        case _:
            return value
