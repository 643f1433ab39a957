"""A database copied under its owner's hands: always whole batches, never a mix of two states."""

import os
import threading
from pathlib import Path

import pytest

pytest.importorskip("rocksdict", reason="the Kafka engine's store needs the extra kafka")

from ombus_streams.engine.kafka.rocks import Bounds, Memory
from ombus_streams.engine.kafka.still import still, take_still
from ombus_streams.engine.kafka.store import RocksState
from ombus_streams.engine.kafka.store_errors import StoreCorrupt, StoreFailed
from ombus_streams.runtime.ports import PositionRow

TINY = Bounds(cache_bytes=2 << 20, buffers_bytes=256 << 10, buffer_bytes=64 << 10)
"""Tables are written every few batches, so that they come and go under a copy."""


def at(next_offset: int) -> PositionRow:
    return PositionRow(incarnation="i", partition=0, next_offset=next_offset, fold_version=1)


class Writer:
    """Commits batches in which every row says which batch it is of, until it is stopped."""

    def __init__(self, state: RocksState) -> None:
        self._store, self._stopping = state.store(0), threading.Event()
        self.n_batches = 0
        self.has_many = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        position = self._store.position()
        while not self._stopping.is_set():
            number = self.n_batches + 1
            mark = b"%08d" % number
            rows: dict[bytes, bytes | None] = {
                b"row-%d" % row: mark + os.urandom(500) for row in range(20)
            }
            self._store.commit(rows, position, at(number))
            position, self.n_batches = at(number), number
            if number == 200:
                self.has_many.set()


def test_a_still_is_one_state_of_a_database_in_use(tmp_path: Path) -> None:
    state = RocksState(tmp_path / "state", Memory(TINY))
    writer = Writer(state)
    seen: list[int] = []
    try:
        while writer.n_batches < 600:
            with still(state.path(0), tmp_path / "still") as rows:
                position = rows.position()
                marks = {value[:8] for _, value in rows.scan(b"row-")}
            number = position.next_offset if position else 0
            assert marks == ({b"%08d" % number} if number else set())
            seen.append(number)
    finally:
        writer.stop()
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]
    assert not (tmp_path / "still").exists()
    state.close()


def test_a_still_is_a_database_of_its_own(tmp_path: Path) -> None:
    state = RocksState(tmp_path / "state", Memory(TINY))
    writer = Writer(state)
    assert writer.has_many.wait(60)
    take_still(state.path(0), tmp_path / "copy" / "00000")
    writer.stop()
    copy = RocksState(tmp_path / "copy", Memory(TINY))
    store = copy.store(0)
    position = store.position()
    assert position is not None
    for number in range(position.next_offset + 1, position.next_offset + 300):
        rows: dict[bytes, bytes | None] = {b"other-%d" % number: os.urandom(2_000)}
        store.commit(rows, position, at(number))
        position = at(number)
    copy.close()
    live = state.store(0)
    assert live.position() == at(writer.n_batches)
    assert {value[:8] for _, value in live.scan(b"row-")} == {b"%08d" % writer.n_batches}
    assert list(live.scan(b"other-")) == []
    state.close()


def test_a_folder_without_a_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="holds no database"):
        take_still(tmp_path / "00003", tmp_path / "still")


def test_a_damaged_manifest_is_not_taken_for_a_state(tmp_path: Path) -> None:
    state = RocksState(tmp_path / "state")
    state.store(0).commit({b"a": b"1"}, None, at(1))
    state.close()
    (manifest,) = (tmp_path / "state" / "00000").glob("MANIFEST-*")
    manifest.write_bytes(manifest.read_bytes()[:-3] + b"xyz")
    with pytest.raises(StoreCorrupt, match="Corruption"):
        take_still(tmp_path / "state" / "00000", tmp_path / "still")
