"""What the SQLite log does beyond the contract."""

import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from ombus_streams.engine.embedded.errors import (
    OtherLog,
    StorageBusy,
    StorageCorrupt,
    StorageError,
    StorageFailed,
)
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.runtime.errors import Closed, RetryableError, TerminalError
from ombus_streams.runtime.ports import Draft

from tests.engine.contract.engines import ManualClock
from tests.engine.faults import Fuse, dies, fused, killed

SOON = timedelta(seconds=10)
AT_ONCE = timedelta(0)


def open_log(folder: Path, partitions: int | None = 2, busy_ms: int = 10_000) -> SqliteLog:
    return SqliteLog(
        folder,
        ManualClock(),
        partitions=partitions,
        busy_timeout=timedelta(milliseconds=busy_ms),
    )


def draft(value: str) -> Draft:
    return Draft(key=b"t/a", value=value.encode())


def values(log: SqliteLog) -> list[bytes | None]:
    return [record.value for record in log.of_key(b"t/a")]


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON.total_seconds()
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0)  # yields to the other threads


def test_appends_that_wait_for_a_sync_share_the_next_one(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    other = sqlite3.connect(log.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(16) as pool:
        appends = [pool.submit(log.append, [draft(str(number))]) for number in range(16)]
        until(lambda: log.n_pending == 16)
        other.execute("ROLLBACK")
        positions = [append.result()[0] for append in appends]
    assert log.n_commits <= 2
    assert sorted(position.offset for position in positions) == list(range(1, 17))
    other.close()
    log.close()


def test_a_lone_append_waits_for_nobody(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(3):
        log.append([draft(str(number))])
    assert log.n_commits == 3
    log.close()


def test_an_append_is_on_the_log_whole_or_not_at_whatever_statement_it_dies(
    tmp_path: Path,
) -> None:
    open_log(tmp_path).close()
    drafts = [draft("1"), draft("2"), draft("3")]
    statements = 0
    survived = False
    while not survived:
        with fused() as fuse:

            def append(fuse: Fuse = fuse, left: int = statements) -> None:
                log = open_log(tmp_path)
                fuse.blow, fuse.left = killed, left
                log.append(drafts)

            survived = not dies(append)
        log = open_log(tmp_path)
        assert values(log) == ([b"1", b"2", b"3"] if survived else [])
        log.close()
        statements += 1
    assert statements > 5


def test_a_failed_append_leaves_nothing_and_the_next_one_works(tmp_path: Path) -> None:
    with fused() as fuse:
        log = open_log(tmp_path)
        for left in range(5):
            fuse.left = left
            with pytest.raises(StorageFailed, match=r"log\.db: disk I/O error"):
                log.append([draft("lost"), draft("lost too")])
        fuse.left = None
        log.append([draft("kept")])
        assert values(log) == [b"kept"]
        log.close()


def test_a_waiting_reader_is_woken_by_an_append_here(tmp_path: Path) -> None:
    never = timedelta(hours=1)
    log = SqliteLog(tmp_path, ManualClock(), partitions=2, poll_interval=never)
    (position,) = log.append([draft("1")])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(log.wait, {position.partition: position.offset + 1}, never)
        try:
            log.append([draft("2")])
            assert waiting.result(SOON.total_seconds()) is True
        finally:
            log.close()


def test_a_waiting_reader_notices_another_handle_s_append(tmp_path: Path) -> None:
    log, other = open_log(tmp_path), open_log(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(log.wait, {0: 1, 1: 1}, SOON)
        other.append([draft("1")])
        assert waiting.result() is True
    log.close()
    other.close()


def test_waiting_ends_with_what_is_there_with_its_time_or_with_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    (position,) = log.append([draft("1")])
    assert log.wait({position.partition: position.offset}, AT_ONCE) is True
    assert log.wait({position.partition: position.offset + 1}, AT_ONCE) is False
    assert log.wait({}, AT_ONCE) is False
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(log.wait, {position.partition: position.offset + 1}, SOON)
        log.close()
        assert waiting.result() is False


def test_a_closed_log_refuses(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.close()
    log.close()
    with pytest.raises(Closed):
        log.append([draft("1")])
    with pytest.raises(Closed):
        log.read(0, 0, 1)


def test_closing_finishes_what_was_taken_in(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    other = sqlite3.connect(log.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(3) as pool:
        appends = [pool.submit(log.append, [draft(str(number))]) for number in range(2)]
        until(lambda: log.n_pending == 2)
        closing = pool.submit(log.close)
        other.execute("ROLLBACK")
        closing.result()
        assert {append.result()[0].offset for append in appends} == {1, 2}
    other.close()


def test_no_thread_starts_before_the_first_append(tmp_path: Path) -> None:
    before = threading.active_count()
    log = open_log(tmp_path)
    log.read(0, 0, 1)
    assert threading.active_count() == before
    log.close()


def test_the_partition_count_is_fixed_when_the_log_is_created(tmp_path: Path) -> None:
    open_log(tmp_path, partitions=3).close()
    again = open_log(tmp_path, partitions=None)
    assert again.partitions == 3
    again.close()
    with pytest.raises(OtherLog, match="3 partitions") as refused:
        open_log(tmp_path, partitions=4)
    assert isinstance(refused.value, TerminalError)
    with pytest.raises(OtherLog, match=r"embedded/ombus\.session\.entries"):
        SqliteLog(tmp_path, ManualClock(), topic="ombus.scope.grants")


def test_a_new_log_has_as_many_partitions_as_a_development_topic(tmp_path: Path) -> None:
    log = open_log(tmp_path, partitions=None)
    assert log.partitions == 8
    log.close()


def test_logs_differ_in_their_incarnation(tmp_path: Path) -> None:
    one, other = open_log(tmp_path / "one"), open_log(tmp_path / "other")
    assert one.incarnation != other.incarnation
    one.close()
    other.close()


def test_handles_that_open_a_new_log_at_once_open_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        logs = list(pool.map(lambda _: open_log(tmp_path), range(8)))
    assert len({log.incarnation for log in logs}) == 1
    assert [log.end(0) for log in logs] == [1] * 8
    for log in logs:
        log.close()


def test_a_lock_held_too_long_is_an_error_to_retry(tmp_path: Path) -> None:
    log = open_log(tmp_path, busy_ms=20)
    other = sqlite3.connect(log.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageBusy) as refused:
        log.append([draft("1")])
    assert isinstance(refused.value, RetryableError)
    assert refused.value.path == log.path
    other.execute("ROLLBACK")
    other.close()
    log.append([draft("1")])
    assert values(log) == [b"1"]
    log.close()


def test_appends_that_share_a_failed_transaction_all_hear_of_it(tmp_path: Path) -> None:
    log = open_log(tmp_path, busy_ms=200)
    other = sqlite3.connect(log.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(4) as pool:
        appends = [pool.submit(log.append, [draft(str(number))]) for number in range(4)]
        failures = [append.exception(SOON.total_seconds()) for append in appends]
    assert [type(failure) for failure in failures] == [StorageBusy] * 4
    other.close()
    log.close()


def test_a_file_that_is_no_database_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "log.db").write_bytes(b"anything but SQLite" * 1_000)
    with pytest.raises(StorageCorrupt, match="not a database") as refused:
        open_log(tmp_path)
    assert refused.value.path == tmp_path / "log.db"


def test_damage_is_named_and_not_read_over(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append([draft("x" * 500) for _ in range(500)])
    log.close()
    content = bytearray((tmp_path / "log.db").read_bytes())
    content[4_096 * 3 :] = b"\xa5" * (len(content) - 4_096 * 3)
    (tmp_path / "log.db").write_bytes(content)
    with pytest.raises(StorageError) as refused:
        values(open_log(tmp_path))
    assert isinstance(refused.value, StorageCorrupt)


def test_a_log_that_has_lost_its_first_records_is_refused(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    cut = sqlite3.connect(tmp_path / "log.db")
    cut.execute("DELETE FROM records WHERE partition = 1")
    cut.commit()
    cut.close()
    with pytest.raises(StorageCorrupt, match="1 of 2 partitions"):
        open_log(tmp_path)
