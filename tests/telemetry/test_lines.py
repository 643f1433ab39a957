"""One canonical line a batch and one a run, and counters that say the same."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from ombus_streams.engine.embedded.engine import Engine
from ombus_streams.memory.effects import Run
from ombus_streams.providers.scripted import Scripted, call
from ombus_streams.runtime.dispatch import Dispatch
from ombus_streams.runtime.errors import (
    Closed,
    Deferred,
    NotConfigured,
    Refused,
    ResultHeld,
    WorkerFailed,
)
from ombus_streams.runtime.metrics import DEAD_LETTERS, LAG, RECORDS, RUNS, TOKENS
from ombus_streams.runtime.ports import Draft
from ombus_streams.runtime.provider import ModelProvider, TurnEvent, Usage
from ombus_streams.runtime.roster import Fixed
from ombus_streams.runtime.staff import Providers, Staff
from ombus_streams.runtime.telemetry import Telemetry
from structlog.testing import capture_logs

from tests.support.engine import ManualClock
from tests.support.sessions import chat, settings
from tests.telemetry.spans import engine_in
from tests.telemetry.test_spans import TALK


def lines(logs: list[Any], event: str) -> list[Any]:
    return [each for each in logs if each["event"] == event]


def staffed(folder: Path, provider: ModelProvider, telemetry: Telemetry) -> Engine:
    clock = ManualClock()
    providers: Providers = {"observer": provider, "reflector": provider, "dropper": provider}
    staff = Staff(Fixed(providers), Dispatch(clock))
    return Engine(folder, clock, staff, partitions=1, telemetry=telemetry)


def test_a_batch_and_a_run_have_one_line_each(tmp_path: Path) -> None:
    telemetry = Telemetry()
    engine = engine_in(tmp_path, telemetry)
    engine.append(TALK)
    with capture_logs() as logs:
        engine.settle()
    engine.close()

    # What opens each of two partitions, in one the talk, and the result.
    assert sorted(each["n_records"] for each in lines(logs, "batch.folded")) == [1, 1, 4]
    (run,) = lines(logs, "run.finished")
    assert (run["worker"], run["outcome"], run["session"]) == ("observer", "recorded", "t/s")
    assert run["entry_id"].startswith("om:observer:")
    assert run["n_items"] == 2
    assert "ferry" not in str(logs)
    assert telemetry.tally.counted(RUNS) == {("observer", "recorded"): 1}
    assert telemetry.tally.counted(RECORDS) == {("all",): 6}


def test_a_run_s_line_has_its_tokens_and_the_counter_has_them_too(tmp_path: Path) -> None:
    said: list[TurnEvent] = [call("record_observation", content="x"), Usage(input_tokens=70)]
    over: list[TurnEvent] = [Usage(output_tokens=5)]
    provider = Scripted(lambda request: said if len(request.messages) < 3 else over)
    telemetry = Telemetry()
    engine = staffed(tmp_path, provider, telemetry)
    engine.append(TALK)
    with capture_logs() as logs:
        engine.settle()
    engine.close()

    (run,) = lines(logs, "run.finished")
    assert (run["tokens_input"], run["tokens_output"]) == (70, 5)
    counted = telemetry.tally.counted(TOKENS)
    assert counted == {("observer", "input"): 70, ("observer", "output"): 5}


def test_a_session_that_wants_no_notifications_is_told_of_in_debug_alone(tmp_path: Path) -> None:
    engine = engine_in(tmp_path, Telemetry())
    quiet = settings("set", None, observe=30)
    assert isinstance(quiet.data, dict)
    assert isinstance(quiet.data["settings"], dict)
    quiet.data["settings"]["showWorkerNotifications"] = False
    engine.append([quiet, *TALK[1:]])
    with capture_logs() as logs:
        engine.settle()
    engine.close()
    assert [each["log_level"] for each in lines(logs, "run.finished")] == ["debug"]


@pytest.mark.parametrize(
    ("error", "outcome", "level"),
    [
        (WorkerFailed("x", "provider"), "failed", "info"),
        (Refused("x", "too_large"), "refused", "info"),
        (Deferred("x", "busy", 1), "deferred", "debug"),
        (NotConfigured("x", "missing_model"), "deferred", "debug"),
        (ResultHeld("x"), "prepared", "info"),
        (Closed("x"), "given_up", "info"),
        (asyncio.CancelledError(), "given_up", "info"),
        (ZeroDivisionError(), "crashed", "info"),
    ],
)
def test_what_became_of_a_run_is_one_of_a_few_words(
    tmp_path: Path, error: BaseException, outcome: str, level: str
) -> None:
    telemetry = Telemetry()
    engine = engine_in(tmp_path, telemetry)
    engine.append(TALK)
    engine.fold()
    (task,) = engine.due()
    assert isinstance(task.effect, Run)
    session = engine.processors[engine.log.partition_of(b"t/s")].session(b"t/s")
    with (
        capture_logs() as logs,
        pytest.raises(type(error)),
        telemetry.run(0, session, task.effect),
    ):
        raise error
    engine.close()
    (run,) = lines(logs, "run.finished")
    assert (run["outcome"], run["log_level"]) == (outcome, level)
    assert telemetry.tally.counted(RUNS) == {("observer", outcome): 1}


def test_what_cannot_be_folded_is_counted_and_the_gauges_show_what_waits(tmp_path: Path) -> None:
    telemetry = Telemetry()
    engine = engine_in(tmp_path, telemetry)
    engine.settle()
    engine.log.append([Draft(key=b"t/s", value=b"{ no JSON")])
    engine.append([chat("m1", None)])
    partition = engine.log.partition_of(b"t/s")

    def lag() -> float:
        (found,) = [
            each.value
            for each in engine.samples()
            if each.metric is LAG and each.labels == ("all", str(partition))
        ]
        return found

    assert lag() == 2
    engine.settle()
    assert lag() == 0
    engine.close()
    assert telemetry.tally.counted(DEAD_LETTERS) == {("all",): 1}
