"""Embedded to Kafka and back: same ids, same memory, the same rows byte by byte."""

from contextlib import closing
from pathlib import Path

import pytest
from ombus.cli import demo
from ombus.operator.replay import Replayed, Selection, replay
from ombus.operator.replay_logs import LogSource, LogTarget
from ombus.operator.verification import verify_folder
from ombus.settings import ProcessSettings
from ombus.wiring import open_engine, open_log
from ombus_schemas.topics import Topic
from ombus_streams.engine.created import LOG_KEY
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.runtime.ports import EntryLog
from ombus_streams.runtime.processor import Processor

from tests.kafka.conftest import Apply, OpenLog
from tests.kafka.logs import declared
from tests.support.engine import MemoryStore
from tests.support.replays import by_key

ALL = Selection()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a session, its memory and a compaction."""
    found = tmp_path_factory.mktemp("demo") / "data"
    demo.run(found)
    return found


def rows_of(log: EntryLog) -> list[dict[bytes, bytes]]:
    """Fold a log afresh and return the rows of each partition."""
    found: list[dict[bytes, bytes]] = []
    for partition in range(log.partitions):
        store = MemoryStore()
        processor = Processor(store, log, partition)
        while processor.step(200).n_records:
            pass
        found.append(dict(store.scan(b"")))
    return found


def copy(source: EntryLog, target: EntryLog, progress: Path) -> Replayed:
    return replay(LogSource(source), LogTarget(target), ALL, progress)


@pytest.fixture
def eight(apply: Apply, open_log: OpenLog, topic: Topic) -> KafkaLog:
    """As many partitions as a data folder has."""
    wide = declared(f"{topic.name}.eight", 8)
    apply([wide])
    return open_log(wide.name)


def test_a_data_folder_moves_to_kafka_and_back_with_equal_rows(
    folder: Path, eight: KafkaLog, tmp_path: Path
) -> None:
    back = tmp_path / "back"
    with closing(open_log(folder)) as source:
        there = copy(source, eight, tmp_path)
        assert there.copied > 90
        assert by_key(eight) == by_key(source)
        with closing(open_log(back)) as returned:
            assert copy(eight, returned, tmp_path).copied == there.copied
            assert by_key(returned) == by_key(source)
            rows = rows_of(source)
            assert rows_of(eight) == rows
            assert rows_of(returned) == rows
            assert sum(map(len, rows)) > 200

    with closing(open_engine(ProcessSettings(data=str(back)), owns=True)) as engine:
        engine.settle()
        found = verify_folder(engine)
        assert found.is_equal
        assert found.rows == sum(map(len, rows))


def test_another_number_of_partitions_keeps_sessions_and_times(
    folder: Path, log: KafkaLog, tmp_path: Path
) -> None:
    with closing(open_log(folder)) as source:
        copy(source, log, tmp_path)
        assert by_key(log) == by_key(source)


def test_what_opens_the_topic_stays_its_own(folder: Path, log: KafkaLog, tmp_path: Path) -> None:
    with closing(open_log(folder)) as source:
        copy(source, log, tmp_path)
    openings = [
        (record.partition, record.offset)
        for partition in range(log.partitions)
        for record in log.read(partition, 0, 10_000)
        if record.key == LOG_KEY
    ]
    assert openings == [(0, 0), (1, 0), (2, 0)]


def test_running_again_finds_all_of_it_there(folder: Path, log: KafkaLog, tmp_path: Path) -> None:
    with closing(open_log(folder)) as source:
        first = copy(source, log, tmp_path / "one")
        again = copy(source, log, tmp_path / "two")
        assert (again.copied, again.already_there) == (0, first.copied)
