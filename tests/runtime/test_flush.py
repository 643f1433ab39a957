"""The whole flush over one session (S16; design.md section 12, rows 3, 13, 17 and 18)."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.resolution import resolve_settings
from ombus_schemas.settings import MemorySettings, SettingOutOfRange
from ombus_streams.memory.ledger import fold
from ombus_streams.providers.extractive import Extractive
from ombus_streams.providers.scripted import Scripted, Turn, call
from ombus_streams.runtime.errors import TerminalError
from ombus_streams.runtime.flush import MemoryFlush
from ombus_streams.runtime.flush_port import (
    FlushResult,
    FlushStatus,
    Stage,
    Worker,
    bounds_turns,
    limits_of,
)
from ombus_streams.runtime.provider import ModelProvider, ModelRequest, Text, TurnEvent

from tests.support.ledgers import AT, entry, message

LOW: JsonObject = {
    "observation": {"messageTokens": 1},
    "reflection": {"observationTokens": 1},
    "dropper": {"targetTokens": 1},
}


class Session:
    """A session in memory."""

    session_id = "s1"

    def __init__(self, *entries: Entry) -> None:
        self.view = list(entries)
        self.is_run_active = False

    def entries(self) -> Sequence[Entry]:
        return tuple(self.view)

    def append(self, data: JsonObject, anchor: str | None) -> None:
        self.view.append(
            Entry(
                id=f"r{len(self.view)}",
                session_id="s1",
                kind="custom",
                data=data,
                side=True,
                parent_id=anchor,
            )
        )

    def has_active_run(self) -> bool:
        return self.is_run_active

    @property
    def records(self) -> list[JsonValue]:
        return [item.data for item in self.view if item.side]


def talk() -> Session:
    return Session(message("e1", "Use pnpm, not npm"), message("e2", "Noted", role="assistant"))


def scripts(*, reflect: Turn = (), drop: Turn = ()) -> dict[Stage, ModelProvider]:
    fact = call("record_observation", content="Uses pnpm", sourceEntryIds=["e1"])
    return {
        "observation": Scripted([[fact]]),
        "reflection": Scripted([reflect]),
        "dropper": Scripted([drop]),
    }


def flusher(
    session: Session,
    providers: dict[Stage, ModelProvider],
    overrides: JsonObject | None = None,
    *,
    respect_thresholds: bool = False,
) -> MemoryFlush:
    settings = resolve_settings(None, LOW if overrides is None else overrides)
    return MemoryFlush(
        session,
        {stage: Worker(provider=one, model="m") for stage, one in providers.items()},
        lambda: settings,
        now=lambda: AT,
        respect_thresholds=respect_thresholds,
    )


def run(flush: MemoryFlush, full_reflection_rebuild: bool = False) -> FlushResult:
    return asyncio.run(flush.flush(full_reflection_rebuild))


def reflect_on(session: Session) -> Turn:
    ids = [item.id for item in fold(session.view).observations]
    return [call("record_reflection", content="pnpm", supportingObservationIds=[*ids])]


def test_a_flush_runs_what_has_input_whatever_the_thresholds_say() -> None:
    session = talk()

    assert run(flusher(session, scripts(), {})).observations == 1


def test_a_flush_can_be_asked_to_respect_the_thresholds() -> None:
    session = talk()

    assert run(flusher(session, scripts(), {}, respect_thresholds=True)) == FlushResult()
    assert session.records == []


def test_records_hang_on_the_chain_entry_they_cover() -> None:
    session = talk()

    run(flusher(session, scripts()))

    assert {(item.side, item.parent_id) for item in session.view[2:]} == {(True, "e2")}


def test_nothing_is_appended_when_only_side_records_are_pending() -> None:
    session = talk()
    providers = scripts()
    run(flusher(session, providers))
    before = list(session.view)

    assert run(flusher(session, providers)) == FlushResult()
    assert session.view == before


def test_entries_without_a_source_are_covered_by_an_empty_record() -> None:
    session = Session(entry("x", "label"))

    run(flusher(session, {}))

    assert session.records == [
        {"type": "om.observations.recorded", "observations": [], "coversUpToId": "x"}
    ]


def test_a_failed_flush_counts_what_was_persisted() -> None:
    session = talk()
    flush = flusher(session, scripts(reflect=[Exception("boom")]))

    assert run(flush) == FlushResult(observations=1, skipped="error")
    assert flush.status() == FlushStatus(is_in_flight=False, last_error="boom")
    assert len(session.records) == 1


def test_a_failed_dropper_leaves_the_reflection_and_its_count() -> None:
    session = talk()
    providers = scripts(drop=[Exception("boom")])
    run(flusher(session, {"observation": providers["observation"]}))
    providers["reflection"] = Scripted([reflect_on(session)])
    session.view.append(message("e3", "go on"))

    result = run(flusher(session, providers))

    assert (result.reflections, result.dropped, result.skipped) == (1, 0, "error")


def test_a_success_clears_the_last_error() -> None:
    session = talk()
    broken = Scripted([[Exception("boom")]])
    flush = flusher(session, {**scripts(), "observation": broken})

    assert run(flush).skipped == "error"
    assert run(flush).skipped is None
    assert flush.status().last_error is None


def test_a_failure_without_words_has_a_fixed_text() -> None:
    flush = flusher(talk(), {**scripts(), "observation": Scripted([[Exception()]])})

    run(flush)

    assert (flush.status().last_error or "").startswith("Observational memory flush failed")


def test_a_dropper_runs_only_after_a_reflection_of_the_same_flush() -> None:
    session = talk()
    dropper = Scripted()

    run(flusher(session, {**scripts(), "dropper": dropper}))

    assert dropper.requests == []


@pytest.mark.parametrize(
    ("settings", "skipped"), [({**LOW, "passive": True}, "passive"), (LOW, "run_active")]
)
def test_a_flush_says_why_it_did_nothing(settings: JsonObject, skipped: str) -> None:
    session = talk()
    session.is_run_active = skipped == "run_active"

    assert run(flusher(session, scripts(), settings)).skipped == skipped
    assert session.records == []


class Waiting:
    """A provider that waits until it is let go."""

    name = model = "waiting"

    def __init__(self) -> None:
        self.may_go = asyncio.Event()

    async def turn(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        await self.may_go.wait()
        yield Text("")


def test_one_flush_at_a_time() -> None:
    provider = Waiting()
    flush = flusher(talk(), {"observation": provider})

    async def both() -> tuple[FlushResult, FlushResult]:
        first = asyncio.create_task(flush.flush())
        await asyncio.sleep(0)
        second = await flush.flush()
        assert flush.status().is_in_flight
        provider.may_go.set()
        return await first, second

    first, second = asyncio.run(both())
    assert (first.skipped, second.skipped) == (None, "in_flight")
    assert not flush.status().is_in_flight


@pytest.mark.parametrize(
    ("worker", "skipped"),
    [
        (Worker(), "missing_model"),
        (Worker(provider=Scripted()), "missing_model"),
        (Worker(provider=Scripted(), model="m", has_credentials=False), "missing_credentials"),
        (Worker(provider=Scripted(), model="m"), None),
    ],
)
def test_a_stage_without_a_worker_ends_the_flush_and_says_so(
    worker: Worker, skipped: str | None
) -> None:
    flush = MemoryFlush(talk(), {"observation": worker}, MemorySettings, now=lambda: AT)

    assert run(flush).skipped == skipped


def test_the_session_model_stands_in_unless_an_explicit_one_is_required() -> None:
    for is_explicit, skipped in ((False, None), (True, "missing_model")):
        worker = Worker(provider=Scripted(), require_explicit_model=is_explicit)
        flush = MemoryFlush(
            talk(), {"observation": worker}, MemorySettings, now=lambda: AT, session_model="m"
        )
        assert run(flush).skipped == skipped


def test_new_memory_is_bound_to_the_current_scope_also_after_a_failure() -> None:
    session = talk()
    session.view.append(entry("t1", data={"type": "om.scope.opened", "id": "task"}))
    session.view.append(entry("t2", data={"type": "om.scope.entered", "scopeId": "task"}))

    result = run(flusher(session, scripts(reflect=[Exception("boom")])))

    [observed] = fold(session.view).observations
    assert result == FlushResult(observations=1, skipped="error")
    assert session.records[-1] == {
        "type": "om.scope.bound",
        "scopeId": "task",
        "refs": [f"om:{observed.id}"],
    }


def test_the_lowest_relevance_policy_asks_no_model() -> None:
    session = talk()
    providers = scripts()
    run(flusher(session, {"observation": providers["observation"]}))
    dropper = Scripted()
    providers = {"reflection": Scripted([reflect_on(session)]), "dropper": dropper}
    settings: JsonObject = {**LOW, "dropper": {"targetTokens": 1, "policy": "lowest-relevance"}}

    assert run(flusher(session, providers, settings)).dropped == 1
    assert dropper.requests == []


def test_a_full_rebuild_reflects_on_everything_again() -> None:
    session = talk()
    run(flusher(session, scripts()))
    reflector = Scripted()

    run(flusher(session, {"reflection": reflector}))
    assert reflector.requests == []

    run(flusher(session, {"reflection": reflector}), full_reflection_rebuild=True)
    assert len(reflector.requests) == 1


def test_the_default_provider_fills_a_session_from_its_first_entry() -> None:
    """Case B06: nothing has to be compacted before anything is observed."""
    session = talk()
    provider = Extractive()

    result = run(flusher(session, dict.fromkeys(("observation", "reflection"), provider), {}))

    assert result.observations == 1
    assert fold(session.view).observations[0].content == "User rule: Use pnpm, not npm"


def test_small_talk_is_read_once() -> None:
    """Case B01: an empty answer advances the coverage, and the question is closed."""
    session = talk()
    provider = Scripted()
    flush = flusher(session, {"observation": provider})
    run(flush)
    run(flush)
    session.view.extend(message(f"m{n}", "ok") for n in range(10))
    run(flush)

    assert len(provider.requests) == 2
    assert provider.requests[1].material.sources[0].id == "m0"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"store": {}}, TerminalError),
        ({"workerProvider": None}, TypeError),
        ({"workerModel": "m"}, TypeError),
        ({"maxWorkerTurns": 65}, SettingOutOfRange),
        ({"maxWorkerErrorBytes": 0}, SettingOutOfRange),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    options: JsonObject, error: type[Exception]
) -> None:
    with pytest.raises(error, match=next(iter(options))):
        limits_of(options)


def test_limits_are_read_from_the_hosts_options() -> None:
    limits = limits_of({"maxWorkerTurns": 64, "maxWorkerToolCallsPerTurn": None})

    assert (limits.max_turns, limits.max_tool_calls_per_turn) == (64, 32)


@pytest.mark.parametrize(
    ("options", "n_turns"),
    [
        ({}, 1),
        ({"maxWorkerTurns": None}, 1),
        ({"maxWorkerTurns": 2}, 2),
        ({"maxWorkerTurns": 16}, 16),
    ],
)
def test_the_setting_bounds_the_turns_of_a_run_unless_the_host_does(
    options: JsonObject, n_turns: int
) -> None:
    fact = call("record_observation", content="Uses pnpm", sourceEntryIds=["e1"])
    observer = Scripted([[fact]] * 20)
    settings = resolve_settings(None, {"agentMaxTurns": 1})
    flush = MemoryFlush(
        talk(),
        {"observation": Worker(provider=observer, model="m")},
        lambda: settings,
        now=lambda: AT,
        limits=limits_of(options),
        bounds_turns=bounds_turns(options),
    )

    assert run(flush).observations == n_turns
    assert len(observer.requests) == n_turns
