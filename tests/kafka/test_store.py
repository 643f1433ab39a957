"""The RocksDB store beyond its contract: kills, torn files, snapshots, checkpoints, bounds.

None of this needs a broker.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, rule

pytest.importorskip("rocksdict", reason="the Kafka engine's store needs the extra kafka")

from ombus_streams.engine.kafka.rocks import Bounds, Memory
from ombus_streams.engine.kafka.snapshot import reading
from ombus_streams.engine.kafka.store import RocksState
from ombus_streams.engine.kafka.store_errors import StoreCorrupt, StoreFailed, StoreOwned
from ombus_streams.runtime.errors import Closed, StalePosition
from ombus_streams.runtime.ports import PositionRow, StateStore

from tests.engine.contract.engines import State
from tests.engine.faults import Fuse, dies, killed
from tests.engine.test_store_machine import CHANGES, StoreMachine
from tests.kafka.faults import fused
from tests.kafka.rocks import open_state, small_memory
from tests.kafka.world import until

ROOT = Path(__file__).parents[2]


def at(next_offset: int, partition: int = 0) -> PositionRow:
    return PositionRow(
        incarnation="i", partition=partition, next_offset=next_offset, fold_version=1
    )


def contents(store: StateStore) -> dict[bytes, bytes]:
    return dict(store.scan(b""))


def copied(folder: Path) -> Path:
    """Return a copy of a folder in use, as of one instant: again while a file came or went."""
    while True:
        copy = Path(tempfile.mkdtemp())
        with suppress(shutil.Error):
            shutil.copytree(folder, copy, dirs_exist_ok=True)
            return copy
        shutil.rmtree(copy)


class RocksMachine(StoreMachine):
    """The same histories over RocksDB; a crash leaves what the files hold at that instant."""

    failure = StoreFailed

    @staticmethod
    def open_state(folder: Path) -> State:
        return open_state(folder)

    @staticmethod
    def faults() -> AbstractContextManager[Fuse]:
        return fused()

    def crash(self) -> None:
        # What a killed process leaves: the files as they are, nothing flushed or closed.
        left = copied(self.folder)
        self.file.close()
        shutil.rmtree(self.folder)
        self.folder = left
        if self.zombie is not None:
            # It died with its process.
            self.zombie = None
        self.open()

    @rule()
    def hand_over(self) -> None:
        """A new assignment in the same process; the old handle does not know yet."""
        if self.zombie is None:
            self.zombie = (self.store, self.position)
            self.store = self.file.store(0)

    @rule(changes=CHANGES)
    def checkpoint_is_a_store(self, changes: dict[bytes, bytes | None]) -> None:
        assert isinstance(self.file, RocksState)
        copies = Path(tempfile.mkdtemp())
        before, position = sorted(self.rows.items()), self.position
        assert self.file.checkpoint(0, copies / "00000") == position
        to = self.next_position()
        self.store.commit(changes, self.position, to)
        self.committed(changes, [], to)
        copy = open_state(copies)
        assert list(copy.store(0).scan(b"")) == before
        assert copy.store(0).position() == position
        copy.close()
        shutil.rmtree(copies)

    @invariant()
    def has_one_folder(self) -> None:
        if hasattr(self, "store"):
            assert [each.name for each in self.folder.iterdir()] == ["00000"]


TestRocksMachine = RocksMachine.TestCase
TestRocksMachine.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)

BEFORE: dict[bytes, bytes | None] = {b"head": b"1", b"parked": b"1"}
BATCH: dict[bytes, bytes | None] = {
    b"head": b"2",
    b"parked": None,
    b"row-1": b"2",
    b"row-2": b"2",
}
AFTER = {b"head": b"2", b"row-1": b"2", b"row-2": b"2"}


def die_at_every_step(folder: str) -> None:
    """Fork once a step: each child commits ``BATCH`` into a folder of its own and dies there."""

    def commit(left: int) -> None:
        with fused() as fuse:
            store = RocksState(Path(folder) / str(left), small_memory()).store(0)
            fuse.blow, fuse.left = killed, left
            store.commit(BATCH, at(1), at(2), outbox=[b"e-1", b"e-2"])
            os._exit(0)

    print(next(left for left in range(20) if not dies(partial(commit, left))))


def test_a_batch_is_there_whole_or_not_at_whatever_step_its_process_dies(tmp_path: Path) -> None:
    """Finding 1: a head that says folded for rows that never arrived."""
    for left in range(20):
        state = RocksState(tmp_path / str(left), small_memory())
        state.store(0).commit(BEFORE, None, at(1))
        state.close()
    # RocksDB's threads do not live on in a fork: the process that forks has none yet.
    script = f"from tests.kafka.test_store import die_at_every_step as d; d({str(tmp_path)!r})"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    n_steps = int(done.stdout)
    assert n_steps == 9
    for left in range(n_steps + 1):
        state = RocksState(tmp_path / str(left), small_memory())
        store = state.store(0)
        emissions = [value for _, value in store.outbox(10)]
        found = (contents(store), store.position(), emissions)
        state.close()
        survived = left == n_steps
        assert found == ((AFTER, at(2), [b"e-1", b"e-2"]) if survived else (BEFORE, at(1), []))


def commit_until_killed(folder: str) -> None:
    """Commit batches of ten rows and say after each how far it came."""
    store = RocksState(Path(folder), small_memory()).store(0)
    expected = None
    for start in range(0, 10_000_000, 10):
        end = start + 10
        rows: dict[bytes, bytes | None] = {
            b"row%08d" % number: b"x" * 100 for number in range(start, end)
        }
        rows[b"head"] = b"%d" % end
        store.commit(rows, expected, at(end), outbox=[b"%d" % end])
        expected = at(end)
        print(end, flush=True)


def test_a_killed_process_loses_no_batch_it_committed(tmp_path: Path) -> None:
    script = f"from tests.kafka.test_store import commit_until_killed as c; c({str(tmp_path)!r})"
    child = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(2_000)]
    child.kill()
    lines += child.stdout.readlines()
    child.wait()
    committed = int([line for line in lines if line.endswith("\n")][-1])

    state = RocksState(tmp_path)
    store = state.store(0)
    position = store.position()
    assert position is not None
    # The last commit may have gone unsaid, never half done.
    assert position.next_offset in (committed, committed + 10)
    assert [key for key, _ in store.scan(b"row")] == [
        b"row%08d" % number for number in range(position.next_offset)
    ]
    assert store.get(b"head") == b"%d" % position.next_offset
    assert len(store.outbox(10_000_000)) == position.next_offset // 10
    state.close()


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.77, 0.999])
def test_a_write_ahead_log_cut_anywhere_leaves_whole_batches(tmp_path: Path, share: float) -> None:
    """What a power cut does to a log that was not synced."""
    state = RocksState(tmp_path / "state")
    store = state.store(0)
    for number in range(100):
        rows: dict[bytes, bytes | None] = {
            b"r%d-%d" % (number, part): b"%d" % number for part in range(5)
        }
        expected = at(number) if number else None
        store.commit(rows | {b"head": b"%d" % number}, expected, at(number + 1), [b"e"])
    shutil.copytree(tmp_path / "state", tmp_path / "left")
    state.close()
    (wal,) = (tmp_path / "left" / "00000").glob("*.log")
    size = wal.stat().st_size
    os.truncate(wal, int(size * share))

    left = RocksState(tmp_path / "left")
    store = left.store(0)
    position = store.position()
    n_batches = position.next_offset if position is not None else 0
    assert n_batches <= int(100 * share)
    rows_left = {b"r%d-%d" % (n, part): b"%d" % n for n in range(n_batches) for part in range(5)}
    assert dict(store.scan(b"r")) == rows_left
    assert len(store.outbox(1_000)) == n_batches
    store.commit({b"head": b"again"}, position, at(n_batches + 1))
    left.close()


def test_a_snapshot_stands_at_one_instant_while_batches_go_on(tmp_path: Path) -> None:
    state = RocksState(tmp_path)
    store = state.store(0)
    rows: dict[bytes, bytes | None] = {b"r%04d" % number: b"1" for number in range(500)}
    store.commit({**rows, b"head": b"1"}, None, at(1))
    store.put_operational(b"k", b"1")
    with state.snapshot(0) as then:
        scan = then.scan(b"r")
        first = next(scan)
        store.commit({**dict.fromkeys(rows), b"head": b"2"}, at(1), at(2))
        store.put_operational(b"k", b"2")
        assert [first, *scan] == sorted(rows.items())
        assert (then.get(b"head"), then.position()) == (b"1", at(1))
        assert (then.get_operational(b"k"), then.get(b"none"), then.get(b"hea")) == (
            b"1",
            None,
            None,
        )
    with state.snapshot(0) as now:
        assert (list(now.scan(b"r")), now.get(b"head"), now.position()) == ([], b"2", at(2))
    state.close()


def test_another_process_reads_what_was_committed(tmp_path: Path) -> None:
    state = RocksState(tmp_path)
    state.store(3).commit({b"a": b"1"}, None, at(5, partition=3))
    script = f"from tests.kafka.test_store import read_partition as r; r({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False)
    assert done.returncode == 0
    assert state.partitions() == (3,)
    state.close()


def read_partition(folder: str) -> None:
    with reading(Path(folder) / "00003") as snapshot:
        assert (snapshot.get(b"a"), snapshot.position()) == (b"1", at(5, partition=3))


def test_a_second_owner_of_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    first, second = RocksState(tmp_path), RocksState(tmp_path)
    first.store(0)
    with pytest.raises(StoreOwned, match=r"00000: .*LOCK"):
        second.store(0)
    second.store(1)
    first.close()
    second.store(0)
    second.close()


def test_a_closed_handle_refuses_and_the_next_assignment_serves_on(tmp_path: Path) -> None:
    state = RocksState(tmp_path)
    revoked = state.store(0)
    revoked.commit({b"a": b"1"}, None, at(1))
    revoked.close()
    for refused in (
        lambda: revoked.get(b"a"),
        lambda: revoked.get_many([b"a"]),
        lambda: list(revoked.scan(b"")),
        lambda: revoked.position(),
        lambda: revoked.commit({}, at(1), at(2)),
        lambda: revoked.put_operational(b"a", b"1"),
        lambda: revoked.outbox(1),
        lambda: revoked.sent(1),
        lambda: revoked.wipe(),
    ):
        with pytest.raises(Closed, match="partition 0 of"):
            refused()
    kept = state.store(0)
    assert kept.get(b"a") == b"1"
    state.release(0)
    with pytest.raises(Closed):
        kept.get(b"a")
    assert state.store(0).get(b"a") == b"1"
    state.close()
    state.close()
    with pytest.raises(Closed):
        kept.commit({}, at(1), at(2))
    with pytest.raises(Closed):
        state.store(0)


def test_a_folder_that_is_no_database_is_refused_by_name(tmp_path: Path) -> None:
    state = RocksState(tmp_path)
    state.store(0).commit({b"a": b"1"}, None, at(1))
    state.close()
    (tmp_path / "00000" / "CURRENT").write_bytes(b"anything else\n")
    with pytest.raises(StoreCorrupt, match=r"00000: Corruption: .*folded again"):
        RocksState(tmp_path).store(0)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_damaged_block_is_no_end_of_the_rows(tmp_path: Path, reverse: bool) -> None:
    state = RocksState(tmp_path)
    store, position = state.store(0), None
    for number in range(20):
        rows: dict[bytes, bytes | None] = {
            b"%04d-%03d" % (number, row): os.urandom(2_000) for row in range(250)
        }
        store.commit(rows, position, at(number + 1))
        position = at(number + 1)
    state.close()
    table = min((tmp_path / "00000").glob("*.sst"))
    damaged = bytearray(table.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    table.write_bytes(damaged)
    state = RocksState(tmp_path)
    with pytest.raises(StoreCorrupt, match=r"00000: Corruption: .*folded again"):
        list(state.store(0).scan(b"", reverse=reverse))
    with state.snapshot(0) as live, pytest.raises(StoreCorrupt, match="00000: Corruption"):
        list(live.scan(b"", reverse=reverse))
    state.close()


def test_a_checkpoint_shares_files_and_does_not_move_on(tmp_path: Path) -> None:
    state = RocksState(tmp_path / "state")
    store = state.store(7)
    store.commit({b"a": b"1"}, None, at(1, 7), [b"e"])
    assert state.checkpoint(7, tmp_path / "copy" / "00007") == at(1, 7)
    store.commit({b"a": b"2"}, at(1, 7), at(2, 7))
    copy = RocksState(tmp_path / "copy")
    assert copy.partitions() == (7,)
    restored = copy.store(7)
    assert (restored.get(b"a"), restored.position()) == (b"1", at(1, 7))
    assert [value for _, value in restored.outbox(9)] == [b"e"]
    with pytest.raises(StalePosition):
        restored.commit({}, at(2, 7), at(3, 7))
    copy.close()
    state.close()


def test_the_memory_of_a_process_does_not_grow_with_its_partitions(tmp_path: Path) -> None:
    memory = Memory(Bounds(cache_bytes=8 << 20, buffers_bytes=4 << 20, buffer_bytes=2 << 20))
    state = RocksState(tmp_path, memory)
    for partition in range(48):
        store = state.store(partition)
        rows: dict[bytes, bytes | None] = {b"%d" % row: os.urandom(1_000) for row in range(2 * 256)}
        store.commit(rows, None, at(1, partition))
    until(lambda: memory.used_bytes < 8 << 20, 30, "the buffers of idle partitions are written out")
    state.close()
