"""RocksDB that stops between two steps of a batch: there the process dies, or the disk fails."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import rocksdict
from ombus_streams.engine.kafka import rocks, store

from tests.engine.faults import Fuse


def disk_error() -> None:
    raise OSError("IO error: disk I/O error")


@contextmanager
def fused() -> Iterator[Fuse]:
    """Let ``fuse.left`` steps through from where it is set on, then blow once.

    Steps are every put and delete into a batch, the write of the batch, and its return.
    """
    fuse = Fuse()
    fuse.blow = disk_error

    class Batch:
        def __init__(self, raw_mode: bool) -> None:
            self.inner = rocksdict.WriteBatch(raw_mode=raw_mode)

        def put(self, key: bytes, value: bytes) -> None:
            fuse.step()
            self.inner.put(key, value)

        def delete(self, key: bytes) -> None:
            fuse.step()
            self.inner.delete(key)

        def delete_range(self, begin: bytes, end: bytes) -> None:
            fuse.step()
            self.inner.delete_range(begin, end)

    class Database:
        def __init__(self, inner: rocksdict.Rdict) -> None:
            self.inner = inner

        def write(self, batch: Batch) -> None:
            fuse.step()
            self.inner.write(batch.inner)

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

    def checkpoint(database: Database) -> rocksdict.Checkpoint:
        return rocksdict.Checkpoint(database.inner)

    open_one = rocks.Memory.open

    def opened(memory: rocks.Memory, path: Path) -> Database:
        return Database(open_one(memory, path))

    with (
        mock.patch.object(store, "WriteBatch", Batch),
        mock.patch.object(store, "Checkpoint", checkpoint),
        mock.patch.object(rocks.Memory, "open", opened),
    ):
        yield fuse
