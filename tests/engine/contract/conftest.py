from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ombus_streams.runtime.ports import StateStore

from tests.engine.contract.engines import ENGINES, STORES, ClosableLog, Engine, ManualClock

OpenLog = Callable[[], ClosableLog]
OpenStore = Callable[[int], StateStore]


@pytest.fixture(params=sorted(ENGINES))
def engine_name(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name == "kafka":
        pytest.importorskip("aiokafka", reason="the Kafka engine needs the extra kafka")
        request.getfixturevalue("kafka")
    return name


@pytest.fixture
def engine(engine_name: str) -> Engine:
    return ENGINES[engine_name]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_log(engine: Engine, clock: ManualClock, tmp_path: Path) -> Iterator[OpenLog]:
    """Open another handle on the test's one log."""
    opened: list[ClosableLog] = []

    def open_one() -> ClosableLog:
        opened.append(engine.log(tmp_path / "log", clock))
        return opened[-1]

    yield open_one
    for log in opened:
        log.close()


@pytest.fixture
def log(open_log: OpenLog) -> ClosableLog:
    return open_log()


@pytest.fixture(params=sorted(STORES))
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Open another handle on a partition of the test's one processor."""
    opened: list[StateStore] = []

    def open_one(partition: int) -> StateStore:
        opened.append(STORES[request.param](tmp_path / "state", partition))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> StateStore:
    return open_store(0)
