"""What a process of one role decides and performs. No broker."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from unittest import mock

import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from ombus_schemas.entries import Entry
from ombus_streams.engine.kafka import performer
from ombus_streams.engine.kafka.admission import Admission, RunLimits
from ombus_streams.engine.kafka.partition import Partition
from ombus_streams.engine.kafka.performer import Performer
from ombus_streams.engine.kafka.roles import ROLES
from ombus_streams.engine.kafka.status import Counts
from ombus_streams.engine.kafka.threads import Threads
from ombus_streams.memory.duties import WORKERS
from ombus_streams.memory.effects import EndFlush, RunObserver
from ombus_streams.runtime.errors import RetryableError
from ombus_streams.runtime.interpreter import Interpreter
from ombus_streams.runtime.ports import Draft, Position
from ombus_streams.runtime.processor import Processor
from ombus_streams.runtime.scheduler import MAX_ATTEMPTS, Scheduler

from tests.support.engine import KEY, Driver, MemoryLog, worker
from tests.support.sessions import chat, fact, settings


def owing(*more: Entry) -> Driver:
    """Return a session that owes an observation."""
    driver = Driver()
    driver.append(
        chat("e1", None), settings("s1", "e1", observe=50), chat("e2", "e1", tokens=60), *more
    )
    driver.catch_up()
    return driver


def test_exactly_the_projector_and_all_write_dead_letters() -> None:
    assert {name for name, role in ROLES.items() if role.emits} == {"projector", "all"}
    assert ROLES["all"].workers == WORKERS
    assert ROLES["projector"].workers == ()
    assert all(ROLES[name].workers == (name,) for name in WORKERS)


@pytest.mark.parametrize("name", sorted(ROLES))
def test_a_role_decides_for_its_own_workers_alone(name: str) -> None:
    driver = owing(fact("f1", "e2", "flush.requested"))
    role = ROLES[name]
    found = {task.effect.worker for task in Scheduler(driver.processor, role.workers).due(0, 9)}
    assert found == ({"observer"} if "observer" in role.workers else set())


def test_a_parked_observer_ends_the_flush_that_waits_for_it_by_itself() -> None:
    """The dropper, in another process, cannot know what is parked here."""
    driver = owing(fact("f1", "e2", "flush.requested"))
    scheduler = Scheduler(driver.processor, ("observer",))
    now_ms = 0
    for _ in range(MAX_ATTEMPTS):
        (task,) = scheduler.due(now_ms, 9)
        assert isinstance(task.effect, RunObserver)
        scheduler.failed(task.slot, task.effect, RetryableError("away"), now_ms)
        now_ms += 100_000
    (task,) = scheduler.due(now_ms - 100_000, 9)
    assert isinstance(task.effect, EndFlush)
    assert task.effect.failure is not None


def test_leaves_of_one_prefix_have_their_common_run_done_once() -> None:
    driver = owing(chat("e3", "e2", tokens=3), chat("fork", "e2", tokens=3))
    tasks = driver.due()
    assert len(driver.session().segments()) == 2
    (task,) = tasks
    assert isinstance(task.effect, RunObserver)
    assert driver.due() == []
    result = driver.result_of(task)
    assert result is not None
    driver.deliver(task, result)
    driver.catch_up()
    assert not any(isinstance(task.effect, RunObserver) for task in driver.due())


SLOTS = [(b"acme/s%d" % n, 1, "observer") for n in range(4)] + [(b"beta/s", 1, "observer")]


def test_one_tenant_s_backlog_leaves_room_for_another() -> None:
    admission = Admission(RunLimits(max_runs=3, max_tenant_runs=2))
    assert [admission.take(slot) for slot in SLOTS] == [True, True, False, False, True]
    assert (admission.n_runs, admission.n_free) == (3, 0)
    admission.give_back(SLOTS[0])
    assert admission.take(SLOTS[2])
    for slot in (SLOTS[1], SLOTS[2], SLOTS[4]):
        admission.give_back(slot)
    assert admission.n_runs == 0


class Flaky(MemoryLog):
    """A log whose appends fail first, as often as it is told."""

    def __init__(self, driver: Driver, n_failures: int) -> None:
        super().__init__(driver.clock)
        self.records = driver.log.records
        self.n_failures = n_failures

    def append(self, drafts: Sequence[Draft]) -> tuple[Position, ...]:
        if self.n_failures:
            self.n_failures -= 1
            raise RetryableError("the broker is away")
        return super().append(drafts)


async def performed(driver: Driver, log: MemoryLog) -> Counts:
    """Perform what is due now, to its end."""
    threads, counts = Threads("test", 2), Counts()
    failures: list[Exception] = []
    performing = Performer(
        "all", log, Interpreter({"observer": worker()}, driver.clock), driver.clock,
        RunLimits(), threads, counts, failures.append,
    )  # fmt: skip
    partition = Partition(Processor(driver.store, log, 0), ROLES["all"], 0)
    assert partition.becomes_ready()
    running = asyncio.create_task(performing.run(lambda: [partition]))
    await asyncio.sleep(0)
    running.cancel()
    await performing.ended(timedelta(seconds=10))
    await partition.close()
    await threads.close()
    assert not failures
    return counts


def test_a_result_is_appended_again_before_its_run_is_paid_again() -> None:
    driver = owing()
    log = Flaky(driver, n_failures=2)
    with mock.patch.object(performer, "APPEND_DELAYS", (timedelta(milliseconds=1),) * 3):
        counts = asyncio.run(performed(driver, log))
    assert (counts.n_runs, counts.n_runs_failed) == (1, 0)
    assert log.records[-1].key == KEY


def test_a_result_that_cannot_be_appended_fails_its_run() -> None:
    driver = owing()
    n_before = len(driver.log.records)
    log = Flaky(driver, n_failures=9)
    with mock.patch.object(performer, "APPEND_DELAYS", (timedelta(milliseconds=1),) * 3):
        counts = asyncio.run(performed(driver, log))
    assert (counts.n_runs, counts.n_runs_failed) == (0, 1)
    assert len(log.records) == n_before
