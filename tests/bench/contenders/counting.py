"""The counting fold every contender runs on the same bytes: decode, then one row a session.

It needs msgspec alone, so that a contender with packages of its own can import it too.
"""

import time
from typing import Final

import msgspec
from ombus_schemas.entries import Entry

_entries: Final = msgspec.json.Decoder(Entry)
_row: Final = msgspec.msgpack.Decoder(list[int])
_bytes: Final = msgspec.msgpack.Encoder()


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a contender is to do."""

    name: str
    bootstrap: str
    topic: str
    dead_letters: str
    partitions: int
    n_records: int
    """How many records there are in all: the first record of each partition is the log's own."""
    group: str
    folder: str


class Elapsed(msgspec.Struct, frozen=True, kw_only=True):
    """What a contender took."""

    seconds: float
    cpu_seconds: float
    """Of all threads of its process: what others of the machine do is not in it."""


class Stopwatch:
    """From the first record that is handed over to the last one that is stored."""

    def __init__(self, n_records: int) -> None:
        self.n_left = n_records
        self._start = self._end = 0.0
        self._cpu_start = self._cpu_end = 0.0

    def begin(self) -> None:
        if not self._start:
            self._start, self._cpu_start = time.perf_counter(), time.process_time()

    def done(self, n_records: int) -> bool:
        """Count records that are stored; say whether they were the last."""
        self.n_left -= n_records
        if self.n_left <= 0 and not self._end:
            self._end, self._cpu_end = time.perf_counter(), time.process_time()
        return self.n_left <= 0

    def read(self) -> Elapsed:
        return Elapsed(seconds=self._end - self._start, cpu_seconds=self._cpu_end - self._cpu_start)


def counted(value: bytes | None, stored: bytes | None) -> bytes:
    """Return a session's row after one more record: how many there were, and their bytes."""
    row = [0, 0] if stored is None else _row.decode(stored)
    if value:
        _entries.decode(value)
        row[0] += 1
        row[1] += len(value)
    return _bytes.encode(row)


def count_batch(rows: dict[bytes, list[int]], key: bytes | None, value: bytes | None) -> None:
    """Fold one record into rows that are kept decoded."""
    if key is None or not value:
        return
    _entries.decode(value)
    row = rows.get(key)
    if row is None:
        row = rows[key] = [0, 0]
    row[0] += 1
    row[1] += len(value)


def row_bytes(row: list[int]) -> bytes:
    return _bytes.encode(row)
