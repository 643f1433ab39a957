"""Entries whose parent has not arrived: kept in arrival order, found by whom they wait for.

What becomes of them is the tree's to say: attached, or given up (design.md section 4).
"""

from ombus_schemas.entries import Entry

from ombus_streams.memory import keys
from ombus_streams.memory.head import TRUNK, IdRow, ParkedRow
from ombus_streams.memory.session import Session


def park(session: Session, entry: Entry, value: bytes, at_ms: int) -> None:
    """Keep an entry that names an unknown parent."""
    head, prefix = session.head, session.prefix
    arrival, parent = head.arrivals, entry.parent or ""
    session.write(keys.parked(prefix, arrival), ParkedRow(parent, at_ms, value))
    session.write(keys.entry_id(prefix, entry.id), IdRow("parked", TRUNK, arrival))
    session.rows.put(keys.waiting(prefix, parent, arrival), b"")
    head.n_parked += 1
    head.oldest_parked = head.oldest_parked or arrival


def unpark(session: Session, arrival: int) -> ParkedRow:
    """Take back the entry that was parked at ``arrival``."""
    head, prefix = session.head, session.prefix
    row = session.read(keys.parked(prefix, arrival), ParkedRow)
    assert row is not None
    session.rows.delete(keys.parked(prefix, arrival))
    session.rows.delete(keys.waiting(prefix, row.parent, arrival))
    head.n_parked -= 1
    if arrival == head.oldest_parked:
        left = next(iter(session.rows.scan(keys.all_parked(prefix))), None)
        head.oldest_parked = 0 if left is None else keys.number_at_end(left[0])
    return row


def waiting_for(session: Session, entry_id: str) -> list[int]:
    """Return the arrivals that wait for an entry, in order."""
    rows = session.rows.scan(keys.waiting(session.prefix, entry_id))
    return [keys.number_at_end(key) for key, _ in rows]
