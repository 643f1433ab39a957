"""The running worker on a real broker: same rows as the embedded engine, nothing lost or doubled.

Sizes are those of a default run; ``OMBUS_KAFKA_ENTRIES`` and ``OMBUS_KAFKA_ROUNDS`` make them full.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.snapshot import reading

from tests.kafka.child import Child, Told, settled
from tests.kafka.traffic import drafts_of, traffic
from tests.kafka.world import (
    Place,
    append_all,
    embedded_rows,
    make_place,
    rows_in,
    until,
    verified,
)
from tests.support.brokers import Service

N_ENTRIES: Final = int(os.environ.get("OMBUS_KAFKA_ENTRIES", "2000"))
N_ROUNDS: Final = int(os.environ.get("OMBUS_KAFKA_ROUNDS", "3"))


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


def test_the_same_log_gives_the_same_bytes_on_both_engines(
    place: Place, log: KafkaLog, tmp_path: Path
) -> None:
    append_all(log, drafts_of(traffic(N_ENTRIES, n_sessions=40)))
    child = Child(Told(place=place))
    until(lambda: settled(log, [child]), 90, "all is folded and every run has ended")
    assert child.status is not None
    n_runs = child.status.n_runs
    assert child.stop() == 0
    n_rows = assert_rows_are_the_log_s(log, place, tmp_path)
    assert n_runs > 20
    assert n_rows > N_ENTRIES
