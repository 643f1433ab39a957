"""The log as files and back: archived, wiped, restored, verified; and grown to more partitions."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from aiokafka.admin import AIOKafkaAdminClient
from ombus.cli.app import app
from ombus.operator.archives import (
    DamagedArchive,
    Gap,
    OtherArchive,
    archive,
    check,
    log_records,
    opened,
    records_of,
)
from ombus.operator.depot import depot_at
from ombus_streams.engine.created import LOG_KEY
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.runtime.ports import Draft, EntryLog, LogRecord
from ombus_streams.runtime.processor import Processor
from typer.testing import CliRunner

from tests.kafka.traffic import drafts_of, traffic
from tests.kafka.transactions import transact
from tests.kafka.world import Place, SystemClock, append_all, make_place, until
from tests.kafka.world import records_of as records_on
from tests.support.brokers import Service
from tests.support.engine import MemoryStore
from tests.support.replays import by_key

POISON = Draft(key=b"acme/s0", value=b"{ no JSON")


@pytest.fixture
def place(kafka: Service, tmp_path: Path) -> Place:
    return make_place(kafka.address, tmp_path, partitions=2)


def run(place: Place, *words: str) -> tuple[int, str]:
    shown = CliRunner().invoke(app, ["--data", place.folder, *words])
    return shown.exit_code, shown.output


def on_kafka(place: Place, *words: str, topic: str | None = None) -> tuple[int, str]:
    name = topic or place.topic
    return run(place, *words, "--bootstrap-servers", place.bootstrap, "--topic", name, "--json")


def rows_of(log: EntryLog) -> list[dict[bytes, bytes]]:
    found: list[dict[bytes, bytes]] = []
    for partition in range(log.partitions):
        store = MemoryStore()
        processor = Processor(store, log, partition, emits=False)
        while processor.step(500).n_records:
            pass
        found.append(dict(store.scan(b"")))
    return found


def test_a_topic_is_archived_wiped_restored_and_its_fold_is_equal(place: Place) -> None:
    entries = drafts_of(traffic(500, n_sessions=8))
    depot = f"{place.folder}/archive"
    with closing(KafkaLog(place.connection, place.topic)) as log:
        append_all(log, [*entries[:300], POISON])
        code, said = on_kafka(place, "archive", depot, "--from", "kafka")
        assert (code, json.loads(said)["nNewRecords"]) == (0, 303)
        append_all(log, entries[300:])
        code, said = on_kafka(place, "archive", depot, "--from", "kafka")
        assert (code, json.loads(said)["nNewRecords"]) == (0, 200)
        rows, sessions, incarnation = rows_of(log), by_key(log), log.incarnation
    wiped(place)
    with closing(KafkaLog(place.connection, place.topic)) as log:
        assert log.incarnation != incarnation
        assert len(list(records_on(log, 0))) == 1
        code, said = on_kafka(place, "restore", depot, "--to", "kafka")
        assert code == 0, said
        assert json.loads(said)["equal"]
        assert json.loads(said)["copied"] == 501
        assert by_key(log) == sessions
        assert rows_of(log) == rows
        code, said = on_kafka(place, "restore", depot, "--to", "kafka")
        assert (code, json.loads(said)["copied"]) == (0, 0)
    assert run(place, "archive", depot, "--check")[0] == 0


def test_a_topic_with_markers_of_transactions_is_archived_whole(place: Place) -> None:
    entries, depot = drafts_of(traffic(120, n_sessions=8)), f"{place.folder}/archive"
    with closing(KafkaLog(place.connection, place.topic)) as log:
        append_all(log, entries[:40])
        transact(place.connection, log, entries[40:60])
        append_all(log, entries[60:80])
        transact(place.connection, log, entries[80:100], is_aborted=True)
        for n_new in (102, 0):
            code, said = on_kafka(place, "archive", depot, "--from", "kafka")
            assert (code, json.loads(said)["nNewRecords"]) == (0, n_new), said
        append_all(log, entries[100:])
        code, said = on_kafka(place, "archive", depot, "--from", "kafka")
        assert (code, json.loads(said)["nNewRecords"]) == (0, 20), said
        held = check(depot_at(depot))
        kept = [each for segment in held.segments for each in records_of(depot_at(depot), segment)]
        assert sorted(kept, key=place_of) == [
            each for partition in range(2) for each in log_records(log, partition, 0, 1_000)
        ]


def place_of(record: LogRecord) -> tuple[int, int]:
    return record.partition, record.offset


def wiped(place: Place) -> None:
    """Delete the topic with all it holds and make it anew."""

    async def ask(deletes: bool) -> list[str]:
        admin = AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)
        await admin.start()
        try:
            if deletes:
                await admin.delete_topics([place.topic])
            return list(await admin.list_topics())
        finally:
            await admin.close()

    asyncio.run(ask(True))
    until(lambda: place.topic not in asyncio.run(ask(False)), 30, "the topic is gone")
    code, said = run(
        place, "topics", "create", place.topic, "--partitions", str(place.partitions),
        "--bootstrap-servers", place.bootstrap,
    )  # fmt: skip
    assert code == 0, said


def test_more_partitions_are_another_topic_with_the_same_memory(place: Place) -> None:
    wide = f"{place.topic}.wide"
    servers = ("--bootstrap-servers", place.bootstrap)
    entries = drafts_of(traffic(400, n_sessions=8))
    replays = ("replay", "--from", "kafka", "--to", "kafka", "--source-topic", place.topic)
    with closing(KafkaLog(place.connection, place.topic)) as log:
        append_all(log, entries[:300])
        assert run(place, "topics", "create", wide, "--partitions", "5", *servers)[0] == 0
        assert on_kafka(place, *replays, topic=wide)[0] == 0
        # Written while it was copied; nobody writes any more when the rest is.
        append_all(log, entries[300:])
        code, said = on_kafka(place, *replays, topic=wide)
        assert (code, json.loads(said)["copied"]) == (0, 100)
        with closing(KafkaLog(place.connection, wide)) as grown:
            assert grown.partitions == 5
            assert by_key(grown) == by_key(log)
            assert sessions_in(rows_of(grown)) == sessions_in(rows_of(log))
            assert sum(bool(sessions_in([each])) for each in rows_of(grown)) > 2


def sessions_in(rows: list[dict[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the rows of sessions, whatever partition they lie in."""
    return {
        key: value for each in rows for key, value in each.items() if not key.startswith(b"\x00")
    }


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    opened_log = SqliteLog(tmp_path / "log", SystemClock(), partitions=2)
    append = drafts_of(traffic(200, n_sessions=6))
    opened_log.append(append)
    yield opened_log
    opened_log.close()


def test_a_killed_archive_goes_on_where_its_manifest_ends(log: SqliteLog, tmp_path: Path) -> None:
    depot = depot_at(str(tmp_path / "archive"))
    whole = archive(depot_at(str(tmp_path / "whole")), log, "t", segment_bytes=8_000)
    assert whole.n_segments > 6

    class Dies:
        """A place whose process ends with the fourth manifest."""

        name, put, read, fetch = depot.name, depot.put, depot.read, depot.fetch
        names, delete = depot.names, depot.delete
        n_left = 3

        def write(self, name: str, value: bytes) -> None:
            self.n_left -= 1
            if self.n_left < 0:
                raise KeyboardInterrupt
            depot.write(name, value)

    with pytest.raises(KeyboardInterrupt):
        archive(Dies(), log, "t", segment_bytes=8_000)
    assert len(opened(depot).segments) == 3
    archive(depot, log, "t", segment_bytes=8_000)
    assert check(depot).segments == opened(depot_at(str(tmp_path / "whole"))).segments


def test_a_changed_or_lost_segment_is_named(log: SqliteLog, tmp_path: Path) -> None:
    depot = depot_at(str(tmp_path / "archive"))
    archive(depot, log, "t", segment_bytes=8_000)
    segment = opened(depot).segments[1]
    value = depot.read(segment.name)
    depot.write(segment.name, value[:-1] + bytes([value[-1] ^ 1]))
    with pytest.raises(DamagedArchive, match=segment.name):
        check(depot)
    shown = CliRunner().invoke(app, ["archive", str(tmp_path / "archive"), "--check"])
    assert shown.exit_code == 1
    depot.delete(segment.name)
    with pytest.raises(DamagedArchive, match="has lost a segment"):
        check(depot)


def test_the_archive_of_another_log_and_a_gap_are_refused(log: SqliteLog, tmp_path: Path) -> None:
    depot = depot_at(str(tmp_path / "archive"))
    archive(depot, log, "t")

    class Moved:
        """The same log after retention has taken its beginning."""

        incarnation, partitions = log.incarnation, log.partitions
        end, read, append, of_key = log.end, log.read, log.append, log.of_key
        partition_of = log.partition_of

        def start(self, partition: int) -> int:
            return log.end(partition) + 5

    with pytest.raises(Gap, match="what lay between is lost"):
        archive(depot, Moved(), "t")
    other = SqliteLog(tmp_path / "other", SystemClock(), partitions=2)
    with pytest.raises(OtherArchive, match="name another place"):
        archive(depot, other, "t")
    other.close()


def test_a_data_folder_is_archived_and_restored(log: SqliteLog, tmp_path: Path) -> None:
    folder, back = str(tmp_path / "log"), str(tmp_path / "back")
    depot = str(tmp_path / "archive")
    assert CliRunner().invoke(app, ["--data", folder, "archive", depot]).exit_code == 0
    done = CliRunner().invoke(app, ["restore", depot, "--to", "sqlite", "--into", back])
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1] == "restore: equal"
    with closing(SqliteLog(Path(back), SystemClock())) as restored:
        assert by_key(restored) == by_key(log)
        assert LOG_KEY not in by_key(restored)
