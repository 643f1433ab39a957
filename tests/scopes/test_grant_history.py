"""Concurrent grants, revocations and shared reads on Kafka and Redis, under whatever goes wrong.

``make grants-chaos READS=1000000`` runs the same for longer.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("aiokafka", reason="grants of a fleet are on Kafka")
pytest.importorskip("redis", reason="the cache needs the extra redis")

from ombus_schemas.ids import session_key
from ombus_streams.runtime.ports import Draft
from ombus_streams.runtime.shared_reads import SharedReads

from tests.kafka.transactions import transact
from tests.kafka.world import until
from tests.scopes.disturbance import Disturber
from tests.scopes.fleet import TENANT
from tests.scopes.servers import Pair
from tests.scopes.stand import BoundlessReads, CachedReads, Stand
from tests.scopes.traffic import Traffic
from tests.support.brokers import Service

N_READS = 2_000
MAX_SECONDS = 8.0
"""A busy machine reads less; what it has read is judged all the same."""
N_MUTATED = 10_000


@pytest.fixture
def pair(tmp_path: Path, redis: Service) -> Iterator[Pair]:
    assert redis.label
    found = Pair(tmp_path / "redis")
    yield found
    found.close()


def test_nothing_is_served_after_an_acknowledged_revocation(
    tmp_path: Path, kafka: Service, pair: Pair
) -> None:
    stand = Stand(tmp_path, kafka.address, pair.url)
    disturber = Disturber(stand, pair, seed=7, pause_s=0.15)
    try:
        verdict = Traffic(stand, N_READS, MAX_SECONDS).run()
    finally:
        disturber.close()
        stand.close()
    assert verdict.served == ()
    assert verdict.denied == ()
    assert verdict.n_counted
    assert verdict.n_granted


def test_a_shared_read_is_served_where_the_grants_end_in_a_marker(
    tmp_path: Path, kafka: Service, redis: Service
) -> None:
    stand = Stand(tmp_path, kafka.address, redis.address, n_owners=1, n_readers=1, n_granters=1)
    strange = Draft(key=session_key(TENANT, "o0"), value=b"{}", headers=())
    try:
        with stand.seats[0].open() as read:
            for n_times in range(2):
                stand.change("grant", "o0", "r0")
                transact(stand.kafka, stand.log, [strange])
                until(lambda: read("r0", "o0").reason is None, 30, "it is served")
                stand.change("revoke", "o0", "r0")
                transact(stand.kafka, stand.log, [strange], is_aborted=True)
                assert read("r0", "o0").seen == frozenset(), n_times
                until(lambda: read("r0", "o0").reason == "not_granted", 30, "it is denied")
    finally:
        stand.close()


@pytest.mark.parametrize("mutated", [CachedReads, BoundlessReads])
def test_the_checker_finds_a_map_that_is_cached_and_a_read_without_its_bound(
    tmp_path: Path, kafka: Service, redis: Service, mutated: type[SharedReads]
) -> None:
    stand = Stand(tmp_path, kafka.address, redis.address, kind=mutated)
    try:
        verdict = Traffic(stand, N_MUTATED).run()
    finally:
        stand.close()
    assert verdict.served
    assert verdict.n_reads <= N_MUTATED + 50 * len(stand.readers)
