"""The running worker on a real broker: rows as the embedded engine's, nothing lost or doubled.

Sizes are those of a default run; ``OMBUS_TEST_KAFKA_ENTRIES`` and ``OMBUS_TEST_KAFKA_ROUNDS``
make them full.
"""

import asyncio
import os
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from aiokafka import AIOKafkaProducer
from ombus_schemas.codec import decode
from ombus_streams.engine.created import LOG_KEY
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.snapshot import reading
from ombus_streams.runtime.ports import Draft

from tests.kafka.admin import delete_before
from tests.kafka.child import Child, Told, settled
from tests.kafka.traffic import Feed, drafts_of, traffic, transcripts
from tests.kafka.transactions import transact
from tests.kafka.world import (
    Place,
    append_all,
    embedded_rows,
    ids_on,
    make_place,
    owed,
    records_of,
    rows_in,
    until,
    verified,
)
from tests.support.brokers import Service

N_ENTRIES: Final = int(os.environ.get("OMBUS_TEST_KAFKA_ENTRIES", "2000"))
N_ROUNDS: Final = int(os.environ.get("OMBUS_TEST_KAFKA_ROUNDS", "3"))
POISON: Final[tuple[tuple[bytes | None, bytes | None], ...]] = (
    (b"acme/s0", b"\xff\xfe{"),
    (b"acme/s0", None),
    (None, b'{"id":"x"}'),
    (b"acme/s0", b'["no", "entry"]'),
    (b"acme/other", b'{"id":"e1","sessionId":"s0","tenantId":"acme","kind":"event"}'),
    (b"acme/s0", b'{"nested":' + b"[" * 2_000 + b"]" * 2_000 + b"}"),
)


@pytest.fixture
def place(kafka: Service, tmp_path: Path) -> Place:
    return make_place(kafka.address, tmp_path)


@pytest.fixture
def log(place: Place) -> Iterator[KafkaLog]:
    opened = KafkaLog(place.connection, place.topic)
    yield opened
    opened.close()


def assert_rows_are_the_log_s(
    log: KafkaLog, place: Place, tmp_path: Path, role: str = "all", instance: str = "a"
) -> int:
    """Compare with the embedded engine byte by byte, and verify; return how many rows there are."""
    n_rows = 0
    for partition, expected in enumerate(embedded_rows(log, tmp_path / f"embedded-{role}")):
        rows = place.rows(instance, role, partition)
        with reading(rows) as live:
            assert rows_in(live) == expected
        found = verified(log, rows, partition, tmp_path / f"scratch-{role}")
        assert found.is_equal, found.differences
        n_rows += found.n_rows
    return n_rows


def folds(child: Child) -> bool:
    assert child.is_running, child.said()
    return child.status is not None and child.status.n_records > 0


def assert_every_entry_is_folded_once(
    drafts: list[Draft], place: Place, instance: str = "a"
) -> None:
    """Compare the ids that were sent with those the rows hold."""
    sent = {(draft.key, decode(draft.value).id) for draft in drafts}
    stored: list[tuple[bytes, str]] = []
    for partition in range(place.partitions):
        with reading(place.rows(instance, "all", partition)) as live:
            for key, _ in live.scan(b""):
                session, _, rest = key.partition(b"\x00")
                if session and rest.startswith(b"i"):
                    stored.append((session, rest[1:].decode()))
    assert len(stored) == len(set(stored))
    assert {each for each in stored if not each[1].startswith("om:")} == sent


def test_the_same_log_gives_the_same_bytes_on_both_engines(
    place: Place, log: KafkaLog, tmp_path: Path
) -> None:
    entries = [*traffic(N_ENTRIES, n_sessions=40), *transcripts()]
    append_all(log, drafts_of(entries))
    child = Child(Told(place=place))
    until(lambda: settled(log, [child]), 120, "all is folded and every run has ended")
    assert child.status is not None
    assert child.status.n_runs > 20
    assert child.stop() == 0
    n_rows = assert_rows_are_the_log_s(log, place, tmp_path)
    assert n_rows > len(entries)


def test_a_worker_killed_at_random_moments_loses_and_doubles_nothing(
    place: Place, log: KafkaLog, tmp_path: Path
) -> None:
    chance = random.Random(7)
    feeding = Feed(log, n_sessions=30, seed=7, per_second=150)
    for _ in range(N_ROUNDS):
        child = Child(Told(place=place, run_seconds=0.2))
        until(partial(folds, child), 60, "the worker folds")
        time.sleep(chance.uniform(0.0, 1.5))
        child.kill()
    drafts = feeding.end()
    child = Child(Told(place=place))
    until(lambda: settled(log, [child]), 120, "all is folded and every run has ended")
    assert child.stop() == 0
    assert_rows_are_the_log_s(log, place, tmp_path)
    assert_every_entry_is_folded_once(drafts, place)


def test_no_partition_waits_for_a_run(place: Place, log: KafkaLog) -> None:
    """200 sessions with runs of two seconds in flight, while entries keep coming."""
    child = Child(Told(place=place, run_seconds=2.0, max_runs=256))
    until(lambda: child.status is not None and child.status.is_ready, 60, "the worker is ready")
    feeding = Feed(log, n_sessions=200, seed=3, per_second=500, observe_tokens=60)
    most, deadline = 0, time.monotonic() + 45
    while most < 200 and time.monotonic() < deadline:
        assert child.status is not None
        most = max(most, child.status.n_runs_under_way)
        time.sleep(0.05)
    feeding.end()
    status = child.status
    assert status is not None
    assert child.stop() == 0
    print(
        f"\n{most} runs of 2 s in flight at most; from append to commit: median "
        f"{status.lag_ms_median} ms, max {status.lag_ms_max} ms"
    )
    assert most >= 200
    assert status.lag_ms_median is not None
    assert status.lag_ms_median < 2_000
    assert status.lag_ms_max is not None
    # One after the other, these runs take 400 s.
    assert status.lag_ms_max < 30_000


def test_poison_goes_to_the_dead_letters_and_its_partition_goes_on(
    place: Place, log: KafkaLog, tmp_path: Path
) -> None:
    """Case B35. The projector alone writes dead letters; the other roles fold the same rows."""
    entries = traffic(200, n_sessions=16, seed=5)
    append_all(log, drafts_of(entries[:100]))
    n_poison = produce_poison(place)
    append_all(log, drafts_of(entries[100:]))
    children = [Child(Told(place=place, role=role)) for role in ("projector", "observer")]
    for child in children:
        until(lambda child=child: settled(log, [child]), 90, "all is folded")  # type: ignore[misc]
    n_seen = [child.status.n_dead_letters for child in children if child.status is not None]
    assert [child.stop() for child in children] == [0, 0]
    assert n_seen == [n_poison, 0]
    for role in ("projector", "observer"):
        assert_rows_are_the_log_s(log, place, tmp_path, role)
    dead = KafkaLog(place.connection, place.dead_letters)
    letters = [record for record in records_of(dead, 0) if record.key != LOG_KEY]
    dead.close()
    places = [dict(letter.headers)["__streams.errors.offset"] for letter in letters]
    assert len(letters) == n_poison
    assert len(set(places)) > 1
    assert {letter.value for letter in letters} == {b"", *(each for _, each in POISON if each)}


def produce_poison(place: Place) -> int:
    """Put each poison on every partition; return how many there are."""

    async def run() -> int:
        producer = AIOKafkaProducer(bootstrap_servers=place.bootstrap)
        await producer.start()
        try:
            for partition in range(place.partitions):
                for key, value in POISON:
                    await producer.send_and_wait(place.topic, value, key, partition)
        finally:
            await producer.stop()
        return len(POISON) * place.partitions

    return asyncio.run(run())


def test_two_workers_join_and_leave_under_load(place: Place, log: KafkaLog, tmp_path: Path) -> None:
    feeding = Feed(log, n_sessions=30, seed=9, per_second=150)
    first = Child(Told(place=place, instance="a", run_seconds=1.0))
    until(partial(folds, first), 60, "the first worker folds")
    second = Child(Told(place=place, instance="b", run_seconds=1.0))
    until(lambda: shares(first) == shares(second) == 2, 60, "both have a half")
    until(lambda: first.status is not None and first.status.n_runs_under_way > 0, 60, "runs")
    assert first.stop() == 0
    drafts = feeding.end()
    until(lambda: settled(log, [second]), 120, "all is folded and every run has ended")
    assert second.stop() == 0
    assert_rows_are_the_log_s(log, place, tmp_path, instance="b")
    assert_every_entry_is_folded_once(drafts, place, instance="b")
    for partition in range(place.partitions):
        # The leaver's rows are those of the log up to where it left.
        rows = place.rows("a", "all", partition)
        assert verified(log, rows, partition, tmp_path / f"left-{partition}").is_equal
    for child in (first, second):
        # Nothing here leaves gaps in the offsets: what is skipped would be lost.
        assert child.events("offsets.skipped") == []
    ended = first.events("run.finished")
    given_up = {str(each["entry_id"]) for each in ended if each["outcome"] == "given_up"}
    # Decided again from the state: the same run where nothing that it read has changed since.
    assert given_up & ids_on(log)
    for partition in range(place.partitions):
        assert owed(place.rows("b", "all", partition)) == []


@pytest.mark.skipif(N_ROUNDS < 4, reason="make kafka-full")
def test_an_old_owner_that_wakes_up_changes_nothing(
    place: Place, log: KafkaLog, tmp_path: Path
) -> None:
    """Finding 2: paused past its session timeout, it wakes while another one owns its half."""
    feeding = Feed(log, n_sessions=30, seed=11, per_second=200)
    old = Child(Told(place=place, instance="a", run_seconds=0.5))
    until(partial(folds, old), 60, "the old owner folds")
    new = Child(Told(place=place, instance="b", run_seconds=0.5))
    until(lambda: shares(old) == shares(new) == 2, 60, "both have a half")
    old.pause()
    until(lambda: shares(new) == place.partitions, 60, "the new owner has all of it")
    old.wake()
    until(lambda: shares(old) == shares(new) == 2, 60, "the old one has its half again")
    feeding.end()
    until(lambda: settled(log, [old, new]), 120, "all is folded and every run has ended")
    assert [old.stop(), new.stop()] == [0, 0]
    for instance in ("a", "b"):
        for partition in range(place.partitions):
            rows = place.rows(instance, "all", partition)
            assert verified(log, rows, partition, tmp_path / f"{instance}-{partition}").is_equal


def shares(child: Child) -> int:
    return 0 if child.status is None else len(child.status.partitions)


def test_a_marker_at_the_end_of_a_partition_is_no_record_that_a_worker_waits_for(
    place: Place, log: KafkaLog, tmp_path: Path
) -> None:
    """Case B29: a partition is ready, and nothing of it waits, once its last record is folded."""
    drafts = drafts_of(traffic(120, n_sessions=8, seed=2))
    transact(place.connection, log, drafts[:40])
    child = Child(Told(place=place))
    until(lambda: is_level(child), 60, "the worker is ready")
    # Beyond the marker there is a gap in the offsets, which is no gap in the records.
    append_all(log, drafts[40:80])
    transact(place.connection, log, drafts[80:])
    until(lambda: settled(log, [child]) and is_level(child), 60, "all is folded")
    assert child.stop() == 0
    again = Child(Told(place=place))
    until(lambda: is_level(again), 60, "it is ready at once")
    assert again.stop() == 0
    for partition in range(place.partitions):
        rows = place.rows("a", "all", partition)
        assert verified(log, rows, partition, tmp_path / f"scratch-{partition}").is_equal


def is_level(child: Child) -> bool:
    status = child.status
    return (
        status is not None and status.is_ready and not any(each.lag for each in status.partitions)
    )


def test_a_worker_refuses_a_log_that_its_rows_do_not_belong_to(place: Place, log: KafkaLog) -> None:
    append_all(log, drafts_of(traffic(200, n_sessions=8, seed=4)))
    child = Child(Told(place=place))
    until(lambda: settled(log, [child]), 60, "all is folded")
    assert child.stop() == 0
    # The start of the log moves above the position, as retention does: its entries are gone.
    append_all(log, drafts_of(traffic(400, n_sessions=8, seed=4))[200:])
    delete_before(
        place.connection, place.topic, {partition: log.end(partition) - 1 for partition in range(3)}
    )
    for instance in ("a", "empty"):
        child = Child(Told(place=place, instance=instance))
        assert child.ended() != 0
        assert "the log starts at" in child.said()
        assert "restore a checkpoint that reaches it" in child.said()
