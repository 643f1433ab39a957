"""Kafka's records as the log's, and back: the append time is the broker's or the original one.

The header that carries an original append time is the log's own. It is written for drafts that
have ``at_ms``, which replay alone sets, and taken off when a record is read; a caller's header of
that name goes nowhere (design.md section 3).
"""

from collections.abc import Sequence
from typing import Protocol

from ombus_schemas.headers import APPENDED_AT, appended_at_of

from ombus_streams.runtime.ports import Draft, LogRecord

Headers = tuple[tuple[str, bytes], ...]


class FetchedRecord(Protocol):
    """What aiokafka has of a record when it unpacks a batch."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


class KafkaRecord(FetchedRecord, Protocol):
    """What aiokafka's ``ConsumerRecord`` has of a record."""

    @property
    def partition(self) -> int: ...


def log_record(partition: int, record: FetchedRecord) -> LogRecord:
    """Return the record as every engine knows it."""
    if not record.headers:
        return LogRecord(
            partition=partition,
            offset=record.offset,
            key=record.key,
            value=record.value,
            at_ms=record.timestamp,
        )
    # A header may be null on the wire; everywhere else it is empty then.
    headers = tuple((name, value or b"") for name, value in record.headers)
    at_ms = appended_at_of(headers) if headers else None
    return LogRecord(
        partition=partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=_without_time(headers) if at_ms is not None else headers,
        at_ms=record.timestamp if at_ms is None else at_ms,
    )


def sent_headers(draft: Draft, at_ms: int | None) -> Headers:
    """Return the headers to send ``draft`` with; ``at_ms`` is its original append time."""
    headers = draft.headers
    if any(name == APPENDED_AT for name, _ in headers):
        headers = _without_time(headers)
    return headers if at_ms is None else (*headers, (APPENDED_AT, str(at_ms).encode()))


def _without_time(headers: Headers) -> Headers:
    return tuple(item for item in headers if item[0] != APPENDED_AT)
