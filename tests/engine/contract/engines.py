"""The engines the contract suite runs against, by name, so that a child process finds them too."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

import msgspec
import pytest
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.engine.embedded.store import SqliteStore, StateFile
from ombus_streams.memory.rows import Rows
from ombus_streams.runtime.ports import Clock, EntryLog, PositionRow, StateStore

from tests.support.brokers import KAFKA

PARTITIONS: Final = 4


class ClosableLog(EntryLog, Protocol):
    def close(self) -> None: ...


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """How to open what lies at a place. Opening the same place twice gives two handles on it."""

    log: Callable[[Path, Clock], ClosableLog]
    store: Callable[[Path, int], StateStore]


class ManualClock:
    """Stands still until it is set."""

    def __init__(self, at_ms: int = 1_000_000) -> None:
        self.at_ms = at_ms

    def now(self) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self.at_ms)


def _embedded_log(folder: Path, clock: Clock) -> ClosableLog:
    return SqliteLog(folder, clock, partitions=PARTITIONS)


def _embedded_store(folder: Path, partition: int) -> StateStore:
    return _OneStore(StateFile(folder), partition)


class _OneStore(SqliteStore):
    """A handle that closes its file with it: the suite opens one partition at a time."""

    def __init__(self, file: StateFile, partition: int) -> None:
        super().__init__(file, partition)
        self._own_file = file

    def close(self) -> None:
        super().close()
        self._own_file.close()


def _kafka_log(folder: Path, clock: Clock) -> ClosableLog:
    from tests.kafka.logs import open_log

    return open_log(os.environ[KAFKA], folder, clock, PARTITIONS)


def _rocks_store(folder: Path, partition: int) -> StateStore:
    pytest.importorskip("rocksdict", reason="the Kafka engine's store needs the extra kafka")
    from tests.kafka.rocks import open_store

    return open_store(folder, partition)


ENGINES: Final = {
    "embedded": Engine(log=_embedded_log, store=_embedded_store),
    "kafka": Engine(log=_kafka_log, store=_rocks_store),
}


class View(Rows, Protocol):
    """A partition at one instant."""

    def position(self) -> PositionRow | None: ...


class State(Protocol):
    """The partitions of one processor, in one folder."""

    def store(self, partition: int) -> StateStore: ...

    def snapshot(self, partition: int) -> AbstractContextManager[View]: ...

    def close(self) -> None: ...


def _rocks_state(folder: Path) -> State:
    pytest.importorskip("rocksdict", reason="the Kafka engine's store needs the extra kafka")
    from tests.kafka.rocks import open_state

    return open_state(folder)


STATES: Final[dict[str, Callable[[Path], State]]] = {
    "embedded": StateFile,
    "rocks": _rocks_state,
}


STORES: Final[dict[str, Callable[[Path, int], StateStore]]] = {
    "embedded": _embedded_store,
    "rocks": _rocks_store,
}
"""The stores by themselves: they need no broker."""
