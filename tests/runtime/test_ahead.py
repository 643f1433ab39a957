"""Work ahead: prepared before it is owed, recorded when it is, and exact either way."""

import random

import pytest
from ombus_schemas.codec import decode
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.records import ObservationsRecorded, record_of
from ombus_streams.memory.effects import PrepareObserver, RunObserver
from ombus_streams.providers.scripted import Scripted
from ombus_streams.runtime.ahead import AheadPolicy
from ombus_streams.runtime.provider import ModelRequest, TurnFailed
from ombus_streams.runtime.scheduler import Scheduler

from tests.support.engine import KEY, Driver, diligent, worker
from tests.support.sessions import chat, custom, fact, settings

IDLE_MS = 300_000
POLICY = AheadPolicy(share=0.25)


class AheadDriver(Driver):
    """A driver whose scheduler prepares."""

    def reopen(self) -> None:
        super().reopen()
        self.scheduler = Scheduler(self.processor, ahead=POLICY)


def begun(provider: Scripted | None = None, driver: type[Driver] = AheadDriver) -> Driver:
    found = driver(provider or worker(diligent))
    found.tell(settings("s", None, observe=200))
    return found


def observed(driver: Driver) -> list[JsonObject]:
    """Return the observer's records on the log, in order."""
    entries = [decode(record.value) for record in driver.log.records if record.value]
    return [
        entry.data
        for entry in entries
        if entry.data_type == "om.observations.recorded" and isinstance(entry.data, dict)
    ]


def spans(driver: Driver) -> list[tuple[object, object]]:
    return [(record["base"], record["coversUpToId"]) for record in observed(driver)]


def sources(record: JsonObject) -> list[str]:
    """Return the entries an observer's record rests on, in order."""
    entry = custom("r", None, record)
    found = record_of(entry)
    assert isinstance(found, ObservationsRecorded)
    return [source for item in found.observations for source in item.source_entry_ids]


def grown(driver: Driver, first: int, last: int, tokens: int = 25) -> None:
    for number in range(first, last):
        parent = f"m{number - 1}" if number else None
        driver.tell(chat(f"m{number}", parent, tokens=tokens))


def test_a_share_of_the_threshold_is_prepared_and_not_recorded() -> None:
    driver = begun()
    grown(driver, 0, 3)

    assert isinstance(driver.effects[-1], PrepareObserver)
    assert driver.effects[-1].run.anchor_id == "m1"
    assert observed(driver) == []


def test_when_the_threshold_is_reached_what_is_prepared_costs_no_call() -> None:
    driver = begun()
    grown(driver, 0, 7)
    assert isinstance(driver.provider, Scripted)
    n_asked, n_effects = len(driver.provider.requests), len(driver.effects)

    grown(driver, 7, 8)

    recorded = [each for each in driver.effects[n_effects:] if isinstance(each, RunObserver)]
    assert [run.anchor_id for run in recorded] == ["m1", "m3", "m5", "m7"]
    assert len(driver.provider.requests) - n_asked == 2  # m6 and m7: a run of two turns
    assert spans(driver) == [(None, "m1"), ("m1", "m3"), ("m3", "m5"), ("m5", "m7")]


def test_a_run_that_goes_on_is_shown_what_the_one_before_has_said() -> None:
    driver = begun()
    grown(driver, 0, 4)

    assert isinstance(driver.provider, Scripted)
    shown = [item.content for item in driver.provider.requests[-1].material.observations]
    assert shown == ["mark-m0. said", "mark-m1. said"]


def test_a_session_that_rests_is_given_what_is_prepared() -> None:
    driver = begun()
    grown(driver, 0, 3)
    driver.clock.at_ms += IDLE_MS - 1
    driver.settle()
    assert spans(driver) == []

    driver.clock.at_ms += 1
    driver.settle()

    assert spans(driver) == [(None, "m1")]
    assert driver.processor.session(KEY).leaf(1).pending_tokens == 25


def test_a_flush_uses_it_and_then_covers_the_rest() -> None:
    driver = begun()
    grown(driver, 0, 3)
    driver.tell(fact("f", "m2", "flush.requested"))

    assert spans(driver) == [(None, "m1"), ("m1", "m2")]


def test_an_invalidation_discards_what_was_prepared_before_it() -> None:
    driver = begun()
    grown(driver, 0, 3)
    driver.tell(fact("i", None, "sources.invalidated", ids=["m1"], reason="deleted"))
    grown(driver, 3, 8)

    records = observed(driver)
    assert all(record.get("seen") == "i" for record in records)
    said = [source for record in records for source in sources(record)]
    assert "m1" not in said
    assert "m7" in said


def test_settings_that_change_discard_it_too() -> None:
    driver = begun()
    grown(driver, 0, 3)
    driver.tell(settings("s2", "m2", observe=200, passive=True))
    driver.clock.at_ms += IDLE_MS
    driver.settle()

    assert observed(driver) == []


def test_a_preparation_that_fails_is_left_to_the_obligation() -> None:
    n_asked = 0

    def answer(request: ModelRequest) -> list[object]:
        nonlocal n_asked
        n_asked += 1
        return [TurnFailed(message="bad", code=400)] if n_asked == 1 else diligent(request)

    driver = begun(worker(answer))
    grown(driver, 0, 7)
    assert n_asked == 1
    grown(driver, 7, 8)

    assert spans(driver) == [(None, "m7")]


def test_a_process_that_forgets_loses_a_call_and_nothing_else() -> None:
    driver = begun()
    grown(driver, 0, 7)
    driver.reopen()
    grown(driver, 7, 8)

    covered = [span[1] for span in spans(driver)]
    assert covered[-1] == "m7"
    assert driver.processor.session(KEY).leaf(1).n_observations == 8


@pytest.mark.parametrize("seed", range(12))
def test_coverage_has_neither_gap_nor_overlap_for_having_been_prepared(seed: int) -> None:
    rng = random.Random(seed)
    driver = begun()
    parent, last = None, 0
    for number in range(60):
        entry: Entry = chat(f"m{number}", parent, tokens=rng.choice([12, 25, 60, 250]))
        driver.tell(entry)
        parent = entry.id
        match rng.randrange(12):
            case 0:
                driver.tell(fact(f"f{number}", parent, "flush.requested"))
            case 1:
                driver.clock.at_ms += IDLE_MS
                driver.settle()
            case 2:
                driver.reopen()
            case 3:
                driver.tell(settings(f"s{number}", parent, observe=rng.choice([100, 200, 400])))

    reached: object = None
    seen: list[str] = []
    for record in observed(driver):
        assert record["base"] == reached
        reached = record["coversUpToId"]
        seen += sources(record)
        last = int(str(reached)[1:])
    assert seen == [f"m{number}" for number in range(last + 1)]
    leaf = driver.processor.session(KEY).leaf(1)
    assert leaf.pending_tokens < 400
    assert leaf.rejections == type(leaf.rejections)()
