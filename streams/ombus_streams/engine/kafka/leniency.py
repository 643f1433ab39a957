"""Reading batches that the client library gives up on: header names that are no UTF-8.

aiokafka decodes header names strictly. One record whose producer did not (a C client takes any
bytes) then stops its partition for ever, for every consumer. Here the batch is read again, and
such a name comes back with its stray bytes as ``\\xff``, so that the record can be judged like any
other. Source: Kafka's protocol guide, record batch version 2.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, Protocol

import msgspec
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords, _MemoryRecordsPy

STRAY_BYTES: Final = "backslashreplace"
_LOG_APPEND_TIME: Final = 1


def tolerate_header_names() -> None:
    """Let every consumer of this process read such records. Idempotent.

    It replaces the class by which aiokafka's fetcher unpacks what a broker sent; a test says that
    the name is still there.
    """
    fetcher.MemoryRecords = LenientRecords


class Record(msgspec.Struct, frozen=True):
    """What aiokafka's own records have."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    checksum: None = None


class LenientRecords:
    """What a broker sent of a partition, batch by batch."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._inner: Any = MemoryRecords(data)
        self._n_batches = 0

    def has_next(self) -> bool:
        return bool(self._inner.has_next())

    def size_in_bytes(self) -> int:
        return int(self._inner.size_in_bytes())

    def next_batch(self) -> "LenientBatch | None":
        batch = self._inner.next_batch()
        if batch is None:
            return None
        number = self._n_batches
        self._n_batches += 1
        return LenientBatch(batch, lambda: _batch(self._data, number))


class LenientBatch:
    """A batch that is read once more, by our own reader, where the library's gives up."""

    def __init__(self, inner: Any, again: Callable[[], "_Batch"]) -> None:
        self._inner, self._again = inner, again

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __next__(self) -> Any:
        return next(self._inner)

    def __iter__(self) -> Iterator[Any]:
        n_read = 0
        try:
            for record in self._inner:
                yield record
                n_read += 1
            return
        except UnicodeDecodeError:
            pass
        except CorruptRecordException as error:
            # How the library's pure reader, which is there without its extension, says the same.
            if not isinstance(error.__cause__, UnicodeDecodeError):
                raise
        yield from islice(_records(self._again()), n_read, None)


class _Batch(Protocol):
    """What is used of the library's pure batch."""

    base_offset: int
    first_timestamp: int
    max_timestamp: int
    timestamp_type: int
    _num_records: int
    _buffer: bytearray
    _pos: int

    def _maybe_uncompress(self) -> None: ...


def _batch(data: bytes, number: int) -> _Batch:
    records = _MemoryRecordsPy(data)
    for _ in range(number):
        records.next_batch()
    start = records._next_slice
    found: _Batch = _DefaultRecordBatchPy(start)
    return found


def _records(batch: _Batch) -> Iterator[Record]:
    batch._maybe_uncompress()
    reader = _Reader(bytes(batch._buffer), batch._pos)
    for _ in range(batch._num_records):
        reader.varint()  # length
        reader.at += 1  # attributes
        timestamp = batch.first_timestamp + reader.varint()
        if batch.timestamp_type == _LOG_APPEND_TIME:
            timestamp = batch.max_timestamp
        offset = batch.base_offset + reader.varint()
        key, value = reader.bytes(), reader.bytes()
        headers = [
            ((reader.bytes() or b"").decode("utf-8", STRAY_BYTES), reader.bytes())
            for _ in range(reader.varint())
        ]
        yield Record(offset, timestamp, batch.timestamp_type, key, value, headers)


class _Reader:
    """Takes fields off a buffer."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def varint(self) -> int:
        """Return the next zigzag-encoded integer."""
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def bytes(self) -> "bytes | None":
        """Return the next byte string, ``None`` if it is null."""
        length = self.varint()
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length : self.at]
