"""Faults other systems had (cases B01 to B27), as far as the fold and its workers decide."""

import msgspec
import pytest
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory import reading
from ombus_streams.memory.branches import rebuild
from ombus_streams.memory.effects import RunObserver, RunReflector
from ombus_streams.memory.head import LeafHead
from ombus_streams.memory.pages import Page
from ombus_streams.memory.pairing import pair, paired
from ombus_streams.memory.recall import NotRecalled
from ombus_streams.memory.session import Session
from ombus_streams.runtime.provider import ModelRequest, TurnFailed

from tests.memory.model.compare import entries_of
from tests.support.engine import KEY, Driver, digest, diligent, refolded, worker
from tests.support.sessions import (
    chat,
    custom,
    fact,
    observations,
    observed,
    settings,
)


def chain_of(n: int, tokens: int, first: int = 0, role: str = "user") -> list[Entry]:
    """Return messages m<first> to m<first + n - 1>, each after the one before."""
    return [
        chat(f"m{i}", f"m{i - 1}" if i else None, tokens=tokens, role=role)
        for i in range(first, first + n)
    ]


def leaf_of(driver: Driver, tip: str) -> tuple[Session, LeafHead]:
    session = driver.session()
    place = session.place_of(tip)
    assert place is not None
    return session, session.leaf(place.segment)


def contents(driver: Driver, tip: str) -> list[str]:
    session, leaf = leaf_of(driver, tip)
    return [item.content for item in reading.visible(session, leaf).observations]


def spans(driver: Driver) -> list[tuple[str, ...]]:
    return [effect.source_ids for effect in driver.effects if isinstance(effect, RunObserver)]


def records(driver: Driver, kind: str) -> list[JsonObject]:
    log = entries_of(driver.log.records, KEY)
    return [entry.data for entry in log if entry.data_type == kind and isinstance(entry.data, dict)]


def test_b01_an_empty_result_is_recorded_once_and_closes_the_question() -> None:
    driver = Driver(worker(lambda request: []))
    driver.tell(*chain_of(12, 1_000))
    n_asked = len(spans(driver))

    driver.tell(*chain_of(10, 10, first=12))

    assert n_asked == 1
    assert len(spans(driver)) == 1
    (record,) = records(driver, "om.observations.recorded")
    assert (record["observations"], record["coversUpToId"]) == ([], "m9")


def test_b02_a_backlog_is_drained_oldest_first_in_chunks() -> None:
    def small(request: ModelRequest) -> object:
        too_large = sum(len(repr(source)) for source in request.material.sources) > 100_000
        return [TurnFailed(message="too long", is_refusal=True)] if too_large else diligent(request)

    driver = Driver(worker(small))

    driver.tell(*chain_of(100, 3_000))

    covered = [str(each["coversUpToId"]) for each in records(driver, "om.observations.recorded")]
    places = [int(name[1:]) for name in covered]
    assert places == sorted(set(places))
    assert leaf_of(driver, "m99")[1].pending_tokens < 10_000
    assert len(spans(driver)) < 40


def test_b03_a_run_that_broke_off_records_nothing_and_is_asked_for_again_whole() -> None:
    calls: list[int] = []

    def breaks_once(request: ModelRequest) -> object:
        calls.append(len(request.material.sources))
        if len(calls) == 1:
            return [*diligent(request)[:1], TurnFailed(message="reset", code="ECONNRESET")]
        return diligent(request)

    driver = Driver(worker(breaks_once))
    driver.tell(settings("settings", None, observe=100), *chain_of(10, 10))
    for _ in range(3):
        driver.clock.at_ms += 60_000
        driver.settle()

    assert contents(driver, "m9") == [f"mark-m{n}. said" for n in range(10)]
    assert len(records(driver, "om.observations.recorded")) == 1


def test_b05_one_message_over_the_threshold_is_observed_alone() -> None:
    driver = Driver()

    driver.tell(chat("m0", None, tokens=30_000))

    assert leaf_of(driver, "m0")[1].coverage_id == "m0"
    assert contents(driver, "m0") == ["mark-m0. said"]


def test_b06_the_observer_needs_no_compaction_to_begin() -> None:
    driver = Driver()

    driver.tell(*chain_of(15, 1_000))

    assert spans(driver) == [tuple(f"m{n}" for n in range(10))]


def test_b07_a_pool_that_cannot_shrink_is_tried_once_per_step_of_growth() -> None:
    def copies(request: ModelRequest) -> object:
        if request.worker == "dropper":
            return []
        return diligent(request)

    driver = Driver(worker(copies))
    driver.append(settings("settings", None, observe=100_000, reflect=1_000, target=100))
    driver.append(*chain_of(1, 10))
    body = [observed(f"critical {n}", "m0", relevance="critical", tokens=450) for n in range(100)]
    driver.append(custom("pool", "m0", observations(*body, covers="m0")))

    driver.settle()
    driver.reopen()
    driver.settle()

    assert sum(isinstance(effect, RunReflector) for effect in driver.effects) == 1
    more = observed("more", "m0", relevance="critical", tokens=1_000)
    driver.tell(custom("more", "m0", observations(more, covers=None)))
    assert sum(isinstance(effect, RunReflector) for effect in driver.effects) == 2


def test_b07_failures_back_off_and_the_wait_survives_a_restart() -> None:
    driver = Driver(worker(lambda request: [TurnFailed(message="overloaded", code=503)]))
    driver.append(settings("settings", None, observe=20), *chain_of(3, 10))

    for _ in range(20):
        driver.settle()
        driver.reopen()

    assert len(driver.effects) == 1
    driver.clock.at_ms += 1_000
    driver.settle()
    assert len(driver.effects) == 2


def test_b08_an_empty_reflection_takes_nothing_away() -> None:
    driver = Driver(worker(lambda r: [] if r.worker == "reflector" else diligent(r)))
    driver.tell(settings("settings", None, observe=40, reflect=10, target=1), *chain_of(12, 10))

    before = contents(driver, "m11")

    assert len(before) == 12
    assert records(driver, "om.reflections.recorded")
    assert not records(driver, "om.observations.dropped")


def test_b17_no_result_stands_without_its_call_over_two_compactions() -> None:
    def call(name: str) -> JsonObject:
        return {"type": "tool_call", "id": name, "name": "run", "arguments": {}}

    def result(name: str) -> JsonObject:
        return {"type": "tool_result", "toolCallId": name, "name": "run", "result": 1}

    driver = Driver()
    driver.append(
        settings("settings", None, observe=10, recent=1),
        chat("a", None),
        chat("b", "a", role="assistant", blocks=(call("A"), call("C"))),
        chat("c", "b", role="tool", blocks=(result("C"),)),
    )
    driver.tell(fact("one", "c", "compact.requested"))
    driver.append(chat("d", "c", role="tool", blocks=(result("A"),)))
    driver.append(chat("e", "d", role="assistant", blocks=(call("B"),)))
    driver.tell(fact("two", "e", "compact.requested"))

    log = entries_of(driver.log.records, KEY)
    chain = [entry for entry in log if not entry.side]
    for record in (entry for entry in log if entry.kind == "compaction"):
        kept = rebuild([*chain, record], record.id).messages
        assert not pair(kept).orphans
        closed = paired(kept)
        assert not pair(closed).orphans
        assert not pair(closed).open_calls


def test_b19_a_compaction_before_the_first_observation_is_refused_and_keeps_the_tail() -> None:
    driver = Driver()

    driver.tell(*chain_of(5, 10), fact("compact", "m4", "compact.requested"))

    (answer,) = records(driver, "om.compact.failed")
    assert (answer["requestId"], answer["reason"]) == ("compact", "nothing_folded")
    session, leaf = leaf_of(driver, "m4")
    assert "mark-m0" in "".join(block.content for block in reading.context(session, leaf, keep=8))


def test_b20_finished_work_is_in_the_compaction_however_much_follows() -> None:
    driver = Driver(worker(lambda r: [] if r.worker == "observer" else diligent(r)))
    driver.append(settings("settings", None, recent=2), *chain_of(1, 10))
    done = observed("completed: the parser", "m0", relevance="high", tokens=6)
    driver.append(custom("done", "m0", observations(done, covers="m0")))

    driver.tell(*chain_of(90, 1_000, first=1))
    driver.tell(fact("compact", "m90", "compact.requested"))

    summaries = [
        entry.summary or "" for entry in entries_of(driver.log.records, KEY) if entry.summary
    ]
    assert summaries
    assert all("completed: the parser" in summary for summary in summaries)


@pytest.mark.parametrize(("keep", "cap"), [(0, None), (0, 50), (1, 100), (8, 1_000)])
def test_b21_the_newest_user_message_is_always_in_the_window(keep: int, cap: int | None) -> None:
    driver = Driver()
    driver.append(settings("settings", None, observe=20), chat("old", None, tokens=30))
    driver.append(chat("ask", "old", tokens=3_000))
    driver.append(*[
        chat(f"w{n}", f"w{n - 1}" if n else "ask", role="assistant", tokens=40) for n in range(5)
    ])  # fmt: skip
    driver.settle()
    driver.tell(fact("compact", "w4", "compact.requested"))

    session, leaf = leaf_of(driver, "w4")
    text = "".join(block.content for block in reading.context(session, leaf, keep, cap))

    assert "[ask] user: mark-ask." in text
    assert (cap is not None and cap < 3_000) == ("[cut]" in text)


def test_b24_nothing_of_a_sibling_branch_is_in_a_context_or_recalled() -> None:
    driver = Driver()
    driver.append(settings("settings", None, observe=10))
    driver.append(chat("a", None, tokens=10), chat("b", "a", tokens=10), chat("c", "b", tokens=10))

    driver.tell(chat("d", "a", tokens=10))

    session, leaf = leaf_of(driver, "d")
    text = "".join(block.content for block in reading.context(session, leaf, keep=8))
    assert "mark-a." in text
    assert "mark-b" not in text
    assert "mark-c" not in text
    other, sibling = leaf_of(driver, "c")
    for item in reading.visible(other, sibling).observations:
        found = reading.recall_at(session, leaf, item.id)
        assert ("mark-a." in item.content) == (not isinstance(found, NotRecalled))


@pytest.mark.parametrize("blank", ["\u00a0", "\ufeff", " \n", "\u3000"])
def test_a_cursor_is_trimmed_of_every_blank_there_is(blank: str) -> None:
    driver = Driver()
    driver.tell(*chain_of(3, 10))
    session, leaf = leaf_of(driver, "m2")

    found = reading.page_at(session, leaf, f"{blank}m1{blank}", 2)

    assert isinstance(found, Page)
    assert [entry.id for entry in found.entries] == ["m0", "m1"]


def test_b25_entries_that_arrive_twice_are_counted_and_observed_once() -> None:
    driver = Driver()
    parent = [settings("settings", None, observe=20), *chain_of(4, 10)]
    driver.tell(*parent)

    driver.tell(*parent, chat("child", "m1", tokens=10))

    assert driver.session().head.n_duplicates == 5
    assert contents(driver, "m3") == [f"mark-m{n}. said" for n in range(4)]
    assert leaf_of(driver, "child")[1].n_observations == 2


def test_b27_a_hosts_clock_moves_neither_order_nor_threshold_nor_coverage() -> None:
    def run(stamps: list[str]) -> Driver:
        driver = Driver()
        driver.append(settings("settings", None, observe=20))
        for entry, stamp in zip(chain_of(4, 10), stamps, strict=True):
            driver.append(msgspec.structs.replace(entry, timestamp=stamp))
        driver.settle()
        return driver

    sane = run([f"2026-02-03T04:05:0{n}.000Z" for n in range(4)])
    mad = run(["2099-01-01T00:00:00.000Z", "1970-01-01T00:00:00.000Z", "", "not a time"])

    assert spans(sane) == spans(mad)
    ours, theirs = leaf_of(sane, "m3")[1], leaf_of(mad, "m3")[1]
    assert ours == theirs


@pytest.mark.parametrize("max_sessions", [1, 1_000])
@pytest.mark.parametrize("max_records", [1, 3, 1_000])
def test_sessions_of_one_partition_fold_to_the_same_bytes_however_they_are_cut(
    max_sessions: int, max_records: int
) -> None:
    driver = Driver(always_replay=True, max_sessions=1)
    for name in ("s", "u", "v"):
        entries = [settings(f"set-{name}", None, observe=20, reflect=8), *chain_of(6, 10)]
        driver.append(*(msgspec.structs.replace(each, session_id=name) for each in entries))
    driver.settle()

    assert digest(refolded(driver.log, max_records, max_sessions)) == driver.digest()
    assert [key[2:] for key in driver.processor.due_sessions()] == []
