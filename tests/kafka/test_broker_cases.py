"""Cases B29 to B33 on a real broker: what other stream processors got wrong at the log's edges.

B29's marker at the end is in ``tests/kafka/test_worker.py``.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from ombus.operator.checkpoints import newest, restore, save
from ombus.operator.depot import depot_at
from ombus.operator.kafka_verification import verify_rows
from ombus.wiring import SystemClock
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.runtime.ports import Draft

from tests.kafka.admin import delete_before
from tests.kafka.child import Child, Told, settled
from tests.kafka.test_worker import (
    assert_every_entry_is_folded_once,
    shares,
)
from tests.kafka.traffic import drafts_of, traffic
from tests.kafka.world import Place, append_all, make_place, position_in, state_folder, until
from tests.support.brokers import Service

PARTITIONS: Final = 2
QUIET: Final = 0.3


@pytest.fixture
def place(kafka: Service, tmp_path: Path) -> Place:
    return make_place(kafka.address, tmp_path, PARTITIONS)


@pytest.fixture
def log(place: Place) -> Iterator[KafkaLog]:
    with closing(KafkaLog(place.connection, place.topic)) as opened:
        yield opened


def entries(n_entries: int, seed: int) -> list[Draft]:
    return drafts_of(traffic(n_entries, n_sessions=8, seed=seed))


def assert_equal(place: Place, log: KafkaLog, instance: str = "a") -> None:
    found = verify_rows(state_folder(Path(place.folder), instance, "all"), log)
    assert (found.is_equal, found.lag) == (True, 0), found.differences


def test_partitions_without_an_entry_are_ready_and_the_first_entries_are_folded(
    place: Place, log: KafkaLog
) -> None:
    """B29: recovery waits for nothing where there is nothing."""
    child = Child(Told(place=place))
    until(lambda: child.status is not None and child.status.is_ready, 60, "the worker is ready")
    drafts = entries(40, seed=1)
    append_all(log, drafts)
    until(lambda: settled(log, [child], QUIET), 60, "all is folded")
    assert child.stop() == 0
    assert_equal(place, log)
    assert_every_entry_is_folded_once(drafts, place)


def test_a_log_that_starts_above_zero_is_folded_on_from_rows_and_from_a_checkpoint(
    place: Place, log: KafkaLog
) -> None:
    """B30: what retention has taken was folded before; nobody asks for it again."""
    drafts = entries(400, seed=2)
    append_all(log, drafts[:300])
    child = Child(Told(place=place))
    until(lambda: settled(log, [child], QUIET), 60, "all is folded")
    assert child.stop() == 0
    depot = depot_at(f"{place.folder}.depot")
    save(depot, state_folder(Path(place.folder), "a", "all"), "all", place.topic,
         SystemClock().now())  # fmt: skip
    # The last folded record must still be there: it says that the log is the same.
    position = position_in(place.rows("a", "all", 1))
    assert position is not None
    delete_before(place.connection, place.topic, {1: position.next_offset - 1})
    assert log.start(1) == position.next_offset - 1
    for checkpoint in newest(depot, log.incarnation, "all").values():
        restore(depot, checkpoint, state_folder(Path(place.folder), "b", "all"))
    append_all(log, drafts[300:])
    for instance in ("a", "b"):
        child = Child(Told(place=place, instance=instance))
        until(lambda child=child: settled(log, [child], QUIET), 60, "it folds on")  # type: ignore[misc]
        assert child.stop() == 0
        assert_every_entry_is_folded_once(drafts, place, instance)


def test_a_rebalance_in_the_middle_of_a_backlog_leaves_no_gap_and_folds_nothing_twice(
    place: Place, log: KafkaLog
) -> None:
    """B31 and B32: what was fetched for one owner is not handed to it after the other one came."""
    drafts = entries(1_500, seed=3)
    append_all(log, drafts)
    first = Child(Told(place=place, instance="a", max_batch=5, run_seconds=0.3))
    until(lambda: first.status is not None and first.status.n_records > 20, 60, "it folds")
    second = Child(Told(place=place, instance="b", max_batch=5, run_seconds=0.3))
    until(lambda: shares(first) == shares(second) == 1, 60, "each has one")
    until(lambda: settled(log, [first, second], QUIET), 120, "all is folded")
    assert [first.is_running, second.is_running] == [True, True]
    assert first.stop() == 0
    until(lambda: shares(second) == PARTITIONS, 60, "the second has both")
    until(lambda: settled(log, [second], QUIET), 60, "all is folded")
    assert second.stop() == 0
    assert_equal(place, log, "b")
    assert_every_entry_is_folded_once(drafts, place, "b")


def test_after_an_unclean_stop_exactly_the_rest_is_folded_whatever_the_group_has_committed(
    place: Place, log: KafkaLog
) -> None:
    """B33: rows are ahead of the committed offset, and they alone say where to read on."""
    drafts = entries(1_500, seed=4)
    append_all(log, drafts)
    child = Child(Told(place=place, max_batch=5))
    until(lambda: child.status is not None and child.status.n_records > 50, 60, "it folds")
    child.kill()
    rows = [position_in(place.rows("a", "all", each)) for each in range(PARTITIONS)]
    n_folded = sum(row.next_offset for row in rows if row is not None)
    assert n_folded > 50
    child = Child(Told(place=place))
    until(lambda: settled(log, [child], QUIET), 120, "all is folded")
    status = child.status
    assert status is not None
    assert status.n_records == sum(log.end(each) for each in range(PARTITIONS)) - n_folded
    assert child.stop() == 0
    assert_equal(place, log)
    assert_every_entry_is_folded_once(drafts, place)
