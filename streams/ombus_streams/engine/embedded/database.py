"""SQLite files as both the log and the store use them: WAL, explicit transactions, typed errors."""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal

from ombus_streams.engine.embedded.errors import storage_error
from ombus_streams.runtime.errors import Closed

BUSY_TIMEOUT: Final = timedelta(seconds=10)
"""How long a writer waits for the writer of another process."""

Synchronous = Literal["FULL", "NORMAL"]
"""FULL: a commit is on the disk when it returns. NORMAL: a power cut may take the last commits,
never a part of one; a killed process loses nothing either way."""

_SWITCH_PAUSE_S: Final = 0.005
_STATEMENTS: Final = 64
_PAGE_BYTES: Final = 8 * 1024
"""Of a new file. A batch spreads over some hundred pages, and each costs two writes and a copy;
SQLite's 4 KiB hold no more than five entries."""
_CACHE_KIB: Final = 16 * 1024
"""What a connection may keep of the file, however many sessions are cold."""
_CHECKPOINT_PAGES: Final = 4_000
"""WAL pages before they are copied into the file. SQLite's 1,000 copies a page that many batches
touch four times as often: a third of the rows per second (measured, 1,000 rows a batch)."""


def connect(
    path: Path, synchronous: Synchronous, busy_timeout: timedelta = BUSY_TIMEOUT
) -> sqlite3.Connection:
    """Return a connection in WAL mode without implicit transactions; the file exists afterwards.

    It may be used from every thread, by one at a time.

    Raises:
        StorageError: the file cannot be opened, or is no database.
    """
    connection = None
    try:
        connection = sqlite3.connect(
            path,
            timeout=busy_timeout.total_seconds(),
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_STATEMENTS,
        )
        connection.execute(f"PRAGMA page_size={_PAGE_BYTES}")
        _switch_to_wal(connection, time.monotonic() + busy_timeout.total_seconds())
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        raise storage_error(path, error) from error
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Run the body in one write transaction: all of it is kept, or nothing.

    The write lock is taken first, so whatever the body reads cannot change before it writes.

    Raises:
        StorageError: SQLite refused a statement or the commit; nothing was written.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            # A full disk has rolled back by itself already.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    except sqlite3.Error as error:
        raise storage_error(path, error) from error


def make_durable(folder: Path) -> None:
    """Sync the directory, so that the names in it outlive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Readers:
    """Connections that only read, lent to one thread at a time and kept for the next."""

    def __init__(
        self, path: Path, synchronous: Synchronous, busy_timeout: timedelta = BUSY_TIMEOUT
    ) -> None:
        self._path, self._busy_timeout = path, busy_timeout
        self._synchronous: Synchronous = synchronous
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection; SQLite's errors of the body come out typed.

        Raises:
            Closed: after ``close``.
        """
        with self._lock:
            if self._closed:
                raise Closed(str(self._path))
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = connect(self._path, self._synchronous, self._busy_timeout)
            connection.execute("PRAGMA query_only=ON")
        try:
            yield connection
        except sqlite3.Error as error:
            raise storage_error(self._path, error) from error
        finally:
            self._take_back(connection)

    def close(self) -> None:
        """Close what is idle now, and what is lent when it comes back. Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()


def _switch_to_wal(connection: sqlite3.Connection, deadline: float) -> None:
    # Two processes that switch at once do not wait for each other: SQLite answers busy at once
    # where waiting could be a deadlock.
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() >= deadline:
                raise
        time.sleep(_SWITCH_PAUSE_S)
