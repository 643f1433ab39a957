"""The log of the embedded engine: one SQLite file, the only source of truth.

Virtual partitions stand where Kafka has real ones, and the same hash fills them, so a processor
sees the same order on both engines. Appends are on the disk when they return (``synchronous``
FULL) and share transactions (``group``). Other processes may append to the same file, and read
it, at the same time: offsets and times are taken inside the write transaction.

Never open ``log.db`` with ``open()`` in a process that has it open here: closing that handle
drops SQLite's locks (POSIX record locks belong to the process).
"""

import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from sqlite3 import Connection
from typing import Final

from ombus_streams.engine.created import LOG_KEY, created
from ombus_streams.engine.embedded.database import (
    BUSY_TIMEOUT,
    Readers,
    connect,
    make_durable,
    transaction,
)
from ombus_streams.engine.embedded.errors import OtherLog, StorageCorrupt
from ombus_streams.engine.embedded.group import GroupCommit
from ombus_streams.engine.embedded.packed import PackedHeaders, pack
from ombus_streams.engine.partitioner import partition_of
from ombus_streams.runtime.folders import make_private
from ombus_streams.runtime.ports import Clock, Draft, LogRecord, Position
from ombus_streams.runtime.tracing import UNTRACED, Tracer

PARTITIONS: Final = 8
"""Virtual partitions of a new log: as many as a development topic has (design.md section 13)."""
POLL_INTERVAL: Final = timedelta(milliseconds=50)
"""How soon a waiting reader notices what another process appended."""

_FORMAT: Final = 1
_PAGE: Final = 512
"""Records fetched at once while walking one key; no read transaction stays open in between."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

_TABLES: Final = (
    "CREATE TABLE log(format INTEGER NOT NULL, incarnation TEXT NOT NULL, cluster TEXT NOT NULL,"
    " topic TEXT NOT NULL, partitions INTEGER NOT NULL)",
    "CREATE TABLE records(partition INTEGER NOT NULL, offset INTEGER NOT NULL, key BLOB,"
    " value BLOB, headers BLOB, at_ms INTEGER NOT NULL, PRIMARY KEY(partition, offset))"
    " WITHOUT ROWID",
    "CREATE INDEX records_by_key ON records(key, partition, offset)",
)
_EXISTS: Final = "SELECT 1 FROM sqlite_master WHERE name = 'log'"
_INSERT: Final = "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)"
_LAST: Final = "SELECT offset, at_ms FROM records WHERE partition = ? ORDER BY offset DESC LIMIT 1"
_FIRST: Final = "SELECT min(offset) FROM records WHERE partition = ?"
_FIELDS: Final = "SELECT partition, offset, key, value, headers, at_ms FROM records"
_READ: Final = f"{_FIELDS} WHERE partition = ? AND offset >= ? ORDER BY offset LIMIT ?"
_OF_KEY: Final = (
    f"{_FIELDS} WHERE key = ? AND partition = ? AND offset >= ? AND offset < ?"
    " ORDER BY offset LIMIT ?"
)


class SqliteLog:
    """The log in ``folder/log.db``, created there if there is none.

    ``partitions`` is fixed for ever when the log is created; ``None`` takes what is there.

    Raises:
        OtherLog: the file was created with another partition count, cluster or topic.
        StorageError: the file cannot be opened, is damaged, or is no log.
    """

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        *,
        partitions: int | None = None,
        cluster: str = "embedded",
        topic: str = "ombus.session.entries",
        busy_timeout: timedelta = BUSY_TIMEOUT,
        poll_interval: timedelta = POLL_INTERVAL,
        tracer: Tracer = UNTRACED,
    ) -> None:
        make_private(folder)
        self.path = folder / "log.db"
        self._clock, self._poll_interval, self._tracer = clock, poll_interval, tracer
        self._writer = connect(self.path, "FULL", busy_timeout)
        try:
            self._incarnation, self._partitions = self._open(partitions, cluster, topic)
        except BaseException:
            self._writer.close()
            raise
        self._readers = Readers(self.path, "FULL", busy_timeout)
        self._group: GroupCommit[Sequence[Draft], tuple[Position, ...]] = GroupCommit(
            str(self.path), self._write, len
        )
        self._grown = threading.Condition()
        self._n_commits = 0
        self._closed = False

    @property
    def incarnation(self) -> str:
        return self._incarnation

    @property
    def partitions(self) -> int:
        return self._partitions

    @property
    def n_commits(self) -> int:
        """Transactions this handle has written: fewer than appends when callers shared them."""
        return self._n_commits

    @property
    def n_pending(self) -> int:
        """Appends that were taken in and are not answered yet."""
        return self._group.n_pending

    def partition_of(self, key: bytes) -> int:
        return partition_of(key, self._partitions)

    def append(self, drafts: Sequence[Draft]) -> tuple[Position, ...]:
        """Append all drafts or none, and return their positions; durable once this returns.

        May be called from many threads. A failure leaves nothing behind, but a caller that is
        killed here cannot know: it appends again, and the first entry with an id wins.

        Raises:
            StorageBusy, StorageFull: try again later.
            StorageError: see its way out.
            Closed: after ``close``.
        """
        if not drafts:
            return ()
        with self._tracer.appending(drafts) as traced:
            return self._group.submit(traced)

    def read(self, partition: int, offset: int, max_records: int) -> list[LogRecord]:
        with self._readers.lend() as connection:
            rows = connection.execute(_READ, (partition, offset, max_records)).fetchall()
        return [_record(*row) for row in rows]

    def start(self, partition: int) -> int:
        with self._readers.lend() as connection:
            (first,) = connection.execute(_FIRST, (partition,)).fetchone()
        return int(first or 0)

    def end(self, partition: int) -> int:
        with self._readers.lend() as connection:
            return _last(connection, partition)[0] + 1

    def of_key(self, key: bytes, before: int | None = None) -> Iterator[LogRecord]:
        """Yield the key's records in order; those appended after the first step are left out."""
        partition = self.partition_of(key)
        end = self.end(partition)
        stop = end if before is None else min(before, end)
        offset = 0
        while True:
            with self._readers.lend() as connection:
                found = connection.execute(_OF_KEY, (key, partition, offset, stop, _PAGE))
                rows = found.fetchall()
            for row in rows:
                yield _record(*row)
            if len(rows) < _PAGE:
                return
            offset = rows[-1][1] + 1

    def wait(self, ends: Mapping[int, int], timeout: timedelta) -> bool:
        """Say whether a partition has grown past the end named for it, waiting until one has.

        Appends of this process wake the caller at once, those of another within the poll
        interval. Returns ``False`` after ``timeout``, and when the log is closed meanwhile.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        with self._readers.lend() as connection:
            while not self._closed:
                seen, version = self._n_commits, _data_version(connection)
                if any(_last(connection, each)[0] >= end for each, end in ends.items()):
                    return True
                if not self._wait_for_change(connection, seen, version, deadline):
                    break
        return False

    def close(self) -> None:
        """Finish the appends that were taken in, wake who waits, close the file. Idempotent."""
        self._group.close()
        with self._grown:
            self._closed = True
            self._grown.notify_all()
        self._readers.close()
        self._writer.close()

    def _open(self, partitions: int | None, cluster: str, topic: str) -> tuple[str, int]:
        with transaction(self._writer, self.path):
            # Under the write lock: of two processes that start at once, one creates.
            if self._writer.execute(_EXISTS).fetchone() is None:
                self._create(partitions or PARTITIONS, cluster, topic)
            row = self._writer.execute(
                "SELECT format, incarnation, cluster, topic, partitions FROM log"
            ).fetchone()
            opened = self._writer.execute(
                "SELECT count(*) FROM records WHERE offset = 0 AND key = ?", (LOG_KEY,)
            ).fetchone()
        found = (row[0], row[2], row[3], row[4])
        asked = (_FORMAT, cluster, topic, partitions or row[4])
        if found != asked:
            fact = "is format {} of {}/{} with {} partitions".format(*found)
            way_out = "open it as that, or replay it into a new log"
            raise OtherLog(self.path, fact, way_out)
        if opened[0] != row[4]:
            fact = f"{row[4] - opened[0]} of {row[4]} partitions have lost their first record"
            raise StorageCorrupt(self.path, fact, "restore the log from its copy")
        return row[1], row[4]

    def _create(self, partitions: int, cluster: str, topic: str) -> None:
        incarnation = secrets.token_hex(8)
        for statement in _TABLES:
            self._writer.execute(statement)
        self._writer.execute(
            "INSERT INTO log VALUES (?, ?, ?, ?, ?)",
            (_FORMAT, incarnation, cluster, topic, partitions),
        )
        now = self._clock.now()
        for partition in range(partitions):
            value = created(incarnation, cluster, topic, partition, now)
            self._writer.execute(_INSERT, (partition, 0, LOG_KEY, value, None, _ms(now)))
        make_durable(self.path.parent)

    def _write(self, batches: Sequence[Sequence[Draft]]) -> list[tuple[Position, ...]]:
        rows: list[tuple[int, int, bytes, bytes, bytes | None, int]] = []
        answers: list[tuple[Position, ...]] = []
        lasts: dict[int, tuple[int, int]] = {}
        with transaction(self._writer, self.path):
            now_ms = _ms(self._clock.now())
            for batch in batches:
                positions: list[Position] = []
                for draft in batch:
                    partition = self.partition_of(draft.key)
                    last = lasts.get(partition) or _last(self._writer, partition)
                    # What is replayed may be older than this log, so the record that opens it
                    # sets no time.
                    seen_ms = last[1] if last[0] > 0 else 0
                    at_ms = max(seen_ms, now_ms if draft.at_ms is None else draft.at_ms)
                    offset = last[0] + 1
                    lasts[partition] = (offset, at_ms)
                    headers = pack(draft.headers)
                    rows.append((partition, offset, draft.key, draft.value, headers, at_ms))
                    positions.append(Position(self._incarnation, partition, offset))
                answers.append(tuple(positions))
            self._writer.executemany(_INSERT, rows)
        with self._grown:
            self._n_commits += 1
            self._grown.notify_all()
        return answers

    def _wait_for_change(
        self, connection: Connection, seen: int, version: int, deadline: float
    ) -> bool:
        """Return once something was committed anywhere, ``False`` at the deadline."""
        while (left := deadline - time.monotonic()) > 0:
            pause = min(left, self._poll_interval.total_seconds())
            with self._grown:
                here = self._grown.wait_for(
                    lambda: self._closed or self._n_commits != seen, timeout=pause
                )
            if here or _data_version(connection) != version:
                return True
        return False


def _record(
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: bytes | None,
    at_ms: int,
) -> LogRecord:
    return LogRecord(
        partition=partition,
        offset=offset,
        key=key,
        value=value,
        headers=PackedHeaders(headers) if headers else (),
        at_ms=at_ms,
    )


def _last(connection: Connection, partition: int) -> tuple[int, int]:
    row: tuple[int, int] | None = connection.execute(_LAST, (partition,)).fetchone()
    return row or (-1, 0)


def _data_version(connection: Connection) -> int:
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def _ms(instant: datetime) -> int:
    return (instant - _EPOCH) // _MILLISECOND
