"""Fetched records become the log's at once, without one of aiokafka's in between.

Its own record is a frozen dataclass of eleven fields: making it costs as much as all else between
the socket and the fold. A consumer with ``to_log_records`` as its value deserializer gives
``LogRecord``; every other consumer of the process is as it was.
"""

from typing import Any

from aiokafka import TopicPartition
from aiokafka.consumer import fetcher

from ombus_streams.engine.kafka.leniency import tolerate_header_names
from ombus_streams.engine.kafka.records import FetchedRecord, log_record


def unpack_to_log_records() -> None:
    """Let consumers of this process ask for the log's records, poison included. Idempotent.

    It replaces the class by which aiokafka's fetcher gives out what it unpacks; a test says that
    the name is still there.
    """
    tolerate_header_names()
    fetcher.PartitionRecords = LogRecords


def to_log_records(value: bytes | None) -> bytes | None:
    """Mark a consumer as one that gives the log's records. It is never called."""
    raise AssertionError("the fetcher does not unpack with LogRecords")


class LogRecords(fetcher.PartitionRecords):  # type: ignore[misc]  # aiokafka is untyped
    """What was fetched of a partition, record by record."""

    def _consumer_record(self, tp: TopicPartition, record: FetchedRecord) -> Any:
        if self._value_deserializer is to_log_records:
            return log_record(tp.partition, record)
        return super()._consumer_record(tp, record)
