"""The maps in Redis: one step at a time, forward only, whatever becomes of the server."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("redis", reason="the cache needs the extra redis")

from ombus.dev.processes import free_ports
from ombus_streams.engine.redis.connection import BadRedis, RedisConnection, Reply, Word
from ombus_streams.engine.redis.layout import FLIP, Layout
from ombus_streams.engine.redis.maps import RedisMaps
from ombus_streams.runtime.grant_fold import PartitionGrants, fold_all
from ombus_streams.runtime.grants import GrantsUnavailable

from tests.scopes.fleet import SCOPE, Owner
from tests.scopes.servers import Pair, Server, Watched, command, wait_until
from tests.support.brokers import Service
from tests.support.engine import ManualClock, MemoryLog

OPENING = "open"


class Topic:
    """A grants log of one partition, under an incarnation of its own, and its fold."""

    def __init__(self) -> None:
        self.incarnation = f"t{time.time_ns():x}"
        self.log = MemoryLog(ManualClock())
        self.owner = Owner(self.log, "owner")
        self.owner.take()

    def fold(self, up_to: int | None = None) -> PartitionGrants:
        found = PartitionGrants()
        fold_all(found, self.log.read(0, 0, len(self.log.records) if up_to is None else up_to))
        return found

    def publish(self, maps: RedisMaps) -> str:
        return maps.publish(self.incarnation, 0, self.fold())

    def read(self, maps: RedisMaps, owner: bytes = b"acme/owner") -> tuple[str, ...] | None:
        found = maps.snapshot(self.incarnation, 0, owner, SCOPE)
        if found is None:
            return None
        assert found.watermark.incarnation == self.incarnation
        return found.scope.granted(OPENING)

    def watermark(self, maps: RedisMaps) -> int | None:
        found = maps.snapshot(self.incarnation, 0, b"acme/owner", SCOPE)
        return None if found is None else found.watermark.next_offset


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def maps(redis: Service) -> Iterator[RedisMaps]:
    found = RedisMaps(RedisConnection(url=redis.address))
    yield found
    found.close()


@pytest.fixture
def pair(tmp_path: Path, redis: Service) -> Iterator[Pair]:
    assert redis.label
    found = Pair(tmp_path)
    yield found
    found.close()


def test_maps_and_watermark_move_together_and_by_what_changed(
    topic: Topic, maps: RedisMaps
) -> None:
    assert topic.read(maps) is None
    topic.owner.grant("p")
    assert topic.publish(maps) == "written"
    assert (topic.read(maps), topic.watermark(maps)) == (("p",), 2)
    topic.owner.grant("q")
    other = Owner(topic.log, "other", principal="bob")
    other.take()
    other.grant("r")
    assert topic.publish(maps) == "advanced"
    assert (topic.read(maps), topic.watermark(maps)) == (("p", "q"), 5)
    assert topic.read(maps, b"acme/other") == ("r",)
    topic.owner.revoke("p")
    assert topic.publish(maps) == "advanced"
    assert topic.read(maps) == ("q",)
    assert topic.publish(maps) == "current"


def test_a_record_that_changes_no_map_moves_the_watermark(topic: Topic, maps: RedisMaps) -> None:
    topic.publish(maps)
    topic.owner.revoke("nobody")
    assert topic.publish(maps) == "advanced"
    assert topic.watermark(maps) == 2


def test_who_is_behind_moves_nothing_back(topic: Topic, maps: RedisMaps) -> None:
    old = topic.fold()
    topic.owner.grant("p")
    topic.owner.revoke("p")
    topic.publish(maps)
    assert maps.publish(topic.incarnation, 0, old) == "ahead"
    assert (topic.read(maps), topic.watermark(maps)) == ((), 3)


def test_maps_of_another_history_are_written_anew(topic: Topic, maps: RedisMaps) -> None:
    lost = Topic()
    lost.owner.grant("p")
    assert maps.publish(topic.incarnation, 0, lost.fold()) == "written"
    topic.owner.revoke("p")
    topic.owner.grant("q")
    assert topic.publish(maps) == "written"
    assert topic.read(maps) == ("q",)


def test_what_is_beyond_the_log_is_overruled_only_when_told(topic: Topic, maps: RedisMaps) -> None:
    cut = topic.fold()
    topic.owner.grant("p")
    topic.publish(maps)
    assert maps.publish(topic.incarnation, 0, cut) == "ahead"
    assert maps.publish(topic.incarnation, 0, cut, overrules=True) == "written"
    assert (topic.read(maps), topic.watermark(maps)) == ((), 1)


def test_a_change_that_is_too_large_for_one_script_is_written_as_a_generation(
    topic: Topic, maps: RedisMaps
) -> None:
    topic.publish(maps)
    for n in range(70):
        owner = Owner(topic.log, f"s{n}", principal="bob")
        owner.take()
        owner.grant("p")
    assert topic.publish(maps) == "written"
    assert all(topic.read(maps, f"acme/s{n}".encode()) == ("p",) for n in range(70))


def test_an_owner_may_have_more_scopes_than_a_script_takes_words(
    topic: Topic, maps: RedisMaps
) -> None:
    for n in range(1_500):
        topic.owner.grant("p", scope_id=f"x{n}")
    topic.owner.grant("p")
    assert topic.publish(maps) == "written"
    assert topic.read(maps) == ("p",)


def test_old_generations_go_and_the_current_one_stays(
    topic: Topic, maps: RedisMaps, redis: Service
) -> None:
    topic.owner.grant("p")
    topic.publish(maps)
    lost = Topic()
    lost.owner.grant("q")
    maps.publish(topic.incarnation, 0, lost.fold(), overrules=True)
    assert maps.sweep(topic.incarnation, 0) == 1
    assert topic.read(maps) == ("q",)
    assert maps.sweep(topic.incarnation, 0) == 0
    client = RedisMaps(RedisConnection(url=redis.address))
    held = client.held(topic.incarnation, 0)
    assert held is not None
    client.close()


class Interrupted(RedisMaps):
    """Something happens to Redis right before a generation becomes the current one."""

    def __init__(self, connection: RedisConnection, before_flip: object) -> None:
        super().__init__(connection)
        self._before_flip = before_flip

    def _ask(self, *words: Word) -> Reply:
        if FLIP in words:
            assert callable(self._before_flip)
            self._before_flip()
        return super()._ask(*words)


def test_a_generation_of_which_a_part_was_lost_never_becomes_current(
    topic: Topic, maps: RedisMaps, redis: Service
) -> None:
    topic.owner.grant("p")
    connection = RedisConnection(url=redis.address)
    layout = Layout(topic.incarnation, 0)

    def lose() -> None:
        for name in maps._ask("HKEYS", layout.generations) or []:  # type: ignore[union-attr]
            assert isinstance(name, bytes)
            maps._ask("DEL", layout.owners(name.decode()))

    broken = Interrupted(connection, lose)
    assert topic.publish(broken) == "contended"
    broken.close()
    assert topic.read(maps) is None
    assert topic.publish(maps) == "written"


def test_a_generation_that_was_swept_meanwhile_never_becomes_current(
    topic: Topic, maps: RedisMaps, redis: Service
) -> None:
    topic.owner.grant("p")
    swept = Interrupted(
        RedisConnection(url=redis.address), lambda: maps.sweep(topic.incarnation, 0)
    )
    assert topic.publish(swept) == "contended"
    swept.close()
    assert topic.read(maps) is None


def test_a_reader_follows_a_generation_that_changed_under_it(
    topic: Topic, maps: RedisMaps, redis: Service
) -> None:
    reader = RedisMaps(RedisConnection(url=redis.address))
    topic.owner.grant("p")
    topic.publish(maps)
    assert topic.read(reader) == ("p",)
    topic.owner.revoke("p")
    maps.publish(topic.incarnation, 0, topic.fold(), overrules=True)
    maps.sweep(topic.incarnation, 0)
    assert topic.read(reader) == ()
    reader.close()


def test_a_failover_to_a_replica_that_missed_a_revocation_shows_in_the_watermark(
    topic: Topic, pair: Pair
) -> None:
    maps = RedisMaps(RedisConnection(url=pair.url))
    topic.owner.grant("p")
    topic.publish(maps)
    pair.await_replica()
    pair.detach()
    topic.owner.revoke("p")
    assert topic.publish(maps) == "advanced"
    pair.fail_over()
    assert (topic.read(maps), topic.watermark(maps)) == (("p",), 2)
    assert topic.publish(maps) == "advanced"
    assert (topic.read(maps), topic.watermark(maps)) == ((), 3)
    pair.fail_over()
    assert topic.watermark(maps) == 3
    maps.close()


def test_a_wiped_or_restarted_server_is_written_again(tmp_path: Path, topic: Topic) -> None:
    with Server(tmp_path) as server:
        maps = RedisMaps(RedisConnection(url=server.url))
        topic.owner.grant("p")
        topic.publish(maps)
        server.kill()
        with pytest.raises(GrantsUnavailable, match="redis://"):
            topic.read(maps)
        server.start()
        assert topic.read(maps) == ("p",)
        server.client().flushall()
        assert topic.read(maps) is None
        assert topic.publish(maps) == "written"
        assert topic.read(maps) == ("p",)
        maps.close()


def test_sentinels_lead_to_whom_they_have_promoted(tmp_path: Path, topic: Topic) -> None:
    watched = Watched(tmp_path)
    try:
        connection = RedisConnection(sentinels=watched.sentinels, sentinel_master=watched.NAME)
        maps = RedisMaps(connection)
        topic.owner.grant("p")
        topic.publish(maps)
        watched.await_replica()
        watched.servers[0].kill()
        wait_until(lambda: watched.primary_port() == watched.servers[1].port)

        def is_read() -> bool:
            try:
                return topic.read(maps) == ("p",)
            except GrantsUnavailable:
                return False

        wait_until(is_read)
        topic.owner.revoke("p")
        assert topic.publish(maps) == "advanced"
        assert topic.read(maps) == ()
        maps.close()
    finally:
        watched.close()


def test_a_cluster_keeps_a_partition_in_one_slot(tmp_path: Path, topic: Topic) -> None:
    bus = str(free_ports(1)[0])
    with Server(tmp_path, "--cluster-enabled", "yes", "--cluster-port", bus) as server:
        client = server.client()
        command(client, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: "'cluster_state': 'ok'" in str(command(client, "CLUSTER INFO")))
        maps = RedisMaps(RedisConnection(url=server.url, cluster=True))
        topic.owner.grant("p")
        assert topic.publish(maps) == "written"
        topic.owner.grant("q")
        assert topic.publish(maps) == "advanced"
        assert topic.read(maps) == ("p", "q")
        assert maps.sweep(topic.incarnation, 0) == 0
        maps.close()


def test_the_user_of_a_gateway_reads_and_cannot_write(tmp_path: Path, topic: Topic) -> None:
    with Server(tmp_path) as server:
        rules = ["on", ">word", "%R~ombus:*", "+eval_ro", "+hmget", "+hget"]
        command(server.client(), "ACL", "SETUSER", "gateway", *rules)
        granter = RedisMaps(RedisConnection(url=server.url))
        gateway = RedisMaps(RedisConnection(url=server.url, username="gateway", password="word"))
        topic.owner.grant("p")
        topic.publish(granter)
        assert topic.read(gateway) == ("p",)
        topic.owner.revoke("p")
        with pytest.raises(GrantsUnavailable, match=r"(?i)permission"):
            topic.publish(gateway)
        assert topic.read(gateway) == ("p",)
        granter.close()
        gateway.close()


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"url": "redis://h", "sentinels": "h:1"},
        {"sentinels": "h:1", "cluster": True},
        {"url": "http://h"},
        {"url": "redis://:word@h"},
        {"url": "redis://h", "timeout_ms": 0},
        {"url": "redis://h", "ssl_certfile": "c"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(said: dict[str, object]) -> None:
    with pytest.raises(BadRedis):
        RedisConnection(**said)  # type: ignore[arg-type]


def test_a_connection_prints_no_password() -> None:
    shown = repr(RedisConnection(url="redis://h", username="u", password="hunter2"))
    assert "hunter2" not in shown
