"""Replay between data folders and files; ``tests/kafka/test_replay.py`` has the same with Kafka."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from ombus.operator.replay import (
    REPLAYED_FROM,
    OffsetRange,
    Replayed,
    SameLog,
    Selection,
    replay,
)
from ombus.operator.replay_file import BadFile, FileSource, FileTarget
from ombus.operator.replay_logs import LogSource, LogTarget
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.runtime.ports import Draft, LogRecord

from tests.support.engine import ManualClock
from tests.support.replays import by_key, entry_draft, values_by_key

ALL = Selection()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(at_ms=50_000_000)


@pytest.fixture
def source(tmp_path: Path, clock: ManualClock) -> Iterator[SqliteLog]:
    """A log of 600 entries in six sessions, and some bytes that are no entry."""
    with closing(SqliteLog(tmp_path / "source", clock, partitions=4)) as log:
        for number in range(100):
            clock.at_ms += 10
            log.append([entry_draft(f"s{session}", number) for session in range(6)])
        log.append([Draft(key=b"no key of ours", value=b"\xff{")])
        clock.at_ms += 1_000_000
        yield log


@pytest.fixture
def target(tmp_path: Path, clock: ManualClock) -> Iterator[SqliteLog]:
    with closing(SqliteLog(tmp_path / "target", clock, partitions=2)) as log:
        yield log


def copy(log: SqliteLog, target: SqliteLog, folder: Path, selection: Selection = ALL) -> Replayed:
    return replay(LogSource(log, selection.ranges), LogTarget(target), selection, folder)


def test_each_session_comes_over_in_order_with_its_bytes_and_times(
    source: SqliteLog, target: SqliteLog, tmp_path: Path
) -> None:
    done = copy(source, target, tmp_path)
    assert done == Replayed(copied=601, already_there=0, left_behind=0, sessions=7)
    assert by_key(target) == by_key(source)


def test_what_opens_the_log_stays_behind(
    source: SqliteLog, target: SqliteLog, tmp_path: Path
) -> None:
    copy(source, target, tmp_path)
    openings = [
        record.offset
        for partition in range(target.partitions)
        for record in target.read(partition, 0, 10_000)
        if record.key == b"_system/log"
    ]
    assert openings == [0, 0]


def test_a_copy_names_its_original_and_leaves_the_trace_behind(
    source: SqliteLog, target: SqliteLog, tmp_path: Path
) -> None:
    (position,) = source.append(
        [Draft(key=b"t/one", value=b"x", headers=(("traceparent", b"00-..."), ("a", b"1")))]
    )
    copy(source, target, tmp_path)
    (record,) = target.of_key(b"t/one")
    assert record.headers == (("a", b"1"), (REPLAYED_FROM, str(position).encode()))


def test_running_again_copies_what_has_come_since(
    source: SqliteLog, target: SqliteLog, tmp_path: Path
) -> None:
    copy(source, target, tmp_path)
    assert copy(source, target, tmp_path).copied == 0
    source.append([entry_draft("s1", 100)])
    assert copy(source, target, tmp_path).copied == 1
    assert by_key(target) == by_key(source)


def test_a_lost_progress_file_costs_reading_and_doubles_nothing(
    source: SqliteLog, target: SqliteLog, tmp_path: Path
) -> None:
    copy(source, target, tmp_path / "one")
    again = copy(source, target, tmp_path / "other")
    assert (again.copied, again.already_there) == (0, 601)


class DyingTarget(LogTarget):
    """Appends, then dies before anybody can note that it did."""

    def __init__(self, log: SqliteLog, batches: int) -> None:
        super().__init__(log)
        self.batches = batches

    def append(self, originals: Sequence[LogRecord], drafts: Sequence[Draft]) -> None:
        super().append(originals, drafts)
        self.batches -= 1
        if not self.batches:
            raise KeyboardInterrupt


@pytest.mark.parametrize("batches", [1, 2])
def test_a_replay_that_is_killed_goes_on_without_a_record_twice(
    source: SqliteLog, target: SqliteLog, tmp_path: Path, batches: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        replay(LogSource(source), DyingTarget(target, batches), ALL, tmp_path)
    done = copy(source, target, tmp_path)
    assert done.copied < 601
    assert by_key(target) == by_key(source)


def test_sessions_offsets_and_times_select(
    source: SqliteLog, tmp_path: Path, clock: ManualClock
) -> None:
    partition = source.partition_of(b"t/s1")
    last = source.end(partition)
    selections = {
        "session": Selection(sessions=("t/s1",)),
        "range": Selection(ranges=(OffsetRange(partition, 1, 4),)),
        "time": Selection(since_ms=50_000_500, until_ms=50_000_520),
        "none": Selection(ranges=(OffsetRange(partition, last, last + 9),)),
    }
    found: dict[str, int] = {}
    for name, selection in selections.items():
        with closing(SqliteLog(tmp_path / name, clock, partitions=2)) as log:
            found[name] = copy(source, log, tmp_path, selection).copied
    assert found == {"session": 100, "range": 3, "time": 12, "none": 0}


def test_a_wider_selection_copies_the_rest_after_a_narrow_one(
    source: SqliteLog, target: SqliteLog, tmp_path: Path
) -> None:
    copy(source, target, tmp_path, Selection(sessions=("t/s1",)))
    done = copy(source, target, tmp_path)
    assert (done.copied, done.already_there) == (501, 100)
    # Append times do not go back within a partition, so those of the rest were moved up.
    assert values_by_key(target) == values_by_key(source)


def test_a_log_is_not_copied_into_itself(source: SqliteLog, tmp_path: Path) -> None:
    with pytest.raises(SameLog):
        copy(source, source, tmp_path)


def test_a_rate_holds_it_back(
    source: SqliteLog, target: SqliteLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    replay(LogSource(source), LogTarget(target), ALL, tmp_path, rate=100)
    # Nothing passes while it sleeps here, so each time it sees all that it is ahead by.
    assert 5 < slept[-1] <= 6.01


def test_progress_is_told_to_the_end(source: SqliteLog, target: SqliteLog, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    replay(
        LogSource(source),
        LogTarget(target),
        ALL,
        tmp_path,
        tell=lambda done, total: told.append((done, total)),
    )
    assert told[-1] == (605, 605)
    assert told == sorted(told)


def test_a_file_holds_entries_verbatim_and_gives_them_back(
    source: SqliteLog, target: SqliteLog, tmp_path: Path
) -> None:
    file = tmp_path / "out.jsonl"
    with closing(FileTarget(file)) as into:
        assert replay(LogSource(source), into, ALL, tmp_path).copied == 601
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[0]["entry"]["sessionId"] in {f"s{number}" for number in range(6)}
    assert sum("valueBase64" in line for line in lines) == 1

    assert replay(FileSource(file), LogTarget(target), ALL, tmp_path).copied == 601
    assert by_key(target) == by_key(source)


def test_a_file_cut_in_a_line_is_mended(source: SqliteLog, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    with closing(FileTarget(file)) as into:
        replay(LogSource(source), into, ALL, tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with closing(FileTarget(file)) as into:
        replay(LogSource(source), into, ALL, tmp_path)
    assert file.read_bytes() == whole


def test_a_file_of_something_else_is_refused_by_its_line(
    source: SqliteLog, target: SqliteLog, tmp_path: Path
) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text('{"type": "message"}\n')
    with pytest.raises(BadFile, match="line 1"):
        FileSource(file)
    with closing(FileTarget(file)) as into, pytest.raises(BadFile, match="line 1"):
        replay(LogSource(source), into, ALL, tmp_path)


def test_an_empty_file_is_an_empty_log(target: SqliteLog, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.touch()
    assert replay(FileSource(file), LogTarget(target), ALL, tmp_path).copied == 0
