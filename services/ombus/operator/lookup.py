"""Which session, which leaf, as of when: what every read and every request must settle first."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
from ombus_schemas.codec import decode_record
from ombus_schemas.entries import Entry
from ombus_schemas.errors import BadRecord
from ombus_schemas.ids import is_key_part, session_key
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.head import TRUNK, IdRow, InvalidationRow, LeafHead
from ombus_streams.memory.items import invalidate
from ombus_streams.memory.rows import MemoryRows, Overlay
from ombus_streams.memory.session import Session
from ombus_streams.memory.tree import fold, leaf_at
from ombus_streams.runtime.ports import Position

from ombus.operator.desk import Desk
from ombus.operator.errors import (
    BadPosition,
    ManySessions,
    NoLeaf,
    NoSession,
    PositionGone,
)

INVALIDATED: Final = "om.sources.invalidated"
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


class Lens(msgspec.Struct, frozen=True):
    """A leaf of a session as of one instant; folding more into it stores nothing."""

    session: Session
    leaf: LeafHead
    position: Position
    """The first position that is not in it: ``--as-of`` takes it back."""


def chosen_session(desk: Desk, name: str | None) -> bytes:
    """Return the key of the session called ``name`` (or ``tenant/name``), or of the only one.

    Raises:
        NoSession, ManySessions: as they say.
    """
    keys = desk.engine.sessions()
    if name is None:
        if len(keys) > 1:
            raise ManySessions(tuple(key.decode() for key in keys))
        if not keys:
            raise NoSession(None)
        return keys[0]
    key = key_named(desk, name)
    if key not in keys:
        own = "" if "/" in name else f"{desk.settings.tenant}/"
        raise NoSession(name, [each.decode().removeprefix(own) for each in keys])
    return key


def key_named(desk: Desk, name: str) -> bytes:
    """Return the key for ``session`` or ``tenant/session``, whether or not it exists.

    Raises:
        NoSession: the name keeps to no grammar.
    """
    tenant, slash, session = name.rpartition("/")
    tenant = tenant if slash else desk.settings.tenant
    if not is_key_part(tenant) or not is_key_part(session):
        raise NoSession(name)
    return session_key(tenant, session)


@contextmanager
def looking(
    desk: Desk, key: bytes, leaf_id: str | None = None, as_of: str | None = None
) -> Iterator[Lens]:
    """Lend a leaf of the session, the default one unless ``leaf_id`` names an entry.

    ``as_of`` is a position: the entries below it are folded afresh, then everything that has been
    invalidated since is taken out (design.md section 8).

    Raises:
        NoLeaf, BadPosition, PositionGone: as they say.
    """
    with desk.engine.reading(key) as live:
        session, position = live.session, live.position
        if as_of is not None:
            position = _position(desk, key, as_of)
            session = _session_at(desk, live.session, position)
        yield Lens(session, leaf_of(session, leaf_id), position)


def _position(desk: Desk, key: bytes, text: str) -> Position:
    log = desk.engine.log
    parts = text.rsplit(":", 2)
    if len(parts) != 3 or not all(_NUMBER.fullmatch(each) for each in parts[1:]):
        raise BadPosition(text, "is no <incarnation>:<partition>:<offset>")
    incarnation, partition, offset = parts[0], int(parts[1]), int(parts[2])
    if incarnation != log.incarnation:
        raise PositionGone(text, log.incarnation)
    own = log.partition_of(key)
    if partition != own:
        raise BadPosition(text, f"is of partition {partition}, the session lies in {own}")
    end = log.end(partition)
    if offset > end:
        raise BadPosition(text, f"lies past the end of the log, which is {end:,}")
    return Position(incarnation, partition, offset)


def _session_at(desk: Desk, live: Session, position: Position) -> Session:
    session = Session(live.key, Overlay(MemoryRows()))
    for record in desk.engine.log.of_key(live.key, position.offset):
        try:
            entry = decode_record(record.key, record.value)
        except BadRecord:
            continue
        if isinstance(entry.parent_id, msgspec.UnsetType) or record.value is None:
            continue
        fold(session, entry, record.value, record.at_ms)
    known = {row.id for row in session.invalidations()}
    for row in live.invalidations():
        if row.id not in known:
            invalidate(session, _invalidation(session, row))
    return session


def _invalidation(session: Session, row: InvalidationRow) -> Entry:
    body: JsonObject = {"type": INVALIDATED, "ids": list(row.ids), "reason": row.reason}
    return Entry(id=row.id, session_id=session.session_id, kind="custom", data=body, side=True)


def leaf_of(session: Session, leaf_id: str | None) -> LeafHead:
    """Return the leaf that an entry names, the default one without; see ``looking``.

    Raises:
        NoLeaf: there is none.
    """
    name = session.key.decode()
    if leaf_id is None:
        if not session.head.default_segment:
            raise NoLeaf(name, None)
        return session.leaf(session.head.default_segment)
    place = session.place_of(leaf_id)
    if place is None or place.place not in ("chain", "side") or place.anchor_segment == TRUNK:
        raise NoLeaf(name, leaf_id)
    return leaf_at(session, IdRow("chain", place.anchor_segment, place.anchor_ordinal))
