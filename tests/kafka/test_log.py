"""What the contract suite cannot ask of every log: headers, times, sizes, brokers that go away."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

import pytest
from aiokafka.errors import (
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from ombus.dev import kafka as dev_kafka
from ombus_schemas.headers import APPENDED_AT
from ombus_schemas.limits import MAX_ENTRY_BYTES, MAX_RECORD_BYTES
from ombus_schemas.topics import ENTRIES
from ombus_streams.engine.kafka import topics
from ombus_streams.engine.kafka.appender import Compression
from ombus_streams.engine.kafka.broker_errors import (
    BrokerError,
    BrokerRefused,
    BrokerUnavailable,
    NotPermitted,
    TopicMissing,
    broker_error,
)
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.runtime.errors import Closed, LimitExceeded
from ombus_streams.runtime.pages import pages
from ombus_streams.runtime.ports import Draft

from tests.kafka.admin import delete_before
from tests.kafka.conftest import OpenLog, WallClock
from tests.kafka.logs import declared
from tests.kafka.transactions import transact
from tests.support.brokers import Service
from tests.support.proxy import Proxy
from tests.support.replays import entry_draft


def draft(value: bytes, key: bytes = b"t/s", **fields: object) -> Draft:
    return Draft(key=key, value=value, **fields)  # type: ignore[arg-type]  # as given


def test_an_entry_s_headers_can_be_read_by_every_client(log: KafkaLog) -> None:
    sent = entry_draft("s", 0)
    (position,) = log.append([sent])
    (record,) = log.read(position.partition, position.offset, 1)
    assert record.headers == sent.headers
    assert dict(record.headers)["ce_type"] == b"ombus.entry.message"


def test_the_time_is_the_broker_s(log: KafkaLog) -> None:
    before = int(time.time() * 1_000)
    log.append([draft(b"1")])
    (record,) = log.of_key(b"t/s")
    assert before - 1_000 <= record.at_ms <= int(time.time() * 1_000) + 1_000


def test_only_replay_sets_the_original_time(log: KafkaLog) -> None:
    forged = ((APPENDED_AT, b"5"), ("a", b"1"))
    log.append([draft(b"forged", headers=forged), draft(b"replayed", headers=forged, at_ms=7)])
    first, second = log.of_key(b"t/s")
    assert first.at_ms > 1_000_000_000_000
    assert second.at_ms == 7
    assert first.headers == second.headers == (("a", b"1"),)


@pytest.mark.parametrize("size", [MAX_ENTRY_BYTES, 2_000_000, 1_048_577])
def test_an_entry_as_large_as_entries_may_be_passes(log: KafkaLog, size: int) -> None:
    value = bytes(range(256)) * (size // 256)
    (position,) = log.append([draft(value, headers=entry_draft("s", 0).headers)])
    (record,) = log.read(position.partition, position.offset, 1)
    assert record.value == value


def test_a_record_above_the_topic_s_cap_is_refused_before_anything_is_sent(log: KafkaLog) -> None:
    with pytest.raises(LimitExceeded, match="the topic takes"):
        log.append([draft(b"small"), draft(b"x" * MAX_RECORD_BYTES)])
    assert list(log.of_key(b"t/s")) == []
    log.append([draft(b"next")])
    assert [record.value for record in log.of_key(b"t/s")] == [b"next"]


def test_an_append_larger_than_a_batch_keeps_its_order(log: KafkaLog) -> None:
    values = [b"%04d" % number + b"x" * 100_000 for number in range(80)]
    positions = log.append([draft(value) for value in values])
    assert [record.value for record in log.of_key(b"t/s")] == values
    assert [each.offset for each in positions] == list(range(1, 81))


@pytest.mark.parametrize("compression", ["gzip", "lz4", "snappy", "zstd", "none"])
def test_what_is_compressed_comes_back(
    log: KafkaLog, open_log: OpenLog, compression: Compression
) -> None:
    other = open_log(log.topic, compression=compression)
    other.append([draft(b"x" * 10_000), draft(b"y")])
    assert [record.value for record in log.of_key(b"t/s")] == [b"x" * 10_000, b"y"]


def test_many_readers_and_writers_share_one_log(log: KafkaLog) -> None:
    def write(thread: int) -> None:
        for number in range(30):
            log.append([draft(b"%d" % number, key=f"t/{thread}".encode())])

    def read(thread: int) -> int:
        return sum(len(log.read(thread % 3, offset, 50)) for offset in range(0, 60, 7))

    with ThreadPoolExecutor(12) as pool:
        writing = [pool.submit(write, thread) for thread in range(6)]
        reading = [pool.submit(read, thread) for thread in range(6)]
        for written in writing:
            written.result()
        assert all(found.result() for found in reading)
    for thread in range(6):
        values = [record.value for record in log.of_key(f"t/{thread}".encode())]
        assert values == [b"%d" % number for number in range(30)]


def test_starts_and_ends_are_asked_at_once(log: KafkaLog) -> None:
    (position,) = log.append([draft(b"1")])
    bounds = log.bounds()
    assert bounds[position.partition] == (0, 2)
    assert len(bounds) == 3
    assert log.ends() == {partition: end for partition, (_, end) in bounds.items()}


def test_markers_of_transactions_are_no_records_and_hold_no_reader_up(
    log: KafkaLog, connection: Connection
) -> None:
    partition = log.partition_of(b"t/s")
    log.append([draft(b"1")])
    transact(connection, log, [draft(b"2")])
    log.append([draft(b"4")])
    transact(connection, log, [draft(b"5")], is_aborted=True)
    assert log.end(partition) == log.bounds()[partition][1] == 6
    for n_records in (1, 2, 3, 1_000):
        found = [each.offset for page in pages(log, partition, 0, 7, n_records) for each in page]
        assert found == [0, 1, 2, 4, 5]  # 3 and 6 are markers.
    assert [each.offset for each in log.read(partition, 3, 1)] == [4]
    assert log.read(partition, 6, 10) == log.read(partition, 6, 10) == []
    assert [each.value for each in log.of_key(b"t/s")] == [b"1", b"2", b"4", b"5"]
    log.append([draft(b"7")])
    assert [each.offset for each in log.read(partition, 6, 10)] == [7]


def test_a_log_ends_behind_its_last_record_whatever_lies_beyond(
    log: KafkaLog, connection: Connection, open_log: OpenLog
) -> None:
    partition = log.partition_of(b"t/s")
    other = next(b"t/%d" % n for n in range(99) if log.partition_of(b"t/%d" % n) != partition)
    transact(connection, log, [draft(b"1"), Draft(key=other, value=b"1", headers=())], n_at_once=10)
    for each in (log, open_log(log.topic)):
        bounds = each.bounds()
        assert bounds.pop(partition) == bounds.pop(log.partition_of(other)) == (0, 11)
        assert [*bounds.values()] == [(0, 1)]
        assert (each.start(partition), each.end(partition)) == (0, 11)
    (position,) = log.append([draft(b"2")])
    assert position.offset == 21
    assert open_log(log.topic).end(partition) == log.end(partition) == 22


def test_a_partition_whose_records_were_all_deleted_ends_where_it_starts(
    log: KafkaLog, connection: Connection, open_log: OpenLog
) -> None:
    partition = log.partition_of(b"t/s")
    transact(connection, log, [draft(b"1")])
    assert log.end(partition) == 2
    asks_first = [open_log(log.topic), open_log(log.topic)]
    for offset in (2, 3):  # First the marker is left, then nothing.
        delete_before(connection, log.topic, {partition: offset})
        for each in (log, asks_first.pop()):
            assert each.bounds()[partition] == (offset, offset)


def test_what_lies_from_one_offset_to_another_ends_there_whatever_is_missing_between(
    log: KafkaLog, connection: Connection
) -> None:
    partition = log.partition_of(b"t/s")
    transact(connection, log, [draft(b"1")])
    log.append([draft(b"%d" % number) for number in range(3, 8)])
    found = [each.offset for page in pages(log, partition, 0, 5, 1_000) for each in page]
    assert found == [0, 1, 3, 4]


def test_a_replayed_time_does_not_go_back_behind_a_marker(
    log: KafkaLog, connection: Connection
) -> None:
    transact(connection, log, [draft(b"1")])
    log.append([draft(b"2", at_ms=7)])
    before, after = log.of_key(b"t/s")
    assert after.at_ms == before.at_ms


def test_a_closed_log_says_so(log: KafkaLog) -> None:
    log.close()
    log.close()
    with pytest.raises(Closed):
        log.append([draft(b"1")])
    with pytest.raises(Closed):
        log.end(0)


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (TopicAuthorizationFailedError("t"), NotPermitted),
        (SaslAuthenticationFailed("no"), NotPermitted),
        (UnknownTopicOrPartitionError("t"), TopicMissing),
        (NotEnoughReplicasError(), BrokerUnavailable),
        (TimeoutError(), BrokerUnavailable),
        (ConnectionRefusedError(111, "refused"), BrokerUnavailable),
        (MessageSizeTooLargeError("n"), BrokerRefused),
    ],
)
def test_each_refusal_has_its_kind(cause: Exception, kind: type[BrokerError]) -> None:
    error = broker_error("topic t", cause)
    assert type(error) is kind
    assert str(error).startswith("topic t: ")


@pytest.fixture(scope="module")
def own_cluster(
    kafka: Service, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dev_kafka.Cluster]:
    """A broker that tests may kill."""
    folder = tmp_path_factory.mktemp("own") / "kafka"
    assert kafka
    try:
        yield dev_kafka.up(folder)
    finally:
        dev_kafka.down(folder, wipe=True)


def test_a_client_that_comes_through_a_proxy_stays_behind_it_and_outlives_cuts(
    own_cluster: dev_kafka.Cluster,
) -> None:
    (broker,) = own_cluster.brokers
    topic = declared("test.proxied", 1, like=ENTRIES)
    straight = Connection(bootstrap_servers=own_cluster.bootstrap)
    asyncio.run(topics.apply(straight, WallClock(), [topic]))
    with Proxy(broker.advertised_port, broker.proxied_port) as proxy:
        behind = Connection(bootstrap_servers=f"127.0.0.1:{broker.advertised_port}")
        with closing(KafkaLog(behind, topic.name)) as log:
            for number in range(5):
                log.append([draft(b"%d" % number)])
                proxy.cut()
            assert proxy.n_connections > 5
            values = [record.value for record in log.of_key(b"t/s")]
            assert values == [b"%d" % number for number in range(5)]


def test_appends_outlive_a_broker_that_is_killed_and_started_again(
    own_cluster: dev_kafka.Cluster,
) -> None:
    """Nothing acknowledged is lost, nothing is doubled, and each session keeps its order."""
    connection = Connection(bootstrap_servers=own_cluster.bootstrap)
    topic = declared("test.killed", 2, like=ENTRIES)
    asyncio.run(topics.apply(connection, WallClock(), [topic]))
    log = KafkaLog(connection, topic.name, timeout=timedelta(seconds=60))
    acknowledged: dict[int, int] = {}
    stop = threading.Event()

    def write(thread: int) -> None:
        number = 0
        while not stop.is_set():
            log.append([draft(b"%d" % number, key=f"t/{thread}".encode())])
            acknowledged[thread] = number = number + 1

    with ThreadPoolExecutor(4) as pool:
        try:
            writing = [pool.submit(write, thread) for thread in range(4)]
            _until(lambda: len(acknowledged) == 4)
            before = dict(acknowledged)
            own_cluster.process(1).kill()
            with pytest.raises(BrokerUnavailable):
                KafkaLog(connection, topic.name, timeout=timedelta(seconds=2))
            own_cluster.start(1)
            own_cluster.wait()
            _until(lambda: all(acknowledged[each] > before[each] + 20 for each in before))
        finally:
            stop.set()
    try:
        for each in writing:
            each.result()
        for thread in range(4):
            values = [record.value for record in log.of_key(f"t/{thread}".encode())]
            assert values == [b"%d" % number for number in range(acknowledged[thread])]
    finally:
        log.close()


def test_an_append_nobody_acknowledges_ends_in_time_and_is_not_sent_later(
    own_cluster: dev_kafka.Cluster,
) -> None:
    connection = Connection(bootstrap_servers=own_cluster.bootstrap)
    topic = declared("test.silent", 1, like=ENTRIES)
    asyncio.run(topics.apply(connection, WallClock(), [topic]))
    log = KafkaLog(connection, topic.name, timeout=timedelta(seconds=3))
    try:
        log.append([draft(b"before")])
        own_cluster.process(1).kill()
        for number in range(3):
            with pytest.raises(BrokerUnavailable):
                log.append([draft(b"lost %d" % number)])
        own_cluster.start(1)
        own_cluster.wait()
        _appended(log, draft(b"after"))
        values = [record.value for record in log.of_key(b"t/s")]
        # The first one was on its way when it was given up; those behind it never were.
        assert values in ([b"before", b"after"], [b"before", b"lost 0", b"after"])
    finally:
        log.close()


def _appended(log: KafkaLog, sent: Draft) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            log.append([sent])
            return
        except BrokerUnavailable:
            if time.monotonic() > deadline:
                raise


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)
