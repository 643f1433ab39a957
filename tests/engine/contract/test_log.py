"""What every ``EntryLog`` must do."""

import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import pytest
from ombus_schemas.codec import decode
from ombus_schemas.control import LogCreated
from ombus_schemas.facts import fact_of
from ombus_streams.runtime.ports import Draft, EntryLog, LogRecord, Position

from tests.engine.contract.child import PER_APPEND, THREADS
from tests.engine.contract.conftest import OpenLog
from tests.engine.contract.engines import ClosableLog, ManualClock

ROOT = Path(__file__).parents[3]


def draft(session: str, value: str, at_ms: int | None = None) -> Draft:
    return Draft(key=f"t/{session}".encode(), value=value.encode(), at_ms=at_ms)


def everything(log: EntryLog) -> list[LogRecord]:
    """Return every record of every partition, read in small pages."""
    found: list[LogRecord] = []
    for partition in range(log.partitions):
        offset = log.start(partition)
        while page := log.read(partition, offset, 7):
            found += page
            offset = page[-1].offset + 1
    return found


def appended(log: EntryLog) -> list[LogRecord]:
    return [record for record in everything(log) if record.offset > 0]


def test_every_partition_opens_with_the_record_that_names_the_log(log: ClosableLog) -> None:
    for partition in range(log.partitions):
        (first,) = log.read(partition, 0, 10)
        assert first.value is not None
        assert (first.key, log.start(partition), log.end(partition)) == (b"_system/log", 0, 1)
        entry = decode(first.value)
        created = fact_of(entry)
        assert (entry.kind, entry.tenant_id, entry.session_id) == ("custom", "_system", "log")
        assert isinstance(created, LogCreated)
        assert (created.incarnation, created.partition) == (log.incarnation, partition)


def test_offsets_are_contiguous_and_records_keep_their_order(log: ClosableLog) -> None:
    first = log.append([draft("a", "1"), draft("b", "2"), draft("a", "3")])
    second = log.append([draft("b", "4")])

    positions = first + second
    at = dict(zip(positions, "1234", strict=True))
    assert at == {
        Position(log.incarnation, record.partition, record.offset): record.value.decode()
        for record in appended(log)
        if record.value is not None
    }
    assert first[2].offset == first[0].offset + 1
    for partition in range(log.partitions):
        offsets = [record.offset for record in log.read(partition, 0, 100)]
        assert offsets == list(range(log.end(partition)))


def test_a_record_comes_back_as_it_was_written(log: ClosableLog) -> None:
    headers = (("trace", b"\x00\xff"), ("trace", b""), ("ü", b"2"))
    written = Draft(key=b"t/\xff", value=b"\x00\xff", headers=headers, at_ms=2_000_000)
    (position,) = log.append([written])
    (record,) = log.read(position.partition, position.offset, 1)
    assert record == LogRecord(
        partition=log.partition_of(b"t/\xff"),
        offset=1,
        key=b"t/\xff",
        value=b"\x00\xff",
        headers=headers,
        at_ms=2_000_000,
    )


def test_appending_nothing_answers_nothing(log: ClosableLog) -> None:
    assert log.append([]) == ()
    assert appended(log) == []


def test_reading_past_the_end_answers_nothing(log: ClosableLog) -> None:
    assert log.read(0, log.end(0), 10) == []
    assert log.read(0, 99, 10) == []
    assert log.read(0, 0, 0) == []


def test_a_key_stays_in_the_partition_of_its_hash(log: ClosableLog) -> None:
    positions = log.append([draft(f"s{number}", "") for number in range(50)])
    assert [position.partition for position in positions] == [
        log.partition_of(f"t/s{number}".encode()) for number in range(50)
    ]
    assert {position.partition for position in positions} == set(range(log.partitions))


def test_the_records_of_a_key_come_in_order_below_the_bound(log: ClosableLog) -> None:
    log.append([draft("a", "1"), draft("b", "x"), draft("a", "2")])
    (third,) = log.append([draft("a", "3")])

    def values(before: int | None) -> list[bytes | None]:
        return [record.value for record in log.of_key(b"t/a", before)]

    assert values(None) == [b"1", b"2", b"3"]
    assert values(third.offset) == [b"1", b"2"]
    assert values(0) == []
    assert list(log.of_key(b"t/nobody")) == []


def test_a_long_session_is_walked_whole_and_without_what_comes_meanwhile(
    log: ClosableLog,
) -> None:
    log.append([draft(session, str(number)) for number in range(1_200) for session in "ab"])
    walk = log.of_key(b"t/a")
    next(walk)
    log.append([draft("a", "late")])
    assert [record.value for record in walk] == [str(n).encode() for n in range(1, 1_200)]


def test_time_never_goes_back_within_a_partition(log: ClosableLog, clock: ManualClock) -> None:
    log.append([draft("a", "1")])
    clock.at_ms -= 5_000
    log.append([draft("a", "2")])
    clock.at_ms += 9_000
    log.append([draft("a", "3")])
    times = [record.at_ms for record in log.of_key(b"t/a")]
    assert times == [1_000_000, 1_000_000, 1_004_000]


def test_a_replayed_record_keeps_its_time_unless_that_went_back(
    log: ClosableLog, clock: ManualClock
) -> None:
    log.append([draft("a", "1", at_ms=7_000_000), draft("a", "2", at_ms=6_000_000)])
    clock.at_ms = 8_000_000
    log.append([draft("a", "3"), draft("a", "4", at_ms=9_000_000)])
    times = [record.at_ms for record in log.of_key(b"t/a")]
    assert times == [7_000_000, 7_000_000, 8_000_000, 9_000_000]


def test_a_replayed_record_may_be_older_than_the_log_itself(log: ClosableLog) -> None:
    log.append([draft("a", "1", at_ms=5), draft("a", "2", at_ms=7)])
    assert [record.at_ms for record in log.of_key(b"t/a")] == [5, 7]


def test_a_log_that_is_opened_again_is_the_same_log(open_log: OpenLog) -> None:
    log = open_log()
    log.append([draft("a", "1")])
    before = everything(log)
    log.close()
    again = open_log()
    assert (again.incarnation, again.partitions) == (log.incarnation, log.partitions)
    assert everything(again) == before


def test_two_handles_see_each_other_s_records(open_log: OpenLog) -> None:
    one, other = open_log(), open_log()
    one.append([draft("a", "1")])
    (position,) = other.append([draft("a", "2")])
    one.append([draft("a", "3")])
    assert position.offset == 2
    assert [record.value for record in other.of_key(b"t/a")] == [b"1", b"2", b"3"]


def test_many_threads_append_every_record_once(log: ClosableLog) -> None:
    def run(thread: int) -> list[Position]:
        found: list[Position] = []
        for number in range(20):
            found += log.append([draft(f"s{thread}", str(number))])
        return found

    with ThreadPoolExecutor(8) as pool:
        positions = [position for found in pool.map(run, range(8)) for position in found]

    assert len(set(positions)) == 160
    for thread in range(8):
        values = [record.value for record in log.of_key(f"t/s{thread}".encode())]
        assert values == [str(number).encode() for number in range(20)]


@pytest.mark.parametrize("n_lines", [1, 40, 75, 120, 300])
def test_what_was_acknowledged_before_a_kill_is_there_once_and_in_order(
    n_lines: int, engine_name: str, open_log: OpenLog, tmp_path: Path
) -> None:
    child = start_child(engine_name, tmp_path / "log", "x", appends=100_000)
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(n_lines)]
    child.kill()
    lines += child.stdout.readlines()
    child.wait()
    acknowledged = [line.split() for line in lines if line.endswith("\n")]

    log = open_log()
    records = {
        (record.partition, record.offset): str(record.value, "utf-8")
        for record in appended(log)
        if record.value is not None
    }

    for partition, offset, value in acknowledged:
        assert records[int(partition), int(offset)] == value
    assert_contiguous(log)
    assert_each_append_whole_and_in_order(log, "x")


def test_two_processes_append_at_once_without_a_gap(
    engine_name: str, open_log: OpenLog, tmp_path: Path
) -> None:
    children = [start_child(engine_name, tmp_path / "log", name, appends=150) for name in "xy"]
    outputs = [child.communicate()[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]

    log = open_log()
    records = Counter(
        (str(record.partition), str(record.offset), str(record.value, "utf-8"))
        for record in appended(log)
        if record.value is not None
    )
    said = Counter(tuple(line.split()) for output in outputs for line in output.splitlines())
    assert said == records
    assert len(records) == 2 * THREADS * 150 * PER_APPEND
    assert_contiguous(log)
    for name in "xy":
        assert_each_append_whole_and_in_order(log, name)


def start_child(engine: str, folder: Path, name: str, appends: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.engine.contract.child", engine, str(folder), name]
    out: int | IO[str] = subprocess.PIPE
    return subprocess.Popen([*command, str(appends)], cwd=ROOT, stdout=out, text=True)


def assert_contiguous(log: EntryLog) -> None:
    for partition in range(log.partitions):
        offsets = [record.offset for record in log.read(partition, 0, 1_000_000)]
        assert offsets == list(range(log.end(partition)))


def assert_each_append_whole_and_in_order(log: EntryLog, name: str) -> None:
    """The child appends three records at a time: the log has them all, or none."""
    for thread in range(THREADS):
        records = list(log.of_key(f"t/{name}-{thread}".encode()))
        assert len(records) % PER_APPEND == 0
        assert [str(record.value, "utf-8") for record in records if record.value is not None] == [
            f"{name}-{thread}-{number // PER_APPEND}-{number % PER_APPEND}"
            for number in range(len(records))
        ]
