"""What the runtime needs of an engine; each passes one contract suite (design.md section 7)."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec


class Position(msgspec.Struct, frozen=True, order=True):
    """Where a record lies on the log; printed ``<incarnation>:<partition>:<offset>``."""

    incarnation: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.incarnation}:{self.partition}:{self.offset}"


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A record without a place yet: ``key`` is ``tenant/session``, ``value`` an encoded entry."""

    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()
    at_ms: int | None = None
    """The original append time, set by replay alone; the log stamps its own otherwise."""


class LogRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A record as the log keeps it. Anything may be in ``key`` and ``value``."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()
    at_ms: int
    """Append time: the broker's, or the original one of a replayed record."""


class PositionRow(msgspec.Struct, frozen=True, kw_only=True):
    """How far a store has folded a partition; written in the same transaction as the rows."""

    incarnation: str
    partition: int
    next_offset: int
    fold_version: int
    last_hash: str = ""
    """Hash of the last folded record: another one in its place means that the log was cut."""
    last_at_ms: int = 0


class Clock(Protocol):
    """Wall time, for timestamps and back-off; never for order."""

    def now(self) -> datetime:
        """Return an aware UTC instant."""
        ...


class EntryLog(Protocol):
    """The only source of truth: an ordered, partitioned, durable log of records."""

    @property
    def incarnation(self) -> str:
        """The identity of this log; positions of another one answer nothing here."""
        ...

    @property
    def partitions(self) -> int: ...

    def partition_of(self, key: bytes) -> int:
        """Return the partition of a key: the hash Kafka's default partitioner uses (murmur2)."""
        ...

    def append(self, drafts: Sequence[Draft]) -> tuple[Position, ...]:
        """Append and return positions in order; durable once this returns (fsync)."""
        ...

    def read(self, partition: int, offset: int, max_records: int) -> list[LogRecord]:
        """Return up to ``max_records`` from ``offset`` on, in order; empty at the end."""
        ...

    def start(self, partition: int) -> int:
        """Return the first offset still kept."""
        ...

    def end(self, partition: int) -> int:
        """Return where the records end: one past the last; what comes next lies there or beyond.

        A fold that has every record stands here.
        """
        ...

    def of_key(self, key: bytes, before: int | None = None) -> Iterator[LogRecord]:
        """Yield the records of one key in order, those below offset ``before`` if it is given."""
        ...


class StateStore(Protocol):
    """Rows of one processor and one partition. Keys sort as bytes."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return those of the rows that there are."""
        ...

    def scan(
        self, prefix: bytes, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows whose key begins with ``prefix``, in key order, or backwards.

        ``start`` (inclusive) is where to begin: the lowest key forwards, the highest backwards.
        """
        ...

    def position(self) -> PositionRow | None: ...

    def commit(
        self,
        rows: Mapping[bytes, bytes | None],
        expected: PositionRow | None,
        position: PositionRow,
        outbox: Sequence[bytes] = (),
    ) -> None:
        """Write rows (``None`` deletes), outbox and position in one transaction.

        Raises:
            StalePosition: the stored position is not ``expected``: an old owner, or a batch
                that was folded from elsewhere. Nothing is written.
        """
        ...

    def get_operational(self, key: bytes) -> bytes | None:
        """Return a row that is kept but not derived from the log (attempts, next times)."""
        ...

    def put_operational(self, key: bytes, value: bytes | None) -> None: ...

    def outbox(self, limit: int) -> list[tuple[int, bytes]]:
        """Return the oldest unsent emissions, in order."""
        ...

    def sent(self, up_to: int) -> None:
        """Delete the emissions up to number ``up_to``, included, once they are acknowledged."""
        ...

    def wipe(self) -> None:
        """Delete every row, the position row included."""
        ...

    def close(self) -> None: ...
