"""Taking sources out of every memory of a session, and the record of what went (section 10, S20).

The invalidation is the fact; it holds on every leaf once it is folded. The drops behind it say for
audit, and to readers that know no invalidations, which observations each leaf has lost.
"""

from collections.abc import Sequence
from typing import Final

from ombus_schemas.admission import admit
from ombus_schemas.api import InvalidationAnswer, InvalidationRow
from ombus_schemas.control import InvalidationReason, reason_of
from ombus_schemas.entries import SCHEMA_VERSION, Entry
from ombus_schemas.ids import hash_parts
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.records import OBSERVATIONS_DROPPED
from ombus_streams.memory import keys
from ombus_streams.memory.head import LeafHead
from ombus_streams.memory.items import name_of, observations
from ombus_streams.memory.ledger import blocks_observation
from ombus_streams.memory.session import Session
from ombus_streams.runtime.ports import Position
from ombus_streams.runtime.records import iso

from ombus.operator.control import control_entry, open_session
from ombus.operator.desk import Desk
from ombus.operator.errors import NoLeaf
from ombus.operator.lookup import INVALIDATED

MAX_IDS: Final = 1_000
"""Ids of one invalidation."""
_DIGITS: Final = 24


def body_of(ids: Sequence[str], reason: InvalidationReason, *, hold: bool) -> JsonObject:
    """Return what ``om.sources.invalidated`` says."""
    body: JsonObject = {"type": INVALIDATED, "ids": list(ids), "reason": reason}
    return {**body, "hold": True} if hold else body


def invalidate(
    desk: Desk, key: bytes, ids: Sequence[str], reason: InvalidationReason, *, hold: bool = False
) -> InvalidationAnswer:
    """Take the sources or memories out of every leaf; no read shows them once this returns.

    Raises:
        NoLeaf: the session has none. Unanswered: whoever folds did not get on.
    """
    partition = desk.engine.log.partition_of(key)
    desk.catch_up([partition])
    tip = open_session(desk, key)
    if tip is None:
        raise NoLeaf(key.decode(), None)
    entry = control_entry(desk, key, tip, body_of(ids, reason, hold=hold))
    (position,) = desk.append([entry])
    desk.catch_up([partition])
    found = settle(desk, key, entry.id, position)
    desk.catch_up()
    return found


def settle(desk: Desk, key: bytes, invalidation_id: str, position: Position) -> InvalidationAnswer:
    """Append the drops behind an invalidation that is folded, and say what it came to.

    Asked again, it appends the same drops again, and they fold to nothing.
    """
    with desk.engine.reading(key) as live:
        session = live.session
        row = next((row for row in session.invalidations() if row.id == invalidation_id), None)
        ids = frozenset(row.ids if row is not None else ())
        leaves = [session.leaf(segment) for segment in session.segments()]
        drops = [
            drop
            for leaf in leaves
            if not leaf.conflict and (drop := _drop(desk, session, leaf, invalidation_id, ids))
        ]
        unknown = tuple(sorted(name for name in ids if not _is_known(session, leaves, name)))
        copies = tuple(sorted({name for each in ids for name in _copies_of(session, each)}))
        hidden = {
            row.item.id
            for leaf in leaves
            for row in observations(session, leaf, "invalidated")
            if blocks_observation(ids, row.item)
        }
    desk.append(drops)
    return InvalidationAnswer(
        session=key.decode().partition("/")[2],
        id=invalidation_id,
        position=str(position),
        hidden=len(hidden),
        unknown=unknown,
        followed_in=copies,
    )


def invalidations_of(session: Session) -> tuple[InvalidationRow, ...]:
    """Return what was invalidated, in the order in which it holds."""
    return tuple(
        InvalidationRow(id=row.id, reason=reason_of(row.reason), ids=row.ids, hold=row.hold)
        for row in session.invalidations()
    )


def _drop(
    desk: Desk, session: Session, leaf: LeafHead, invalidation_id: str, ids: frozenset[str]
) -> Entry | None:
    """Return the drop handler's record for a leaf: what was active and is hit, in ledger order."""
    gone = [
        row.item.id
        for row in observations(session, leaf, "invalidated")
        if blocks_observation(ids, row.item) and not name_of(session, leaf, row.item.id).dropped
    ]
    if not gone:
        return None
    body: JsonObject = {
        "type": OBSERVATIONS_DROPPED,
        "observationIds": list(gone),
        "cause": invalidation_id,
    }
    return admit(
        Entry(
            id=f"dropped:{hash_parts(invalidation_id, leaf.tip_id)[:_DIGITS]}",
            session_id=session.session_id,
            tenant_id=session.tenant_id,
            parent_id=leaf.tip_id,
            timestamp=iso(desk.clock.now()),
            kind="custom",
            schema_version=SCHEMA_VERSION,
            data=body,
            origin="worker",
            side=True,
        ),
        desk.policy("worker"),
    )


def _is_known(session: Session, leaves: Sequence[LeafHead], name: str) -> bool:
    if session.place_of(name) is not None:
        return True
    found = (name_of(session, leaf, name) for leaf in leaves)
    return any(each.observation or each.reflection for each in found)


def _copies_of(session: Session, name: str) -> list[str]:
    """Return the sessions that hold a copy of an entry."""
    prefix = keys.link(session.prefix, name)
    return [key[len(prefix) :].decode() for key, _ in session.rows.scan(prefix)]
