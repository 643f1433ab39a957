"""The milestones role: child sessions of one entries partition onto the supervision events.

It folds entries into rows of its own, never the whole memory: only sessions whose id is that of a
delegation's child are looked at, the rest of the partition is passed over undecoded. Rows, position
and unsent events are one transaction; an event that is sent twice has the same id.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog
from ombus_schemas.codec import decode_record, encode, key_of
from ombus_schemas.control import SourcesInvalidated
from ombus_schemas.entries import Entry
from ombus_schemas.errors import BadRecord
from ombus_schemas.facts import fact_of
from ombus_schemas.headers import headers_of
from ombus_schemas.jsontext import JsonObject

from ombus_streams.runtime.ports import Draft, EntryLog, LogRecord, PositionRow, StateStore
from ombus_streams.supervision.events import UNSTORABLE
from ombus_streams.supervision.milestones import SESSION_SUFFIX, Telling, tell, telling_of

MILESTONES_VERSION: Final = 1
"""In the position row: rows of another version are folded anew."""
MAX_BATCH: Final = 1_000
OUTBOX_BATCH: Final = 500

_CHILD: Final = b"\0c"
_SEEN: Final = b"\0i"
_INVALID: Final = b"\0x"
_SUFFIX: Final = SESSION_SUFFIX.encode()


class _Child(msgspec.Struct, kw_only=True):
    """The row of a session: how many entries it has, and what its parent is told, if it has one."""

    n_entries: int = 0
    is_opened: bool = False
    """Its first chain entry was seen; settings may stand before it."""
    telling: Telling | None = None


class _Emission(msgspec.Struct, frozen=True):
    session: bytes
    cause: str
    event: bytes


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_child: Final = msgspec.msgpack.Decoder(_Child).decode
_decode_emission: Final = msgspec.msgpack.Decoder(_Emission).decode
_decode_event: Final = msgspec.json.Decoder(Entry).decode

_log = structlog.get_logger("ombus.milestones")


class Deriver:
    """See the module. ``store`` is this role's own; ``events`` the log of supervision events."""

    def __init__(
        self,
        store: StateStore,
        entries: EntryLog,
        events: EntryLog,
        partition: int,
        secrets: Sequence[str] = (),
    ) -> None:
        self.store, self.partition = store, partition
        self._entries, self._events = entries, events
        self._secrets = tuple(secrets)
        self._position = self._start()
        self.n_illegal = 0
        """Entries that no row or event could hold; they were passed over."""

    @property
    def next_offset(self) -> int:
        """The first offset that is not folded yet."""
        return self._position.next_offset if self._position else 0

    def step(self, max_records: int = MAX_BATCH) -> int:
        """Fold one batch, send what it said, and return how many records it had.

        Raises:
            StalePosition: another owner has moved the store; nothing was written.
        """
        self.emit()
        return self.take(self._entries.read(self.partition, self.next_offset, max_records))

    def take(self, records: Sequence[LogRecord]) -> int:
        """Fold records that begin at ``next_offset``, send what they said; return how many.

        Raises: as ``step``.
        """
        if records:
            self._fold(records)
            self.emit()
        return len(records)

    def emit(self) -> None:
        """Send the outbox in order and delete what is acknowledged.

        An event of an entry that was invalidated meanwhile keeps its place and its type alone.
        """
        while unsent := self.store.outbox(OUTBOX_BATCH):
            drafts: list[Draft] = []
            for _, value in unsent:
                emission = _decode_emission(value)
                event = _decode_event(emission.event)
                if self.store.get(_row(emission.session, _INVALID, emission.cause)) is not None:
                    event = _withheld(event)
                drafts.append(
                    Draft(key=key_of(event), value=encode(event), headers=headers_of(event))
                )
            self._events.append(drafts)
            self.store.sent(unsent[-1][0])

    def _fold(self, records: Sequence[LogRecord]) -> None:
        batch = _Batch(self.store, self._secrets)
        n_illegal = self.n_illegal
        for record in records:
            if record.key is not None and record.key.endswith(_SUFFIX):
                try:
                    entry = decode_record(record.key, record.value)
                except BadRecord:
                    continue  # The projector writes its dead letter.
                try:
                    batch.take(record.key, entry, record.at_ms)
                except UNSTORABLE as error:
                    n_illegal += 1
                    _log.warning(
                        "entry.illegal",
                        partition=self.partition,
                        offset=record.offset,
                        failure=type(error).__name__,
                    )
        last = records[-1]
        position = PositionRow(
            incarnation=self._entries.incarnation,
            partition=self.partition,
            next_offset=last.offset + 1,
            fold_version=MILESTONES_VERSION,
            last_hash=_hash(last),
            last_at_ms=last.at_ms,
        )
        self.store.commit(batch.rows, self._position, position, batch.emissions)
        self._position, self.n_illegal = position, n_illegal

    def _start(self) -> PositionRow | None:
        """Return the stored position if the log still has what it stands on, else begin anew."""
        row = self.store.position()
        if row is None:
            return None
        is_ours = (
            row.incarnation == self._entries.incarnation and row.fold_version == MILESTONES_VERSION
        )
        if is_ours and row.next_offset <= self._entries.end(self.partition):
            found = self._entries.read(self.partition, row.next_offset - 1, 1)
            if found and _hash(found[0]) == row.last_hash:
                return row
        self.store.wipe()
        return None


class _Batch:
    """Changed rows over those of the store, and what is to be sent."""

    def __init__(self, store: StateStore, secrets: Sequence[str]) -> None:
        self._store, self._secrets = store, secrets
        self.rows: dict[bytes, bytes | None] = {}
        """What is to be written."""
        self.emissions: list[bytes] = []

    def take(self, key: bytes, entry: Entry, at_ms: int) -> None:
        """Add what an entry changes and says: all of it, or nothing if this raises."""
        seen = _row(key, _SEEN, entry.id)
        if self._get(seen) is not None:
            return  # The first entry with an id wins.
        stored = self._get(key + _CHILD)
        child = _decode_child(stored) if stored is not None else _Child()
        rows = {seen: b""}
        child.n_entries += 1
        if not child.is_opened and not entry.side:
            child.is_opened = True
            child.telling = telling_of(entry)
        fact = fact_of(entry)
        if isinstance(fact, SourcesInvalidated):
            rows |= {_row(key, _INVALID, each): b"" for each in fact.ids}
        invalid = _row(key, _INVALID, entry.id)
        told: list[Entry] = []
        if child.telling is not None and invalid not in rows and self._get(invalid) is None:
            told = tell(child.telling, entry, child.n_entries, at_ms, self._secrets)
        emissions = [_encode(_Emission(key, entry.id, encode(event))) for event in told]
        rows[key + _CHILD] = _encode(child)
        self.rows |= rows
        self.emissions += emissions

    def _get(self, row: bytes) -> bytes | None:
        return self.rows[row] if row in self.rows else self._store.get(row)


def _withheld(event: Entry) -> Entry:
    """Return an event without what its entry said."""
    data = event.data
    assert isinstance(data, dict)
    said = data.get("childEvent")
    if not isinstance(said, dict):
        return event
    kept: JsonObject = {"type": said.get("type"), "withheld": True}
    return msgspec.structs.replace(event, data={**data, "childEvent": kept})


def _row(key: bytes, family: bytes, entry_id: str) -> bytes:
    return key + family + entry_id.encode("utf-8", "surrogatepass")


def _hash(record: LogRecord) -> str:
    return hashlib.sha256(b"%d:" % record.offset + (record.value or b"")).hexdigest()[:32]
