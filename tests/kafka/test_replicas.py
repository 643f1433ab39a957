"""A partition folded beside its owner: as of the end asked at the read's start, or not at all."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.replicas import MAX_BATCH, Replicas
from ombus_streams.engine.kafka.store import RocksState
from ombus_streams.runtime.errors import NotServed

from tests.kafka.rocks import small_memory
from tests.kafka.traffic import drafts_of, traffic
from tests.kafka.transactions import transact
from tests.kafka.world import Place, append_all, embedded_rows, make_place, rows_in
from tests.support.brokers import Service

N_ENTRIES = 1_200
NO_TIME = timedelta()


@pytest.fixture
def place(kafka: Service, tmp_path: Path) -> Place:
    return make_place(kafka.address, tmp_path, partitions=2)


@pytest.fixture
def log(place: Place) -> Iterator[KafkaLog]:
    opened = KafkaLog(place.connection, place.topic)
    yield opened
    opened.close()


@pytest.fixture
def state(tmp_path: Path) -> Iterator[RocksState]:
    opened = RocksState(tmp_path / "replicas", small_memory())
    yield opened
    opened.close()


def test_a_replica_has_the_rows_of_the_log_up_to_its_end(
    log: KafkaLog, state: RocksState, tmp_path: Path
) -> None:
    entries = traffic(N_ENTRIES, 6)
    replicas = Replicas(log, state)
    append_all(log, drafts_of(entries[:-5]))
    replicas.keep_up(but_for=[1])
    assert state.opened() == {0}
    append_all(log, drafts_of(entries[-5:]))
    wanted = embedded_rows(log, tmp_path / "embedded")
    for partition in range(2):
        with replicas.rows(partition) as rows:
            position = rows.position()
            assert position is not None
            assert position.next_offset == log.end(partition) == replicas.folded(partition)
            assert rows_in(rows) == wanted[partition]


def test_a_replica_that_is_behind_says_how_far_it_is_and_goes_on_from_there(
    log: KafkaLog, state: RocksState
) -> None:
    drafts = [each for each in drafts_of(traffic(6_000, 6)) if log.partition_of(each.key) == 0]
    append_all(log, drafts)
    end, reached = log.end(0), list[int]()
    replicas = Replicas(log, state)
    while len(reached) < 2:
        with pytest.raises(NotServed) as caught:
            replicas.reach_end(0, NO_TIME)
        assert caught.value.folded is not None
        assert caught.value.end is not None
        assert caught.value.end.offset == end
        reached.append(caught.value.folded.offset)
    assert reached == [MAX_BATCH, 2 * MAX_BATCH]
    assert replicas.reach_end(0) == end == replicas.folded(0)


def test_a_replica_is_at_the_end_before_a_marker_whoever_wrote_it(
    place: Place, log: KafkaLog, state: RocksState
) -> None:
    replicas = Replicas(log, state)
    transact(place.connection, log, drafts_of(traffic(40, 6)))
    for partition in range(2):
        assert replicas.reach_end(partition) == replicas.folded(partition) == log.end(partition)
