"""What the SQLite store does beyond the contract."""

import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from ombus_streams.engine.embedded.errors import (
    AlreadyOwned,
    StorageCorrupt,
    StorageFailed,
    StorageFull,
    storage_error,
)
from ombus_streams.engine.embedded.layout import INLINE
from ombus_streams.engine.embedded.ownership import Ownership
from ombus_streams.engine.embedded.store import StateFile
from ombus_streams.runtime.errors import Closed, RetryableError
from ombus_streams.runtime.ports import PositionRow

from tests.engine.faults import Fuse, dies, fused, killed

ROOT = Path(__file__).parents[2]


def at(next_offset: int, partition: int = 0) -> PositionRow:
    return PositionRow(
        incarnation="i", partition=partition, next_offset=next_offset, fold_version=1
    )


def test_a_batch_is_there_whole_or_not_at_whatever_statement_its_process_dies(
    tmp_path: Path,
) -> None:
    """Finding 1: a head that says folded for rows that never arrived."""
    before: dict[bytes, bytes] = {b"head": b"1", b"parked": b"1"}
    file = StateFile(tmp_path)
    file.store(0).commit(before, None, at(1))
    file.close()
    batch = {b"head": b"2", b"parked": None, b"row-1": b"2", b"row-2": b"2"}
    after = {b"head": b"2", b"row-1": b"2", b"row-2": b"2"}
    statements = 0
    survived = False
    while not survived:
        with fused() as fuse:

            def commit(fuse: Fuse = fuse, left: int = statements) -> None:
                store = StateFile(tmp_path).store(0)
                fuse.blow, fuse.left = killed, left
                store.commit(batch, at(1), at(2), outbox=[b"e-1", b"e-2"])

            survived = not dies(commit)
        file = StateFile(tmp_path)
        store = file.store(0)
        emissions = [value for _, value in store.outbox(10)]
        state = (dict(store.scan(b"")), store.position(), emissions)
        if survived:
            assert state == (after, at(2), [b"e-1", b"e-2"])
        else:
            assert state == (before, at(1), [])
        file.close()
        statements += 1
    assert statements > 8


def test_a_killed_process_loses_no_batch_it_committed(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.engine.folder", str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(60)]
    child.kill()
    lines += child.stdout.readlines()
    child.wait()
    committed = int([line for line in lines if line.endswith("\n")][-1])

    file = StateFile(tmp_path)
    store = file.store(0)
    position = store.position()
    assert position is not None
    # The last commit may have gone unsaid, never half done.
    assert position.next_offset in (committed, committed + 10)
    rows = dict(store.scan(b"row"))
    assert rows == {b"row%08d" % number: b"x" for number in range(position.next_offset)}
    assert store.get(b"head") == b"%d" % position.next_offset
    assert len(store.outbox(1_000_000)) == position.next_offset // 10
    file.close()


def test_a_snapshot_stands_at_one_instant_while_batches_go_on(tmp_path: Path) -> None:
    file = StateFile(tmp_path)
    store = file.store(0)
    rows = {b"r%04d" % number: b"1" for number in range(500)}
    store.commit({**rows, b"head": b"1"}, None, at(1))
    store.put_operational(b"k", b"1")
    with file.snapshot(0) as then:
        scan = then.scan(b"r")
        first = next(scan)
        store.commit({key: None for key in rows} | {b"head": b"2"}, at(1), at(2))
        store.put_operational(b"k", b"2")
        assert [first, *scan] == sorted(rows.items())
        assert (then.get(b"head"), then.position()) == (b"1", at(1))
        assert (then.get_operational(b"k"), then.get(b"none")) == (b"1", None)
    with file.snapshot(0) as now:
        assert (list(now.scan(b"r")), now.get(b"head"), now.position()) == ([], b"2", at(2))
    file.close()


def test_a_snapshot_never_shows_rows_of_one_batch_under_the_position_of_another(
    tmp_path: Path,
) -> None:
    file, reader = StateFile(tmp_path), StateFile(tmp_path)
    file.store(0).commit({b"head": b"0"}, None, at(0))

    def read() -> list[tuple[int, bytes | None]]:
        found = []
        for _ in range(200):
            with reader.snapshot(0) as snapshot:
                position = snapshot.position()
                assert position is not None
                found.append((position.next_offset, snapshot.get(b"head")))
        return found

    with ThreadPoolExecutor(2) as pool:
        readings = [pool.submit(read) for _ in range(2)]
        for number in range(200):
            rows = {b"head": b"%d" % (number + 1), b"r": b"%d" % number}
            file.store(0).commit(rows, at(number), at(number + 1))
        for reading in readings:
            assert all(head == b"%d" % offset for offset, head in reading.result())
    file.close()
    reader.close()


def test_a_reader_of_another_process_sees_what_was_committed(tmp_path: Path) -> None:
    file = StateFile(tmp_path)
    file.store(3).commit({b"a": b"1"}, None, at(5, partition=3))

    script = "from tests.engine.test_embedded_store import read_in_child as r; r()"
    environment = {**os.environ, "FOLDER": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0
    file.close()


def read_in_child() -> None:
    reader = StateFile(Path(os.environ["FOLDER"]))
    with reader.snapshot(3) as snapshot:
        assert (snapshot.get(b"a"), snapshot.position()) == (b"1", at(5, partition=3))
    assert reader.partitions() == (3,)
    reader.close()


def test_a_closed_handle_refuses_and_its_neighbour_serves_on(tmp_path: Path) -> None:
    file = StateFile(tmp_path)
    revoked, kept = file.store(0), file.store(1)
    revoked.close()
    with pytest.raises(Closed, match="partition 0"):
        revoked.get(b"a")
    with pytest.raises(Closed, match="partition 0"):
        revoked.commit({}, None, at(1))
    with pytest.raises(Closed, match="partition 0"):
        revoked.put_operational(b"a", b"1")
    with pytest.raises(Closed, match="partition 0"):
        revoked.wipe()
    kept.commit({b"a": b"1"}, None, at(1, partition=1))
    file.close()
    file.close()
    with pytest.raises(Closed):
        kept.get(b"a")
    with pytest.raises(Closed), file.snapshot(0):
        pass


def test_a_disk_error_anywhere_in_a_batch_leaves_the_stored_position(tmp_path: Path) -> None:
    with fused() as fuse:
        file = StateFile(tmp_path)
        store = file.store(0)
        for left in range(8):
            fuse.left = left
            with pytest.raises(StorageFailed, match="disk I/O error"):
                store.commit({b"a": b"1", b"b": b"1", b"c": None}, None, at(1), [b"e"])
            assert fuse.left is None
            assert (store.position(), list(store.scan(b"")), store.outbox(1)) == (None, [], [])
        store.commit({b"a": b"1"}, None, at(1))
        assert store.get(b"a") == b"1"
        file.close()


def test_a_full_disk_is_an_error_to_retry(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "full.db")
    connection.execute("PRAGMA max_page_count=3")
    connection.execute("CREATE TABLE t(x)")
    with pytest.raises(sqlite3.OperationalError) as raised:
        connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
    error = storage_error(tmp_path / "full.db", raised.value)
    assert isinstance(error, StorageFull)
    assert isinstance(error, RetryableError)
    assert "full.db: database or disk is full (SQLITE_FULL): free space" in str(error)
    connection.close()


def test_a_state_file_that_is_no_database_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"anything but SQLite" * 1_000)
    with pytest.raises(StorageCorrupt, match=r"state\.db: file is not a database"):
        StateFile(tmp_path)


def test_a_folder_has_one_owner_until_it_lets_go(tmp_path: Path) -> None:
    first, second = Ownership(tmp_path), Ownership(tmp_path)
    with first:
        first.acquire()
        with pytest.raises(AlreadyOwned, match=f"owned by process {os.getpid()}") as refused:
            second.acquire()
        assert isinstance(refused.value, RetryableError)
    with second:
        pass
    second.release()


def test_ownership_dies_with_its_process(tmp_path: Path) -> None:
    def own_and_die() -> None:
        Ownership(tmp_path).acquire()
        killed()

    assert dies(own_and_die)
    with Ownership(tmp_path) as mine:
        assert mine.path.read_text() == f"{os.getpid()}\n"


def test_a_long_value_leaves_with_its_row_and_none_is_lost(tmp_path: Path) -> None:
    """Long values lie beside their rows: whatever happens to a row happens to its body."""
    file = StateFile(tmp_path)
    store = file.store(0)
    rows = {
        number.to_bytes(2, "big"): bytes([number % 251]) * (4 * number) for number in range(300)
    }
    store.commit(rows, None, at(1))
    assert dict(store.scan(b"")) == rows
    assert store.get_many([*rows]) == rows

    changed: dict[bytes, bytes | None] = {key: b"short" for key in [*rows][250:260]}
    changed |= {key: b"long" * 200 for key in [*rows][120:290:10]}
    changed |= dict.fromkeys([*rows][260:270])
    store.commit(changed, at(1), at(2))
    rows |= {key: value for key, value in changed.items() if value is not None}
    rows = {key: value for key, value in rows.items() if changed.get(key, b"") is not None}
    assert dict(store.scan(b"")) == rows
    assert n_bodies(file) == sum(len(value) > INLINE for value in rows.values())

    file.store(1).commit({b"k": b"v" * 1_000}, None, at(1, 1))
    store.wipe()
    assert n_bodies(file) == 1
    assert file.store(1).get(b"k") == b"v" * 1_000
    file.close()


def test_rows_of_a_file_that_knows_no_bodies_are_read_and_replaced(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db")) as database:
        database.execute(
            "CREATE TABLE rows(partition INTEGER NOT NULL, key BLOB NOT NULL,"
            " value BLOB NOT NULL, PRIMARY KEY(partition, key)) WITHOUT ROWID"
        )
        database.execute("INSERT INTO rows VALUES (0, ?, ?)", (b"k", b"old" * 500))
        database.commit()
    file = StateFile(tmp_path)
    store = file.store(0)
    assert store.get(b"k") == b"old" * 500

    store.commit({b"k": b"new" * 500}, None, at(1))

    assert dict(store.scan(b"")) == {b"k": b"new" * 500}
    file.close()


def n_bodies(file: StateFile) -> int:
    with closing(sqlite3.connect(file.path)) as database:
        ((found,),) = database.execute("SELECT count(*) FROM bodies").fetchall()
    return int(found)
