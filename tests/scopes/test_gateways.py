"""Three gateways, one granter: what one acknowledges holds at the next read of every other."""

from pathlib import Path

import pytest

pytest.importorskip("aiokafka", reason="gateways share a log on Kafka")
pytest.importorskip("redis", reason="they read its maps in Redis")

from tests.scopes.over_http import stand
from tests.scopes.traffic import Traffic
from tests.support.brokers import Service

N_READS = 150
MAX_SECONDS = 6.0


def test_no_gateway_serves_what_another_has_revoked(
    tmp_path: Path, kafka: Service, redis: Service
) -> None:
    with stand(kafka.address, redis.address, tmp_path) as found:
        verdict = Traffic(found, N_READS, MAX_SECONDS).run()
    assert verdict.served == ()
    assert verdict.n_granted
    assert verdict.n_counted
