"""One partition of ``ombus.supervision.events`` folded into rows, a transaction for each batch.

A record that is no event of ours is passed over and counted: the topic is written by us alone, and
nothing on it is memory. Rows, position and what has ended since go in one transaction.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import structlog
from ombus_schemas.codec import decode_record
from ombus_schemas.entries import Entry
from ombus_schemas.errors import BadRecord
from ombus_schemas.ids import SYSTEM_TENANT

from ombus_streams.memory.rows import Overlay
from ombus_streams.runtime.errors import LogContradicts
from ombus_streams.runtime.ports import EntryLog, LogRecord, PositionRow, StateStore
from ombus_streams.supervision.handle import Handle, Ignored
from ombus_streams.supervision.parent import (
    FOLD_VERSION,
    Parent,
    fold,
    handle_of,
    parent_of,
)

MAX_BATCH: Final = 500

_log = structlog.get_logger("ombus.supervision")


class Ended(msgspec.Struct, frozen=True):
    """A delegation that is over, to be told to the host."""

    key: bytes
    delegation_id: str


class DelegationFold:
    """See the module. ``tells``: keep what has ended for a hook, until ``told``.

    ``history_ms``: rows that begin anew keep only what has ended since; the rest was told before.
    """

    def __init__(
        self,
        store: StateStore,
        log: EntryLog,
        partition: int,
        *,
        tells: bool = False,
        history_ms: int = 0,
    ) -> None:
        self.store, self.partition = store, partition
        self._log, self._tells = log, tells
        self._rows = Overlay(store)
        self._position = self._start()
        self._tells_from_ms = 0 if self._position else history_ms
        self.n_bad = 0
        self.ignored: dict[Ignored, int] = {}

    @property
    def next_offset(self) -> int:
        """The first offset that is not folded yet."""
        return self._position.next_offset if self._position else 0

    @property
    def rows(self) -> StateStore:
        """The rows as they were committed."""
        return self.store

    def step(self, max_records: int = MAX_BATCH) -> frozenset[bytes]:
        """Fold one batch and return the parents it was about; empty at the end of the log.

        Raises:
            StalePosition: another owner has moved the store; nothing was written.
        """
        records = self._log.read(self.partition, self.next_offset, max_records)
        if not records:
            return frozenset()
        touched: dict[bytes, None] = {}
        ended: list[bytes] = []
        ignored = dict(self.ignored)
        n_bad = self.n_bad
        try:
            for record in records:
                entry = _decoded(record)
                if entry is None:
                    n_bad += record.offset > 0
                    continue
                assert record.key is not None
                touched[record.key] = None
                for delegation in self._fold_one(entry, record, ignored):
                    ended.append(_encode(Ended(record.key, delegation)))
            position = self._after(records[-1])
            self.store.commit(self._rows.changes, self._position, position, ended)
        finally:
            self._rows.clear()
        self._position, self.ignored, self.n_bad = position, ignored, n_bad
        # A batch of nothing but the log's own record has been a step, too.
        return frozenset(touched) or frozenset({b""})

    def parent(self, key: bytes) -> tuple[Parent, dict[str, Handle]]:
        """Return a parent and its delegations that are not over."""
        parent = parent_of(self.store, key)
        handles = {each: handle_of(self.store, key, each) for each in parent.open_ids}
        return parent, {each: handle for each, handle in handles.items() if handle is not None}

    def untold(self, limit: int) -> Sequence[tuple[int, Ended]]:
        """Return the oldest ends that the host was not told."""
        return [(number, _decode(value)) for number, value in self.store.outbox(limit)]

    def told(self, up_to: int) -> None:
        self.store.sent(up_to)

    def _fold_one(
        self, entry: Entry, record: LogRecord, ignored: dict[Ignored, int]
    ) -> Iterator[str]:
        assert record.key is not None
        before = frozenset(parent_of(self._rows, record.key).open_ids)
        why = fold(self._rows, entry, record.at_ms)
        if why is not None:
            ignored[why] = ignored.get(why, 0) + 1
        if self._tells and record.at_ms >= self._tells_from_ms:
            yield from before.difference(parent_of(self._rows, record.key).open_ids)

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
            LogContradicts: the store belongs to another log, another fold or a longer log.
        """
        row, partition, log = self.store.position(), self.partition, self._log
        if row is None:
            return None
        if row.incarnation != log.incarnation or row.fold_version != FOLD_VERSION:
            fact = f"the delegations' state is of log {row.incarnation}, fold {row.fold_version}"
            raise LogContradicts(partition, fact, "delete its folder: it is folded anew")
        last = log.read(partition, row.next_offset - 1, 1)
        if not last or _hash(last[0]) != row.last_hash:
            self.store.wipe()
            return None
        return row


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Ended).decode


def _decoded(record: LogRecord) -> Entry | None:
    try:
        entry = decode_record(record.key, record.value)
    except BadRecord as error:
        _log.warning(
            "event.unreadable",
            partition=record.partition,
            offset=record.offset,
            reason=error.reason,
        )
        return None
    return None if entry.tenant_id == SYSTEM_TENANT else entry


def _hash(record: LogRecord) -> str:
    digest = hashlib.sha256()
    for part in (record.key, record.value):
        digest.update(b"-" if part is None else b"%d:" % len(part) + part)
    return digest.hexdigest()[:32]
