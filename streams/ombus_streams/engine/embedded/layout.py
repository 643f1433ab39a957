"""How rows lie in a state file, and how a batch of them is written.

Rows are clustered by key, and a batch puts them in a hundred places. So a long value, which is
written once and rarely read, is appended to ``bodies``, and its row holds the number: pages that
change are few, and small. The view ``stored`` has rows and bodies as one.
"""

from collections.abc import Mapping
from sqlite3 import Connection
from typing import Final

INLINE: Final = 512
"""Bytes of a value that lies in its row; a longer one is a body. Items, which are scanned, fit."""
TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS rows(partition INTEGER NOT NULL, key BLOB NOT NULL,"
    " value BLOB NOT NULL, PRIMARY KEY(partition, key)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS bodies(number INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    "CREATE VIEW IF NOT EXISTS stored(partition, key, value) AS SELECT partition, key,"
    " CASE typeof(value) WHEN 'integer' THEN (SELECT body FROM bodies WHERE number = value)"
    " ELSE value END FROM rows",
    "CREATE TRIGGER IF NOT EXISTS body_replaced AFTER UPDATE ON rows"
    " WHEN typeof(old.value) = 'integer'"
    " BEGIN DELETE FROM bodies WHERE number = old.value; END",
    "CREATE TRIGGER IF NOT EXISTS body_deleted AFTER DELETE ON rows"
    " WHEN typeof(old.value) = 'integer'"
    " BEGIN DELETE FROM bodies WHERE number = old.value; END",
    "CREATE TABLE IF NOT EXISTS position(partition INTEGER PRIMARY KEY, incarnation TEXT NOT NULL,"
    " next_offset INTEGER NOT NULL, fold_version INTEGER NOT NULL, last_hash TEXT NOT NULL,"
    " last_at_ms INTEGER NOT NULL)",
    # AUTOINCREMENT: a number is never given twice, so a late `sent` cannot hit a newer emission.
    "CREATE TABLE IF NOT EXISTS outbox(number INTEGER PRIMARY KEY AUTOINCREMENT,"
    " partition INTEGER NOT NULL, value BLOB NOT NULL)",
    "CREATE INDEX IF NOT EXISTS outbox_by_partition ON outbox(partition, number)",
    "CREATE TABLE IF NOT EXISTS operational(partition INTEGER NOT NULL, key BLOB NOT NULL,"
    " value BLOB NOT NULL, PRIMARY KEY(partition, key)) WITHOUT ROWID",
)
_TOGETHER: Final = 64
"""Rows that one statement writes: a step of SQLite's machine for each costs a fifth more."""
_REPLACE: Final = " ON CONFLICT(partition, key) DO UPDATE SET value = excluded.value"
_PUT: Final = f"INSERT INTO rows VALUES (?, ?, ?){_REPLACE}"
_PUT_MANY: Final = f"INSERT INTO rows VALUES {','.join(['(?, ?, ?)'] * _TOGETHER)}{_REPLACE}"
_LAST_BODY: Final = "SELECT coalesce(max(number), 0) FROM bodies"
_PUT_BODY: Final = "INSERT INTO bodies VALUES (?, ?)"
_PUT_BODIES: Final = f"INSERT INTO bodies VALUES {','.join(['(?, ?)'] * _TOGETHER)}"
_DELETE: Final = "DELETE FROM rows WHERE partition = ? AND key = ?"


def write_rows(connection: Connection, partition: int, rows: Mapping[bytes, bytes | None]) -> None:
    """Put and delete (``None``) rows of one partition, inside the caller's transaction.

    The driver looks for an adapter of each ``bytes`` it is handed, four times as long as it takes
    to bind one; a ``bytearray`` it takes as it is.
    """
    ((number,),) = connection.execute(_LAST_BODY).fetchall()
    puts: list[int | bytearray] = []
    bodies: list[int | bytearray] = []
    deletes: list[tuple[int, bytes]] = []
    for key in sorted(rows):
        value = rows[key]
        if value is None:
            deletes.append((partition, key))
        elif len(value) > INLINE:
            number += 1
            bodies += (number, bytearray(value))
            puts += (partition, bytearray(key), number)
        else:
            puts += (partition, bytearray(key), bytearray(value))
    _insert(connection, bodies, 2, _PUT_BODY, _PUT_BODIES)
    _insert(connection, puts, 3, _PUT, _PUT_MANY)
    connection.executemany(_DELETE, deletes)


def _insert(
    connection: Connection, values: list[int | bytearray], width: int, one: str, many: str
) -> None:
    """Insert rows of ``width`` values, which come one after the other."""
    step = width * _TOGETHER
    whole = len(values) - len(values) % step
    for start in range(0, whole, step):
        connection.execute(many, values[start : start + step])
    for start in range(whole, len(values), width):
        connection.execute(one, values[start : start + width])
