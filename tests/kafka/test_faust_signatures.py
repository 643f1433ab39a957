"""The private methods of faust-streaming and aiokafka that the transport relies on.

When one of these fails after an upgrade, read the method again before the pin is moved.
"""

import inspect
from importlib.metadata import version

import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

import aiokafka
import faust
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from faust.tables.recovery import Recovery
from faust.transport import consumer as transport
from faust.transport.drivers import aiokafka as driver

Owner = type


def test_the_versions_are_those_the_transport_was_read_against() -> None:
    assert version("faust-streaming") == "0.15.3"
    assert version("aiokafka").startswith("0.14.")


@pytest.mark.parametrize(
    ("owner", "name", "parameters", "is_async"),
    [
        (faust.App, "_new_transport", "self", False),
        (faust.App, "_create_directories", "self", False),
        (driver.Consumer, "_new_consumer_thread", "self", False),
        (driver.Consumer, "verify_event_path", "self now tp", False),
        (driver.AIOKafkaConsumerThread, "_create_worker_consumer", "self transport", False),
        (driver.AIOKafkaConsumerThread, "_seek_wait", "self consumer partitions", True),
        (transport.Consumer, "_drain_messages", "self fetcher", True),
        (transport.Consumer, "_wait_next_records", "self timeout", True),
        (transport.Consumer, "_filter_tps_with_pending_acks", "self topics", False),
        (transport.Consumer, "_new_offset", "self tp", False),
        (transport.Consumer, "perform_seek", "self", True),
        (transport.Consumer, "on_partitions_revoked", "self revoked", True),
        (transport.Consumer, "pause_partitions", "self tps", False),
        (transport.Consumer, "resume_partitions", "self tps", False),
        (transport.ThreadDelegateConsumer, "seek_wait", "self partitions", True),
        (transport.ThreadDelegateConsumer, "position", "self tp", True),
        (transport.ThreadDelegateConsumer, "highwater", "self tp", False),
        (transport.ThreadDelegateConsumer, "assignment", "self", False),
        (Recovery, "_resume_streams", "self generation_id", True),
        (Fetcher, "fetched_records", "self partitions timeout max_records", True),
        (aiokafka.AIOKafkaConsumer, "seek", "self partition offset", False),
        (AbstractPartitionAssignor, "assign", "cluster members", False),
        (AbstractPartitionAssignor, "metadata", "topics", False),
        (AbstractPartitionAssignor, "on_assignment", "assignment", False),
    ],
)
def test_a_method_the_transport_relies_on_is_as_it_was_read(
    owner: Owner, name: str, parameters: str, is_async: bool
) -> None:
    method = inspect.unwrap(getattr(owner, name))
    assert " ".join(inspect.signature(method).parameters) == parameters
    assert inspect.iscoroutinefunction(method) == is_async


def source(owner: Owner, name: str) -> str:
    method = getattr(owner, name)
    # What mode runs as a task is wrapped.
    return inspect.getsource(inspect.unwrap(getattr(method, "fun", method)))


def test_positions_are_sought_before_the_flow_is_resumed() -> None:
    """The hook for reading from the position row: nothing is handed over before it has run."""
    resuming = source(Recovery, "_resume_streams")
    assert resuming.index("consumer.perform_seek()") < resuming.index("consumer.resume_flow()")
    assert resuming.index("consumer.resume_partitions(") < resuming.index("consumer.perform_seek()")


def test_without_tables_every_assignment_goes_straight_to_resuming() -> None:
    assert "if not self.tables or" in source(Recovery, "_restart_recovery")


def test_offsets_are_committed_from_what_is_declared_durable() -> None:
    assert "self._filter_tps_with_pending_acks(" in source(transport.Consumer, "force_commit")
    assert "self._new_offset(tp)" in source(transport.Consumer, "_filter_committable_offsets")


def test_a_revocation_reaches_the_consumer_before_faust_pauses_anything() -> None:
    revoked = source(transport.Consumer, "on_partitions_revoked")
    assert "await T(self._on_partitions_revoked" in revoked
    assigned = source(transport.ConsumerThread, "on_partitions_revoked")
    assert "self.consumer.threadsafe_partitions_revoked(" in assigned


def test_the_assignor_is_read_from_the_consumer_when_it_starts() -> None:
    started = source(aiokafka.AIOKafkaConsumer, "start")
    assert "assignors=self._partition_assignment_strategy" in started


def test_how_a_consumer_fetches_is_read_when_it_starts() -> None:
    started = source(aiokafka.AIOKafkaConsumer, "start")
    assert "value_deserializer=self._value_deserializer" in started
    assert "fetch_max_wait_ms=self._fetch_max_wait_ms" in started


def test_an_unknown_reset_strategy_means_none() -> None:
    """``consumer_auto_offset_reset="none"``: a missing offset is an error, not another offset."""
    from aiokafka.consumer.fetcher import OffsetResetStrategy

    assert OffsetResetStrategy.from_str("none") == OffsetResetStrategy.NONE
