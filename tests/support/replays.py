"""What a replay must keep, and entries to replay."""

from ombus_schemas.codec import encode, key_of
from ombus_schemas.entries import Entry, Message
from ombus_schemas.headers import headers_of
from ombus_streams.engine.created import LOG_KEY
from ombus_streams.runtime.ports import Draft, EntryLog


def entry_draft(session: str, number: int) -> Draft:
    """Return the ``number``th message of a session."""
    entry = Entry(
        id=f"{session}-{number}",
        session_id=session,
        tenant_id="t",
        parent_id=f"{session}-{number - 1}" if number else None,
        timestamp="2026-01-01T00:00:00Z",
        kind="message",
        message=Message(
            role="user", content=[{"type": "text", "text": f"message {number} of {session}"}]
        ),
    )
    return Draft(key=key_of(entry), value=encode(entry), headers=headers_of(entry))


def by_key(log: EntryLog) -> dict[bytes | None, list[tuple[bytes | None, int]]]:
    """Return value and append time of every record, in order, by its key."""
    found: dict[bytes | None, list[tuple[bytes | None, int]]] = {}
    for partition in range(log.partitions):
        for record in log.read(partition, 0, 1_000_000):
            if record.key != LOG_KEY:
                found.setdefault(record.key, []).append((record.value, record.at_ms))
    return found


def values_by_key(log: EntryLog) -> dict[bytes | None, list[bytes | None]]:
    """Return the values alone."""
    return {key: [value for value, _ in records] for key, records in by_key(log).items()}
