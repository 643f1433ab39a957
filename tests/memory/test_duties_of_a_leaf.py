"""What flushes, requests and settings oblige a leaf's workers to (design.md sections 5 and 12)."""

import pytest
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory import reading
from ombus_streams.memory.effects import RunCompactor, RunObserver, RunReflector
from ombus_streams.memory.leaf import MAX_REQUESTS

from tests.memory.model.compare import entries_of
from tests.support.engine import KEY, Driver, worker
from tests.support.sessions import chat, custom, drops, fact, observations, observed, settings


def driver_with(n: int, tokens: int = 10, **kept: int) -> Driver:
    driver = Driver()
    driver.append(settings("settings", None, **kept))  # type: ignore[arg-type]
    for i in range(n):
        driver.append(chat(f"m{i}", f"m{i - 1}" if i else None, tokens=tokens))
    driver.catch_up()
    return driver


def bodies(driver: Driver, kind: str) -> list[JsonObject]:
    log = entries_of(driver.log.records, KEY)
    return [each.data for each in log if each.data_type == kind and isinstance(each.data, dict)]


def test_a_flush_runs_every_stage_that_has_input_whatever_the_thresholds_say() -> None:
    driver = driver_with(3)

    driver.tell(fact("flush", "m2", "flush.requested"))

    (answer,) = bodies(driver, "om.flush.completed")
    assert (answer["flushId"], answer["observations"], answer["reflections"]) == ("flush", 3, 1)


def test_a_flush_that_respects_thresholds_passes_over_what_is_below_them() -> None:
    driver = driver_with(3)

    driver.tell(fact("flush", "m2", "flush.requested", respectThresholds=True))

    (answer,) = bodies(driver, "om.flush.completed")
    assert (answer["observations"], answer["reflections"]) == (0, 0)
    assert not bodies(driver, "om.observations.recorded")


def test_a_flush_with_nothing_new_records_nothing() -> None:
    driver = driver_with(3)
    driver.tell(fact("one", "m2", "flush.requested"))
    n_records = len(bodies(driver, "om.observations.recorded"))

    driver.tell(fact("two", "m2", "flush.requested"), fact("three", "m2", "flush.requested"))

    assert len(bodies(driver, "om.observations.recorded")) == n_records == 1
    assert len(bodies(driver, "om.reflections.recorded")) == 1
    assert len(bodies(driver, "om.flush.completed")) == 3


def test_a_flush_covers_up_to_its_anchor_and_no_further() -> None:
    driver = driver_with(6)

    driver.tell(fact("flush", "m2", "flush.requested"))

    leaf = driver.session().leaf(1)
    assert (leaf.coverage_id, leaf.n_pending) == ("m2", 3)


def test_a_passive_session_is_asked_for_nothing_and_its_flush_fails() -> None:
    driver = driver_with(6, observe=20, passive=True)

    driver.tell(fact("flush", "m5", "flush.requested"), fact("c", "m5", "compact.requested"))

    assert [answer["reason"] for answer in bodies(driver, "om.flush.failed")] == ["passive"]
    assert [answer["reason"] for answer in bodies(driver, "om.compact.failed")] == ["passive"]
    assert not bodies(driver, "om.observations.recorded")


def test_entries_that_are_no_sources_are_covered_without_asking_anybody() -> None:
    driver = Driver()
    driver.append(chat("a", None, role="system"), chat("b", "a", origin="injected"))

    driver.tell(fact("flush", "b", "flush.requested"))

    assert driver.session().leaf(1).coverage_id == "b"
    assert driver.provider.requests == []  # type: ignore[attr-defined]


def test_an_injected_message_is_no_source_however_long_it_is() -> None:
    driver = driver_with(0, observe=20)

    driver.tell(chat("a", None, origin="injected", tokens=5_000))

    assert not driver.effects


def test_a_reached_threshold_stands_when_it_is_raised_meanwhile() -> None:
    driver = driver_with(5, observe=50)
    driver.append(settings("higher", "m4", observe=5_000))
    driver.catch_up()

    driver.settle()

    (run,) = driver.effects
    assert isinstance(run, RunObserver)
    assert run.source_ids == tuple(f"m{n}" for n in range(5))


def test_a_lowered_threshold_obliges_at_once() -> None:
    driver = driver_with(5, observe=5_000)
    driver.settle()
    assert not driver.effects

    driver.tell(settings("lower", "m4", observe=30))

    (run,) = driver.effects
    assert isinstance(run, RunObserver)
    assert run.source_ids == ("m0", "m1", "m2"), "the shortest prefix that reaches it"


def test_the_reflector_reads_what_had_been_recorded_when_its_threshold_was_reached() -> None:
    driver = driver_with(6, observe=20, reflect=6)

    driver.settle()

    runs = [effect for effect in driver.effects if isinstance(effect, RunReflector)]
    assert [len(run.observation_ids) for run in runs] == [2, 2, 2]


def test_a_requested_compaction_waits_for_the_flush_before_it() -> None:
    driver = driver_with(6, recent=1)

    driver.tell(fact("flush", "m5", "flush.requested"), fact("c", "m5", "compact.requested"))

    kinds = [type(effect).__name__ for effect in driver.effects]
    assert kinds.index("EndFlush") < kinds.index("RunCompactor")


def test_a_requested_compaction_waits_for_the_end_of_the_hosts_run() -> None:
    driver = driver_with(6, observe=20, recent=1)
    driver.append(fact("start", "m5", "run.started", runId="r"))

    driver.tell(fact("c", "m5", "compact.requested"))
    assert not any(isinstance(effect, RunCompactor) for effect in driver.effects)

    driver.tell(fact("end", "m5", "run.finished", runId="r"))
    assert any(isinstance(effect, RunCompactor) for effect in driver.effects)


def test_requests_that_wait_are_bounded() -> None:
    driver = driver_with(2)
    driver.append(*(fact(f"f{n}", "m1", "flush.requested") for n in range(MAX_REQUESTS + 5)))
    driver.catch_up()

    assert len(driver.session().leaf(1).flushes) == MAX_REQUESTS


def test_a_leaf_that_gained_nothing_for_a_day_waits_until_it_is_flushed() -> None:
    driver = Driver(worker(lambda request: []))
    driver.append(chat("a", None, tokens=10), chat("old", "a", tokens=20_000))
    driver.clock.at_ms += 90_000_000
    driver.append(chat("new", "a", tokens=10))
    driver.settle()
    assert not driver.effects

    driver.tell(fact("flush", "old", "flush.requested"))

    assert any(isinstance(effect, RunObserver) for effect in driver.effects)


@pytest.mark.parametrize("n_more", [0, 1])
def test_the_memory_block_keeps_its_bytes_while_no_memory_changes(n_more: int) -> None:
    driver = driver_with(6, observe=20, reflect=6)
    driver.settle()
    session = driver.session()
    before = reading.context(session, session.leaf(1))[0]

    driver.reopen()
    for n in range(n_more):
        driver.tell(chat(f"more{n}", "m5", tokens=10))

    session = driver.session()
    assert reading.context(session, session.leaf(1))[0] == before


def test_a_backlog_earns_one_compaction_when_it_is_worked_off_not_one_a_run() -> None:
    driver = driver_with(200, tokens=20, observe=100, compact=500, recent=2)

    driver.settle(max_steps=200)

    log = entries_of(driver.log.records, KEY)
    assert len([each for each in log if each.kind == "compaction"]) == 1
    assert len(bodies(driver, "om.observations.recorded")) > 20


@pytest.mark.parametrize("tokens", [1e21, 0.1])
@pytest.mark.parametrize("how", ["dropped", "invalidated"])
def test_what_leaves_the_pool_takes_nothing_of_the_rest_with_it(tokens: float, how: str) -> None:
    driver = driver_with(2)
    gone, stays = observed("gone", "m0", tokens=tokens), observed("stays", "m1", tokens=0.2)
    driver.append(custom("record", "m1", observations(gone, stays, covers="m1")))

    if how == "dropped":
        driver.append(custom("drop", "m1", drops(gone["id"])))
    else:
        driver.append(fact("revoked", "m1", "sources.invalidated", ids=["m0"], reason="revoked"))
    driver.catch_up()

    session = driver.session()
    leaf = session.leaf(session.head.default_segment)
    assert (leaf.active_tokens, leaf.uncovered_tokens) == (0.2, 0.2)
