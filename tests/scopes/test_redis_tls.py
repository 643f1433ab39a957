"""The maps over TLS: by whose certificate a server is known, and by whose a client is."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("redis", reason="the cache needs the extra redis")

from ombus.dev.processes import HOST, free_ports
from ombus_streams.engine.redis.connection import RedisConnection
from ombus_streams.engine.redis.maps import RedisMaps
from ombus_streams.runtime.grants import GrantsUnavailable

from tests.scopes.servers import Server
from tests.scopes.test_redis_maps import Topic, topic
from tests.support.brokers import Service
from tests.support.certificates import self_signed

__all__ = ["topic"]


@pytest.fixture
def secured(tmp_path: Path, redis: Service) -> Iterator[RedisConnection]:
    """Yield how to reach a server that speaks to holders of its own certificate alone."""
    assert redis.label
    key, certificate = self_signed(tmp_path)
    (port,) = free_ports(1)
    options = f"--tls-port {port} --tls-auth-clients yes --tls-ca-cert-file {certificate}".split()
    named = ["--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    with Server(tmp_path / "redis", *options, *named):
        yield RedisConnection(
            url=f"rediss://{HOST}:{port}",
            ssl_cafile=str(certificate),
            ssl_certfile=str(certificate),
            ssl_keyfile=str(key),
        )


def test_maps_are_written_and_read_over_tls(secured: RedisConnection, topic: Topic) -> None:
    maps = RedisMaps(secured)
    topic.owner.grant("p")
    assert topic.publish(maps) == "written"
    assert topic.read(maps) == ("p",)
    maps.close()


@pytest.mark.parametrize(
    "without",
    [
        pytest.param({"ssl_cafile": None}, id="a server nobody vouches for"),
        pytest.param({"ssl_certfile": None, "ssl_keyfile": None}, id="a client without its own"),
    ],
)
def test_who_cannot_be_told_for_sure_is_denied(
    secured: RedisConnection, topic: Topic, without: dict[str, None]
) -> None:
    maps = RedisMaps(msgspec.structs.replace(secured, **without))
    with pytest.raises(GrantsUnavailable):
        topic.read(maps)
    maps.close()
