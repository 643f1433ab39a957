"""The state of one processor on the Kafka engine: one RocksDB a partition, one column family.

A batch is one ``WriteBatch``: rows, emissions and the position row, after a compare of the stored
position with the one the batch began at (design.md section 6). There is no changelog that could
disagree with it. Databases stay open over a rebalance; what a revocation closes is the handle.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

from rocksdict import Checkpoint, DbClosedError, Rdict, WriteBatch

from ombus_streams.engine.kafka.areas import (
    NEXT_NUMBER,
    OPERATIONAL,
    OUTBOX,
    POSITION,
    ROWS,
    ROWS_END,
    bounds,
    number_bytes,
    position_bytes,
    position_of,
)
from ombus_streams.engine.kafka.rocks import Memory
from ombus_streams.engine.kafka.snapshot import Snapshot
from ombus_streams.engine.kafka.store_errors import store_error
from ombus_streams.runtime.errors import Closed, StalePosition
from ombus_streams.runtime.folders import make_private
from ombus_streams.runtime.ports import PositionRow

_FIRST_NUMBER: Final = number_bytes(1)


class RocksState:
    """``folder``: one database for each partition of a processor that was ever assigned here.

    No other process may fold in the same folder; another one reads it with ``reading``.
    """

    def __init__(self, folder: Path, memory: Memory | None = None) -> None:
        make_private(folder)
        self.folder = folder
        self._memory = memory or Memory()
        self._open: dict[int, _Partition] = {}
        self._lock = threading.Lock()
        self._closed = False

    def path(self, partition: int) -> Path:
        return self.folder / f"{partition:05d}"

    def store(self, partition: int) -> "RocksStore":
        """Return a handle for one assignment of a partition; close it when the assignment ends."""
        return RocksStore(self._partition(partition))

    def partitions(self) -> tuple[int, ...]:
        """Return the partitions there are databases of, in order."""
        return tuple(sorted(int(each.name) for each in self.folder.iterdir() if each.is_dir()))

    def opened(self) -> frozenset[int]:
        """Return the partitions whose databases are open here."""
        with self._lock:
            return frozenset(self._open)

    @contextmanager
    def snapshot(self, partition: int) -> Iterator[Snapshot]:
        """Lend rows and position row as they stood at one instant, for a whole answer."""
        opened = self._partition(partition)
        with opened.guarded():
            view = opened.rows.iter()
        yield Snapshot(view, opened.path)

    def checkpoint(self, partition: int, folder: Path) -> PositionRow | None:
        """Copy a partition to ``folder``, which must not exist, by hard links; return its position.

        The position is that of the copy: batches may go on meanwhile.
        """
        opened = self._partition(partition)
        with opened.guarded():
            make_private(folder.parent)
            Checkpoint(opened.rows).create_checkpoint(str(folder))
            return position_of(opened.rows.get(POSITION))

    def release(self, partition: int) -> None:
        """Close the database of a partition that is assigned elsewhere now. Idempotent."""
        with self._lock:
            opened = self._open.pop(partition, None)
        if opened is not None:
            opened.close()

    def close(self) -> None:
        """Close every database; every handle is closed with it. Idempotent."""
        with self._lock:
            self._closed = True
            opened, self._open = [*self._open.values()], {}
        for each in opened:
            each.close()

    def _partition(self, partition: int) -> "_Partition":
        with self._lock:
            if self._closed:
                raise Closed(str(self.folder))
            opened = self._open.get(partition)
            if opened is None:
                path = self.path(partition)
                opened = _Partition(path, self._memory, partition)
                self._open[partition] = opened
            return opened


class _Partition:
    """An open database, and the lock under which a position is compared and moved."""

    def __init__(self, path: Path, memory: Memory, partition: int) -> None:
        self.path, self.partition = path, partition
        self.memory, self.rows = memory, memory.open(path)
        self._lock = threading.RLock()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Run the body alone on this partition, its errors typed."""
        with self._lock:
            try:
                yield
            except (Closed, StalePosition):
                raise
            except DbClosedError as error:
                raise Closed(str(self.path)) from error
            except Exception as error:
                raise store_error(self.path, error) from error

    def close(self) -> None:
        with self._lock:
            self.memory.close(self.rows)


class RocksStore:
    """One partition during one assignment. A closed handle refuses everything: its owner is old."""

    def __init__(self, partition: _Partition) -> None:
        self._on = partition
        self.partition = partition.partition
        self.is_closed = False

    def get(self, key: bytes) -> bytes | None:
        return self._get(ROWS + key)

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return those of the rows that there are."""
        self._check()
        try:
            values = self._on.rows.get([ROWS + key for key in keys]) if keys else []
        except DbClosedError as error:
            raise Closed(self._name()) from error
        except Exception as error:
            raise store_error(self._on.path, error) from error
        found = zip(keys, values or (), strict=True)
        return {key: value for key, value in found if value is not None}

    def scan(
        self, prefix: bytes, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows in key order, as they stood when the first one was asked for."""
        self._check()
        return _scan(self._on, prefix, start, reverse)

    def position(self) -> PositionRow | None:
        return position_of(self._get(POSITION))

    def commit(
        self,
        rows: Mapping[bytes, bytes | None],
        expected: PositionRow | None,
        position: PositionRow,
        outbox: Sequence[bytes] = (),
    ) -> None:
        """Write the batch in one ``WriteBatch``, or nothing of it.

        Raises:
            StalePosition: the stored position is not ``expected``.
            StoreError: the disk refused; the stored position is still ``expected``.
            Closed: the handle's assignment is over.
        """
        with self._writing():
            stored = self.position()
            if stored != expected:
                raise StalePosition(self.partition, expected, stored)
            batch = WriteBatch(raw_mode=True)
            for key, value in rows.items():
                if value is None:
                    batch.delete(ROWS + key)
                else:
                    batch.put(ROWS + key, value)
            batch.put(POSITION, position_bytes(position))
            if outbox:
                number = int.from_bytes(self._get(NEXT_NUMBER) or _FIRST_NUMBER, "big")
                for emitted in outbox:
                    batch.put(OUTBOX + number_bytes(number), emitted)
                    number += 1
                batch.put(NEXT_NUMBER, number_bytes(number))
            self._on.rows.write(batch)
            self._on.memory.relieve()

    def get_operational(self, key: bytes) -> bytes | None:
        return self._get(OPERATIONAL + key)

    def put_operational(self, key: bytes, value: bytes | None) -> None:
        with self._writing():
            if value is None:
                self._on.rows.delete(OPERATIONAL + key)
            else:
                self._on.rows.put(OPERATIONAL + key, value)

    def outbox(self, limit: int) -> list[tuple[int, bytes]]:
        self._check()
        found: list[tuple[int, bytes]] = []
        for number, value in _area(self._on, OUTBOX):
            if len(found) == limit:
                break
            found.append((int.from_bytes(number, "big"), value))
        return found

    def sent(self, up_to: int) -> None:
        batch = WriteBatch(raw_mode=True)
        with self._writing():
            for number, _ in _area(self._on, OUTBOX):
                if int.from_bytes(number, "big") > up_to:
                    break
                batch.delete(OUTBOX + number)
            self._on.rows.write(batch)

    def wipe(self) -> None:
        """Delete the rows and the position row, in one batch.

        Emissions and operational rows stay: no fold brings an attempt back, and a refold below
        the old position may be one that emits nothing (design.md section 6).
        """
        batch = WriteBatch(raw_mode=True)
        batch.delete_range(ROWS, ROWS_END)
        batch.delete(POSITION)
        with self._writing():
            self._on.rows.write(batch)

    def close(self) -> None:
        """Close this handle; the database stays open for the next assignment. Idempotent."""
        self.is_closed = True

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._on.guarded():
            # Asked under the lock: a commit that waited for it may have lost its assignment.
            self._check()
            yield

    def _get(self, key: bytes) -> bytes | None:
        self._check()
        try:
            value: bytes | None = self._on.rows.get(key)
        except DbClosedError as error:
            raise Closed(self._name()) from error
        except Exception as error:
            raise store_error(self._on.path, error) from error
        return value

    def _check(self) -> None:
        if self.is_closed:
            raise Closed(self._name())

    def _name(self) -> str:
        return f"partition {self.partition} of {self._on.path}"


def _scan(
    on: _Partition, prefix: bytes, start: bytes | None, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    low, begin = bounds(prefix, start, reverse)
    key = begin
    for key, value in _items(on.rows, begin, reverse):
        if not key.startswith(low):
            # Backwards, the first key may be the one right after the prefix.
            if reverse and key == begin:
                continue
            return
        yield key[1:], value
    _prove_end(on, key, reverse)


def _area(on: _Partition, area: bytes) -> Iterator[tuple[bytes, bytes]]:
    key = area
    for key, value in _items(on.rows, area):
        if not key.startswith(area):
            return
        yield key[1:], value
    _prove_end(on, key)


def _items(rows: Rdict, begin: bytes, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
    # In raw mode rocksdict speaks bytes alone; its types cannot say so.
    found = rows.items(backwards=reverse, from_key=begin)
    return cast("Iterator[tuple[bytes, bytes]]", found)


def _prove_end(on: _Partition, last: bytes, reverse: bool = False) -> None:
    """Raise if there was more: rocksdict ends at a damaged block as it ends after the last key."""
    try:
        view = on.rows.iter()
        if reverse:
            view.seek_for_prev(last)
            step = view.prev
        else:
            view.seek(last)
            step = view.next
        if view.valid():
            step()
        if not view.valid():
            view.status()
    except DbClosedError as error:
        raise Closed(str(on.path)) from error
    except Exception as error:
        raise store_error(on.path, error) from error
