"""The state of one processor on the embedded engine: one SQLite file, every partition in it.

A batch is one transaction: rows, emissions and the position row, after a compare of the stored
position with the one the batch began at (design.md section 6). There is no second log of the
state that could disagree with it.

``synchronous`` is NORMAL: rows are a fold of the log, so a power cut that takes the last commits
costs a refold of their records and nothing else; WAL never keeps a part of a commit. A killed
process loses nothing at all. The log itself is FULL, hence never behind the state.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from sqlite3 import Connection, Error
from typing import Final

from ombus_streams.engine.embedded.database import (
    BUSY_TIMEOUT,
    Readers,
    connect,
    make_durable,
    transaction,
)
from ombus_streams.engine.embedded.errors import storage_error
from ombus_streams.engine.embedded.layout import TABLES, write_rows
from ombus_streams.engine.embedded.pages import Row, scan_pages
from ombus_streams.runtime.errors import Closed, StalePosition
from ombus_streams.runtime.folders import make_private
from ombus_streams.runtime.ports import PositionRow

_GET: Final = "SELECT value FROM stored WHERE partition = ? AND key = ?"
_MANY: Final = 256
"""Rows asked for by one statement."""
_GET_MANY: Final = (
    f"SELECT key, value FROM stored WHERE partition = ? AND key IN ({','.join('?' * _MANY)})"
)
_GET_OPERATIONAL: Final = "SELECT value FROM operational WHERE partition = ? AND key = ?"
_PUT_OPERATIONAL: Final = "INSERT OR REPLACE INTO operational VALUES (?, ?, ?)"
_DELETE_OPERATIONAL: Final = "DELETE FROM operational WHERE partition = ? AND key = ?"
_POSITION: Final = (
    "SELECT incarnation, next_offset, fold_version, last_hash, last_at_ms FROM position"
    " WHERE partition = ?"
)
_MOVE: Final = "INSERT OR REPLACE INTO position VALUES (?, ?, ?, ?, ?, ?)"
_EMIT: Final = "INSERT INTO outbox(partition, value) VALUES (?, ?)"
_EMISSIONS: Final = "SELECT number, value FROM outbox WHERE partition = ? ORDER BY number LIMIT ?"
_SENT: Final = "DELETE FROM outbox WHERE partition = ? AND number <= ?"


class StateFile:
    """``folder/state.db``: the partitions of one processor, over one writing connection.

    The process that folds uses ``store``; other threads, and other processes that open the same
    folder, use ``snapshot``, which sees what was committed and waits for nobody.
    """

    def __init__(self, folder: Path, busy_timeout: timedelta = BUSY_TIMEOUT) -> None:
        make_private(folder)
        self.path = folder / "state.db"
        self._connection = connect(self.path, "NORMAL", busy_timeout)
        self._lock = threading.RLock()
        self._closed = False
        with transaction(self._connection, self.path):
            for statement in TABLES:
                self._connection.execute(statement)
        make_durable(folder)
        self._readers = Readers(self.path, "NORMAL", busy_timeout)

    def store(self, partition: int) -> "SqliteStore":
        """Return a handle on one partition; close it when its assignment ends."""
        return SqliteStore(self, partition)

    def partitions(self) -> tuple[int, ...]:
        """Return the partitions that have a position row, in order."""
        with self._readers.lend() as connection:
            found = connection.execute("SELECT partition FROM position ORDER BY 1").fetchall()
        return tuple(partition for (partition,) in found)

    @contextmanager
    def snapshot(self, partition: int) -> Iterator["Snapshot"]:
        """Lend rows and position row as they stood at one instant, for a whole answer.

        A snapshot that is kept keeps the file from shrinking its WAL: answer, then leave.
        """
        with self._readers.lend() as connection:
            connection.execute("BEGIN")
            try:
                yield Snapshot(connection, partition)
            finally:
                connection.execute("ROLLBACK")

    @contextmanager
    def write(self, store: "SqliteStore") -> Iterator[Connection]:
        """Lend the writing connection inside a transaction, to one thread at a time."""
        with self._lock:
            # Asked under the lock: a commit that waited for it may have lost its assignment.
            self._check(store)
            with transaction(self._connection, self.path):
                yield self._connection

    def read(self, store: "SqliteStore", query: str, *values: object) -> list[Row]:
        """Return what the writing connection sees, which between two commits is all there is."""
        with self._lock:
            self._check(store)
            try:
                return self._connection.execute(query, values).fetchall()
            except Error as error:
                raise storage_error(self.path, error) from error

    def _check(self, store: "SqliteStore") -> None:
        if self._closed or store.is_closed:
            raise Closed(f"partition {store.partition} of {self.path}")

    def close(self) -> None:
        """Close the file; every handle on it is closed with it. Idempotent."""
        with self._lock:
            self._closed = True
            self._connection.close()
        self._readers.close()


class Snapshot:
    """Rows and position row of one partition at one instant."""

    def __init__(self, connection: Connection, partition: int) -> None:
        self._connection, self._partition = connection, partition
        # SQLite fixes the instant with the first statement that reads.
        self._position = _position(partition, self._fetch(_POSITION, partition))

    def get(self, key: bytes) -> bytes | None:
        found = self._fetch(_GET, self._partition, key)
        return found[0][0] if found else None

    def scan(
        self, prefix: bytes, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return scan_pages(self._fetch, self._partition, prefix, start, reverse)

    def position(self) -> PositionRow | None:
        return self._position

    def get_operational(self, key: bytes) -> bytes | None:
        found = self._fetch(_GET_OPERATIONAL, self._partition, key)
        return found[0][0] if found else None

    def _fetch(self, query: str, *values: object) -> list[Row]:
        return self._connection.execute(query, values).fetchall()


class SqliteStore:
    """One partition of a ``StateFile``. A closed handle refuses everything: its owner is old."""

    def __init__(self, file: StateFile, partition: int) -> None:
        self._file = file
        self.partition = partition
        self.is_closed = False

    def get(self, key: bytes) -> bytes | None:
        found = self._file.read(self, _GET, self.partition, key)
        return found[0][0] if found else None

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for start in range(0, len(keys), _MANY):
            asked = [*map(bytearray, keys[start : start + _MANY])]  # see ``write_rows``
            asked += asked[-1:] * (_MANY - len(asked))
            found.update(self._file.read(self, _GET_MANY, self.partition, *asked))
        return found

    def scan(
        self, prefix: bytes, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows in key order. Rows that a commit changes meanwhile may come old or new."""
        return scan_pages(self._fetch, self.partition, prefix, start, reverse)

    def position(self) -> PositionRow | None:
        return _position(self.partition, self._fetch(_POSITION, self.partition))

    def commit(
        self,
        rows: Mapping[bytes, bytes | None],
        expected: PositionRow | None,
        position: PositionRow,
        outbox: Sequence[bytes] = (),
    ) -> None:
        """Write the batch in one transaction, or nothing of it.

        Raises:
            StalePosition: the stored position is not ``expected``.
            StorageError: the file refused; the stored position is still ``expected``.
            Closed: the handle's assignment is over.
        """
        partition = self.partition
        with self._file.write(self) as connection:
            found = connection.execute(_POSITION, (partition,)).fetchall()
            stored = _position(partition, found)
            if stored != expected:
                raise StalePosition(partition, expected, stored)
            write_rows(connection, partition, rows)
            connection.executemany(_EMIT, [(partition, value) for value in outbox])
            connection.execute(
                _MOVE,
                (
                    partition,
                    position.incarnation,
                    position.next_offset,
                    position.fold_version,
                    position.last_hash,
                    position.last_at_ms,
                ),
            )

    def get_operational(self, key: bytes) -> bytes | None:
        found = self._file.read(self, _GET_OPERATIONAL, self.partition, key)
        return found[0][0] if found else None

    def put_operational(self, key: bytes, value: bytes | None) -> None:
        with self._file.write(self) as connection:
            if value is None:
                connection.execute(_DELETE_OPERATIONAL, (self.partition, key))
            else:
                connection.execute(_PUT_OPERATIONAL, (self.partition, key, value))

    def outbox(self, limit: int) -> list[tuple[int, bytes]]:
        found = self._file.read(self, _EMISSIONS, self.partition, limit)
        return [(number, value) for number, value in found]

    def sent(self, up_to: int) -> None:
        with self._file.write(self) as connection:
            connection.execute(_SENT, (self.partition, up_to))

    def wipe(self) -> None:
        """Delete the rows and the position row.

        Emissions and operational rows stay: no fold brings an attempt back, and a refold below
        the old position may be one that emits nothing (design.md section 6).
        """
        with self._file.write(self) as connection:
            connection.execute("DELETE FROM rows WHERE partition = ?", (self.partition,))
            connection.execute("DELETE FROM position WHERE partition = ?", (self.partition,))

    def close(self) -> None:
        """Close this handle; the file serves its other partitions on. Idempotent."""
        self.is_closed = True

    def _fetch(self, query: str, *values: object) -> list[Row]:
        return self._file.read(self, query, *values)


def _position(partition: int, found: list[Row]) -> PositionRow | None:
    if not found:
        return None
    incarnation, next_offset, fold_version, last_hash, last_at_ms = found[0]
    return PositionRow(
        incarnation=incarnation,
        partition=partition,
        next_offset=next_offset,
        fold_version=fold_version,
        last_hash=last_hash,
        last_at_ms=last_at_ms,
    )
