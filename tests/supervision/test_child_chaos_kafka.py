"""Supervision on a broker under kill -9; 15 rounds are `make supervision-chaos-kafka`."""

import os
from pathlib import Path

import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from tests.kafka.world import make_place
from tests.supervision.chaos import chaos
from tests.supervision.chaos_kafka import SUPERVISORS, Broker
from tests.support.brokers import Service

ROUNDS = int(os.environ.get("OMBUS_TEST_CHAOS_KAFKA_ROUNDS", "0"))


@pytest.mark.skipif(not ROUNDS, reason="a minute a round: make supervision-chaos-kafka")
def test_killed_processes_leave_each_delegation_one_end_on_kafka(
    kafka: Service, tmp_path: Path
) -> None:
    place = make_place(kafka.address, tmp_path, partitions=2)
    (tmp_path / "run").mkdir()
    ground = Broker(
        folder=tmp_path / "run",
        lease_ms=3_000,
        round_s=240.0,
        timeout_ms=120_000,
        helpers=SUPERVISORS,
        bootstrap=kafka.address,
        entries=place.topic,
        dead_letters=place.dead_letters,
        events=make_place(kafka.address, tmp_path, partitions=2).topic,
    )

    said = chaos(ROUNDS, seed=ROUNDS, least=0, ground=ground)

    print(said)
    assert "each with one end" in said
