"""Functions of the host: asked in time or not at all, and never more than a word."""

import asyncio
import threading

import pytest
from ombus_streams.memory.compact_when import Measures
from ombus_streams.runtime.callbacks import Callback, CompactionWatch, NoSuchCallback

from tests.support.engine import KEY, Driver, diligent, worker
from tests.support.sessions import AT, chat, settings

HERE = __name__
GATE = threading.Event()
CALLS: list[tuple[object, ...]] = []


def yes(*_: object) -> bool:
    return True


def one(*_: object) -> int:
    return 1


def breaks(*_: object) -> bool:
    raise RuntimeError("no")


def hangs(*asked: object) -> bool:
    CALLS.append(asked)
    return GATE.wait(60)


async def later(*_: object) -> bool:
    await asyncio.sleep(0)
    return True


async def never(*_: object) -> bool:
    await asyncio.sleep(3_600)
    return True


def is_large(measures: Measures) -> bool:
    return measures.tokens() > 100


def wants_a_cap(measures: Measures) -> bool:
    return measures.cap_tokens() > 0


@pytest.mark.parametrize(
    ("name", "seconds", "answer"),
    [
        ("yes", 60, True),
        ("later", 60, True),
        ("one", 60, False),
        ("breaks", 60, False),
        ("never", 0.05, False),
    ],
)
def test_only_a_literal_true_in_time_is_a_yes(name: str, seconds: float, answer: bool) -> None:
    assert asyncio.run(Callback(f"{HERE}:{name}", seconds).ask(None)) is answer


def test_a_function_that_hangs_is_asked_nothing_more_until_it_is_back() -> None:
    callback = Callback(f"{HERE}:hangs", 0.05)

    async def twice() -> tuple[bool, bool]:
        return await callback.ask("first"), await callback.ask("second")

    try:
        answers = asyncio.run(twice())
    finally:
        GATE.set()

    assert answers == (False, False)
    assert CALLS == [("first",)]


@pytest.mark.parametrize("name", ["", "nowhere", "nowhere:f", f"{HERE}:nothing", f"{HERE}:HERE"])
def test_a_name_that_leads_nowhere_is_refused_at_once(name: str) -> None:
    with pytest.raises(NoSuchCallback):
        Callback(name, 1)


def begun(tokens: int) -> Driver:
    driver = Driver(worker(diligent))
    driver.tell(
        settings("s", None, observe=20, recent=0), chat("m0", None, tokens=tokens), chat("m1", "m0")
    )
    return driver


def requested(driver: Driver, name: str, watch: CompactionWatch | None = None) -> bool:
    watch = watch or CompactionWatch(Callback(f"{HERE}:{name}", 1))
    entry = asyncio.run(watch.request(driver.processor.session(KEY), AT))
    if entry is None:
        return False
    driver.tell(entry)
    return True


def test_a_yes_becomes_a_request_on_the_log_and_a_compaction() -> None:
    driver = begun(200)

    assert requested(driver, "is_large")

    leaf = driver.processor.session(KEY).leaf(1)
    assert leaf.compaction_id is not None
    assert leaf.compact_requests == []
    assert not requested(begun(50), "is_large")


def test_a_place_is_asked_about_once() -> None:
    driver = begun(200)
    watch = CompactionWatch(Callback(f"{HERE}:yes", 1))

    assert requested(driver, "", watch)
    assert not requested(driver, "", watch)
    driver.tell(chat("m2", "m1"))
    assert requested(driver, "", watch)


def test_a_cap_that_nobody_knows_is_a_no() -> None:
    assert not requested(begun(200), "wants_a_cap")


def test_without_a_memory_nobody_is_asked() -> None:
    driver = Driver(worker(diligent))
    driver.tell(chat("m0", None))

    assert not requested(driver, "yes")
