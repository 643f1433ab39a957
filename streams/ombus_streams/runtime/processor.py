"""Folding a partition: records in, rows and the position row out, in one transaction (section 6).

The state is ``fold(log prefix)``. A processor starts from its store's position row; a batch that
fails leaves nothing behind: cached sessions are dropped and the row is read again.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import UNSET
from ombus_schemas.codec import decode_record
from ombus_schemas.entries import Entry
from ombus_schemas.errors import BadRecord
from ombus_schemas.ids import SYSTEM_TENANT
from ombus_schemas.topics import ENTRIES

from ombus_streams.memory import duties, keys
from ombus_streams.memory.head import FOLD_VERSION
from ombus_streams.memory.rows import Overlay
from ombus_streams.memory.session import Session
from ombus_streams.memory.tree import fold
from ombus_streams.runtime import emissions
from ombus_streams.runtime.dead_letters import emission
from ombus_streams.runtime.errors import LogContradicts
from ombus_streams.runtime.ports import EntryLog, LogRecord, PositionRow, StateStore

MAX_CACHED_SESSIONS = 1_000
_AT_ONCE: Final = 64
"""Records decoded at once: what they were decoded to is let go of before the collector counts it
as old."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch came to."""

    n_records: int
    n_dead_letters: int
    n_emitted: int = 0
    """Rows of the outbox, dead letters among them."""
    sessions: tuple[bytes, ...]
    """Keys of the sessions it touched, in the order they first came."""


class Processor:
    """The fold of one partition into one store.

    ``emits`` is off for replicas, verification and rebuilds: they write no dead letters and tell
    no other session of anything.
    ``secrets`` leave those that are written.
    """

    def __init__(
        self,
        store: StateStore,
        log: EntryLog,
        partition: int,
        *,
        topic: str = ENTRIES,
        max_sessions: int = MAX_CACHED_SESSIONS,
        emits: bool = True,
        secrets: Sequence[str] = (),
    ) -> None:
        self.store, self.partition = store, partition
        self._log, self._topic = log, topic
        self._max_sessions, self._emits = max(1, max_sessions), emits
        self._secrets = tuple(secrets)
        self._rows = Overlay(store)
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._position = self._start()

    @property
    def next_offset(self) -> int:
        """The first offset that is not folded yet."""
        return self._position.next_offset if self._position else 0

    @property
    def position(self) -> PositionRow | None:
        return self._position

    def lag(self) -> int:
        """Return how many records of the log are not folded yet."""
        return self._log.end(self.partition) - self.next_offset

    def step(self, max_records: int) -> Batch:
        """Fold up to ``max_records`` from the log and commit them."""
        return self.fold(self._log.read(self.partition, self.next_offset, max_records))

    def fold(self, records: Sequence[LogRecord]) -> Batch:
        """Fold ``records``, which begin at ``next_offset``, and commit them.

        Raises:
            StalePosition: another owner has moved the store; nothing was written.
        """
        if not records:
            return Batch(n_records=0, n_dead_letters=0, sessions=())
        outbox: list[bytes] = []
        touched: dict[bytes, Session] = {}
        try:
            for at in range(0, len(records), _AT_ONCE):
                self._fold_some(records[at : at + _AT_ONCE], touched, outbox)
            n_dead_letters = len(outbox)
            for session in touched.values():
                duties.save(session)
                if self._emits:
                    outbox += map(emissions.entry, session.emissions)
                session.emissions.clear()
            position = self._after(records[-1])
            self.store.commit(self._rows.changes, self._position, position, outbox)
        except BaseException:
            self.forget()
            raise
        self._rows.clear()
        self._position = position
        while len(self._sessions) > self._max_sessions:
            self._sessions.popitem(last=False)
        return Batch(
            n_records=len(records),
            n_dead_letters=n_dead_letters,
            n_emitted=len(outbox),
            sessions=tuple(touched),
        )

    def session(self, key: bytes) -> Session:
        """Return a session as it stands after the last commit. It must not be changed."""
        found = self._sessions.get(key)
        if found is None:
            found = Session(key, self._rows)
            self._sessions[key] = found
        else:
            self._sessions.move_to_end(key)
        return found

    def due_sessions(self) -> list[bytes]:
        """Return the keys of the sessions that have work for some worker."""
        prefix = keys.due_mark()
        return [key[len(prefix) :] for key, _ in self.store.scan(prefix)]

    def forget(self) -> None:
        """Drop what is cached and read the position row again."""
        self._sessions.clear()
        self._rows.clear()
        self._position = self._start()

    def _fold_some(
        self, records: Sequence[LogRecord], touched: dict[bytes, Session], outbox: list[bytes]
    ) -> None:
        decoded = [_decoded(record) for record in records]
        id_keys = iter(self._open(records, decoded, touched))
        for record, entry in zip(records, decoded, strict=True):
            if isinstance(entry, Entry):
                error = _fold_one(record, entry, next(id_keys), touched)
            else:
                error = entry
            if error is not None and self._emits:
                outbox.append(emission(record, self._topic, error, self._secrets))

    def _open(
        self,
        records: Sequence[LogRecord],
        decoded: Sequence[Entry | BadRecord | None],
        touched: dict[bytes, Session],
    ) -> Sequence[bytes]:
        """Add the sessions of these records to ``touched``, in the order they first come.

        The places of their ids are read at once: nearly all of them are new. Returns the keys of
        those places, of each entry in turn.
        """
        id_keys: list[bytes] = []
        stored: list[bytes] = []
        for record, entry in zip(records, decoded, strict=True):
            if isinstance(entry, Entry):
                assert record.key is not None
                session = touched.get(record.key)
                if session is None:
                    session = touched[record.key] = self.session(record.key)
                id_key = keys.entry_id(session.prefix, entry.id)
                id_keys.append(id_key)
                if not session.is_new:
                    stored.append(id_key)
        expected: dict[bytes, bytes | None] = dict.fromkeys(id_keys)
        if stored:
            expected.update(self.store.get_many(stored))
        self._rows.expect(expected)
        return id_keys

    def _after(self, last: LogRecord) -> PositionRow:
        return PositionRow(
            incarnation=self._log.incarnation,
            partition=self.partition,
            next_offset=last.offset + 1,
            fold_version=FOLD_VERSION,
            last_hash=_hash(last),
            last_at_ms=last.at_ms,
        )

    def _start(self) -> PositionRow | None:
        """Return the stored position if it belongs to this log; wipe a store the log was cut under.

        Raises:
            LogContradicts: the store belongs to another log or fold, or the log lacks a part.
        """
        row, partition, log = self.store.position(), self.partition, self._log
        first = log.start(partition)
        if row is None:
            if first > 0:
                raise LogContradicts(
                    partition, f"the log starts at {first:,} and nothing is stored below",
                    "restore a checkpoint that reaches it",
                )  # fmt: skip
            return None
        if row.incarnation != log.incarnation:
            raise LogContradicts(
                partition, f"the store folds log {row.incarnation}, this one is {log.incarnation}",
                "name the log it belongs to, or delete the store to fold this one",
            )  # fmt: skip
        if row.fold_version != FOLD_VERSION:
            raise LogContradicts(
                partition, f"the store is of fold {row.fold_version}, this is fold {FOLD_VERSION}",
                "rebuild: a new version is folded beside the old one",
            )  # fmt: skip
        if row.next_offset > log.end(partition):
            raise LogContradicts(
                partition, f"the store is at {row.next_offset:,}, the log ends at "
                f"{log.end(partition):,}",
                "the log has lost its end: restore it, or delete the store to fold what is left",
            )  # fmt: skip
        if row.next_offset <= first:
            raise LogContradicts(
                partition, f"the log starts at {first:,}, the store is at {row.next_offset:,}",
                "restore a checkpoint that reaches it",
            )  # fmt: skip
        last = log.read(partition, row.next_offset - 1, 1)
        if not last or _hash(last[0]) != row.last_hash or last[0].at_ms != row.last_at_ms:
            self.store.wipe()
            return None
        return row


def _fold_one(
    record: LogRecord, entry: Entry, id_key: bytes, sessions: Mapping[bytes, Session]
) -> BadRecord | None:
    assert record.key is not None
    assert record.value is not None
    session = sessions[record.key]
    if fold(session, entry, record.value, record.at_ms, id_key) == "refused":
        return BadRecord("id", "the session holds another entry with this id")
    return None


def _decoded(record: LogRecord) -> Entry | BadRecord | None:
    """Return the entry, why there is none, or ``None`` for a record of the log itself."""
    try:
        entry = decode_record(record.key, record.value)
    except BadRecord as error:
        return error
    if entry.tenant_id == SYSTEM_TENANT:
        return None
    if entry.parent_id is UNSET:
        return BadRecord("parent", "names no parent: it is an id or null on the log")
    return entry


def _hash(record: LogRecord) -> str:
    digest = hashlib.sha256()
    for part in (record.key, record.value):
        digest.update(b"-" if part is None else b"%d:" % len(part) + part)
    return digest.hexdigest()[:32]
