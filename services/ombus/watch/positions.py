"""How far each followed file is on the log: rows of a small database in the data folder.

A position moves only after the append of everything before it was acknowledged. So whoever is
killed reads some rows again, whose ids the log has. Losing the database costs a backfill, nothing
else.
"""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
from ombus_streams.runtime.folders import make_private

from ombus.importers.detect import FormatName

FILE: Final = "watch.db"
_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS files(device INTEGER, inode INTEGER, origin TEXT, body BLOB,"
    " PRIMARY KEY(device, inode)) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS files_by_origin ON files(origin)",
    "CREATE TABLE IF NOT EXISTS roots(path TEXT PRIMARY KEY) WITHOUT ROWID",
)
_BUSY_S: Final = 10.0


class FileId(msgspec.Struct, frozen=True):
    """A file, whatever it is called."""

    device: int
    inode: int


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """What must be known to go on with a file."""

    path: str
    origin: str
    """Where it was found first: a rotated file keeps its sessions under its new name."""
    format: FormatName | None = None
    session: str | None = None
    """The file's first session, once it is known."""
    is_whole: bool = False
    """The file is a document: it is read again as a whole whenever it changed."""
    offset: int = 0
    """The first byte that is not on the log; of a document its size."""
    line: int = 1
    """The number of the line that begins there; counts on over truncations."""
    changed_ns: int = 0
    """Of a document: its time of change when it was read."""
    fingerprint: bytes = b""
    """Of what stands before ``offset``: other bytes there mean another content."""
    first: bytes = b""
    """Of the first line: a file that begins like before was written anew."""
    start: int = 0
    """Rows before this byte were there before anybody watched and are left out."""
    generation: int = 0
    """How many contents of the path came before this one."""
    base: int = 0
    """Lines of the contents before this one."""
    above: str | None = None
    """The entry that the first row hangs on."""
    tip: str | None = None
    """The last entry of the first session."""


class Positions:
    """The database under a data folder, created there if there is none."""

    def __init__(self, folder: Path) -> None:
        make_private(folder)
        self._connection = sqlite3.connect(folder / FILE, timeout=_BUSY_S, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        for statement in _TABLES:
            self._connection.execute(statement)

    def get(self, file: FileId) -> Position | None:
        row = self._connection.execute(
            "SELECT body FROM files WHERE device = ? AND inode = ?", (file.device, file.inode)
        ).fetchone()
        return None if row is None else msgspec.msgpack.decode(row[0], type=Position)

    def put(self, file: FileId, position: Position) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)",
            (file.device, file.inode, position.origin, msgspec.msgpack.encode(position)),
        )

    def forget(self, file: FileId) -> None:
        self._connection.execute(
            "DELETE FROM files WHERE device = ? AND inode = ?", (file.device, file.inode)
        )

    def of_origin(self, origin: str) -> list[tuple[FileId, Position]]:
        """Return the files that were found at a path."""
        rows = self._connection.execute(
            "SELECT device, inode, body FROM files WHERE origin = ?", (origin,)
        ).fetchall()
        return [(FileId(row[0], row[1]), _decode(row[2])) for row in rows]

    def all(self) -> list[tuple[FileId, Position]]:
        rows = self._connection.execute("SELECT device, inode, body FROM files").fetchall()
        return [(FileId(row[0], row[1]), _decode(row[2])) for row in rows]

    def knows_root(self, path: Path) -> bool:
        """Say whether a folder was watched before."""
        found = self._connection.execute("SELECT 1 FROM roots WHERE path = ?", (str(path),))
        return found.fetchone() is not None

    def add_roots(self, paths: Iterable[Path]) -> None:
        self._connection.executemany(
            "INSERT OR IGNORE INTO roots VALUES (?)", [(str(path),) for path in paths]
        )

    def close(self) -> None:
        self._connection.close()


def _decode(body: bytes) -> Position:
    return msgspec.msgpack.decode(body, type=Position)
