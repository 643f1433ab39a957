"""Which log a topic is, by the first record that each partition still has. Needs no broker."""

from datetime import UTC, datetime

import msgspec
import pytest
from ombus_streams.engine.created import LOG_KEY, created
from ombus_streams.engine.kafka.broker_errors import OtherLog, TopicMissing
from ombus_streams.engine.kafka.identity import incarnation_of

AT = datetime(2026, 11, 30, tzinfo=UTC)


class First(msgspec.Struct, frozen=True, kw_only=True):
    """The first record of a partition."""

    partition: int
    offset: int = 0
    timestamp: int = 0
    key: bytes | None = LOG_KEY
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


def opening(partition: int, incarnation: str = "aa") -> First:
    value = created(incarnation, "cluster", "topic", partition, AT)
    return First(partition=partition, value=value)


def later(partition: int) -> First:
    return First(partition=partition, offset=7, key=b"t/s", value=b"{}")


def said(*firsts: First) -> str:
    by_partition = {first.partition: first for first in firsts}
    return incarnation_of("cluster", "topic", 2, by_partition)


def test_partitions_that_still_begin_say_which_log_it_is() -> None:
    assert said(opening(0), opening(1)) == "aa"
    assert said(later(0), opening(1)) == "aa"


def test_a_log_that_has_lost_every_beginning_is_none_and_names_the_way_out() -> None:
    with pytest.raises(TopicMissing, match=r"retention has taken .* `ombus restore` an archive"):
        said(later(0), later(1))


def test_partitions_of_two_logs_are_none() -> None:
    with pytest.raises(OtherLog, match="2 incarnations"):
        said(opening(0, "aa"), opening(1, "bb"))


def test_a_partition_nobody_opened_is_none() -> None:
    with pytest.raises(TopicMissing, match="is empty"):
        said(opening(0))
    with pytest.raises(TopicMissing, match="opens with another record"):
        said(opening(0), First(partition=1, key=b"t/s", value=b"{}"))
