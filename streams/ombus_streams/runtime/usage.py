"""What runs have cost, kept beside the log: by day, tenant, worker, provider and model.

It is operational, not a fact of the session. A failed run costs as much as one that records
something, and leaves nothing on the log to carry a number; a run that two owners make costs twice,
and only the first result is folded; and equal inputs must give equal records. So each partition's
store keeps a row a day, written before a run for what it is expected to cost and after it for what
it did, and a process that dies in between has spent it.
"""

from collections.abc import Iterator
from typing import Final, Protocol

import msgspec

MAX_DAYS: Final = 62
"""Days kept; older rows are deleted when a new day begins."""
MAX_CACHED_DAYS: Final = 2
"""A run over midnight is booked on the day it began."""
_INDEX: Final = b"usage"


class OperationalRows(Protocol):
    """The part of a store that is kept and not derived from the log."""

    def get_operational(self, key: bytes) -> bytes | None: ...

    def put_operational(self, key: bytes, value: bytes | None) -> None: ...


class ReadableRows(Protocol):
    """The part of a snapshot that a report reads."""

    def get_operational(self, key: bytes) -> bytes | None: ...


class Spender(msgspec.Struct, frozen=True, array_like=True, order=True):
    """On whose account."""

    tenant: str
    worker: str
    provider: str
    model: str


class Spent(msgspec.Struct, frozen=True, array_like=True):
    """How much. Runs whose provider reports no usage count as what they were expected to cost."""

    n_runs: int = 0
    n_failed: int = 0
    n_turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """A part of the input."""
    reserved_tokens: int = 0
    """Of runs under way, or of a process that died in them."""

    @property
    def tokens(self) -> int:
        """What counts against a budget."""
        return self.input_tokens + self.output_tokens + self.reserved_tokens

    def __add__(self, other: "Spent") -> "Spent":
        mine, theirs = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return Spent(*(a + b for a, b in zip(mine, theirs, strict=True)))


_Rows = list[tuple[Spender, Spent]]
_DECODER: Final = msgspec.msgpack.Decoder(_Rows)
_DAYS: Final = msgspec.msgpack.Decoder(list[str])


class UsageBook:
    """The accounts of the partitions this process owns."""

    def __init__(self) -> None:
        self._stores: dict[int, OperationalRows] = {}
        self._days: dict[tuple[int, str], dict[Spender, Spent]] = {}

    def adopt(self, partition: int, store: OperationalRows) -> None:
        """Take the accounts of a partition over: what was spent before counts on."""
        self._stores[partition] = store
        self._forget(partition)

    def release(self, partition: int) -> None:
        """Leave a partition's accounts to its next owner."""
        self._stores.pop(partition, None)
        self._forget(partition)

    def add(self, partition: int, day: str, spender: Spender, spent: Spent) -> None:
        """Write ``spent`` to the account, durably where the partition has a store."""
        rows = self._rows(partition, day)
        is_new_day = not rows
        rows[spender] = rows.get(spender, Spent()) + spent
        store = self._stores.get(partition)
        if store is None:
            return
        if is_new_day:
            _begin_day(store, day)
        store.put_operational(_key(day), msgspec.msgpack.encode(sorted(rows.items())))

    def tokens(self, day: str, tenant: str | None = None) -> int:
        """Return what this process's partitions have spent that day, for one tenant or for all."""
        known = {partition for partition, each in self._days if each == day}
        return sum(
            spent.tokens
            for partition in known | self._stores.keys()
            for spender, spent in self._rows(partition, day).items()
            if tenant is None or spender.tenant == tenant
        )

    def _rows(self, partition: int, day: str) -> dict[Spender, Spent]:
        rows = self._days.get((partition, day))
        if rows is None:
            store = self._stores.get(partition)
            rows = dict(read_day(store, day)) if store is not None else {}
            self._days[(partition, day)] = rows
            cached = sorted(key for key in self._days if key[0] == partition)
            for old in cached[:-MAX_CACHED_DAYS]:
                del self._days[old]
        return rows

    def _forget(self, partition: int) -> None:
        for key in [key for key in self._days if key[0] == partition]:
            del self._days[key]


def days(rows: ReadableRows) -> list[str]:
    """Return the days a partition has accounts of, oldest first."""
    stored = rows.get_operational(_INDEX)
    return _DAYS.decode(stored) if stored is not None else []


def read_day(rows: ReadableRows, day: str) -> Iterator[tuple[Spender, Spent]]:
    """Yield the accounts of one day."""
    stored = rows.get_operational(_key(day))
    yield from _DECODER.decode(stored) if stored is not None else ()


def carry_over(source: ReadableRows, target: OperationalRows) -> None:
    """Copy all accounts: a state that is rebuilt has spent what the old one had."""
    for day in days(source):
        stored = source.get_operational(_key(day))
        if stored is not None:
            target.put_operational(_key(day), stored)
    index = source.get_operational(_INDEX)
    if index is not None:
        target.put_operational(_INDEX, index)


def _begin_day(store: OperationalRows, day: str) -> None:
    known = days(store)
    if day in known:
        return
    kept = sorted([*known, day])
    for old in kept[:-MAX_DAYS]:
        store.put_operational(_key(old), None)
    store.put_operational(_INDEX, msgspec.msgpack.encode(kept[-MAX_DAYS:]))


def _key(day: str) -> bytes:
    return _INDEX + b"\x00" + day.encode()
