"""The bounded tool-only loop: every limit has its yes and its no (S15)."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest
from msgspec.structs import replace
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.settings import WorkerLimits
from ombus_streams.providers.scripted import Scripted, Turn, call
from ombus_streams.runtime.errors import Refused, WorkerFailed
from ombus_streams.runtime.limits import measure
from ombus_streams.runtime.model_loop import LoopRequest, LoopResult, run_loop
from ombus_streams.runtime.provider import (
    Material,
    ModelRequest,
    Text,
    Tool,
    ToolCall,
    TurnEvent,
    TurnFailed,
    Usage,
)

NOTE = Tool(name="note", description="", parameters={"type": "object"})


class Run:
    """One run of the loop over a script, with a tool that remembers its arguments."""

    def __init__(
        self,
        turns: Sequence[Turn],
        limits: WorkerLimits | None = None,
        *,
        secrets: tuple[str, ...] = (),
        value: JsonValue = None,
        prompt: str = "p",
    ) -> None:
        self.provider = Scripted(turns)
        self.noted: list[JsonValue] = []
        self._value: JsonValue = {"ok": True} if value is None else value
        self._request = replace(request(limits or WorkerLimits()), prompt=prompt, secrets=secrets)

    def start(self) -> LoopResult:
        return asyncio.run(run_loop(self.provider, self._request, {"note": self._note}))

    def fail(self) -> WorkerFailed:
        with pytest.raises(WorkerFailed) as caught:
            self.start()
        return caught.value

    @property
    def transcript(self) -> tuple[JsonObject, ...]:
        return self.provider.requests[-1].messages

    def _note(self, arguments: JsonValue) -> JsonValue:
        self.noted.append(arguments)
        return self._value


def notes(count: int) -> list[ToolCall]:
    return [call("note", f"c{n}", n=n) for n in range(count)]


def test_a_turn_without_a_call_ends_the_run() -> None:
    run = Run([notes(1), [Text("done")], notes(1)])

    assert run.start() == LoopResult(n_turns=2, n_calls=1, usage=None)
    assert run.noted == [{"n": 0}]


def test_prose_is_ignored_and_usage_is_summed() -> None:
    turn: Turn = [Text("```json {}```"), Usage(input_tokens=5, output_tokens=1), *notes(1)]
    run = Run([turn, [Usage(input_tokens=7, cached_tokens=3)]])

    usage = run.start().usage

    assert usage == Usage(input_tokens=12, output_tokens=1, cached_tokens=3)


def test_calls_run_after_the_stream_has_ended() -> None:
    run = Run([[*notes(2), TurnFailed(message="cut")]])

    run.fail()

    assert run.noted == []


def test_the_transcript_holds_one_message_of_calls_and_one_per_result() -> None:
    run = Run([notes(2)])

    run.start()

    assert [message["role"] for message in run.transcript] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
    ]
    assert run.transcript[-1]["content"] == [
        {"type": "tool_result", "toolCallId": "c1", "name": "note", "result": {"ok": True}}
    ]


def test_the_calls_of_the_last_turn_are_run_and_nothing_more_is_asked() -> None:
    run = Run([notes(1)] * 3, WorkerLimits(max_turns=2))

    assert run.start().n_turns == 2
    assert len(run.noted) == 2
    assert len(run.provider.requests) == 2


def test_a_turn_may_make_its_calls_and_not_one_more() -> None:
    limits = WorkerLimits(max_tool_calls_per_turn=2)

    assert Run([notes(2)], limits).start().n_calls == 2
    failed = Run([notes(3)], limits).fail()

    assert "2 tool calls" in str(failed)
    assert failed.failure == "protocol"
    assert not failed.is_transient


def test_a_run_may_make_its_calls_and_not_one_more() -> None:
    limits = WorkerLimits(max_tool_calls=3)

    assert Run([notes(2), notes(1)], limits).start().n_calls == 3
    assert "3 tool calls" in str(Run([notes(2), notes(2)], limits).fail())


def test_a_turn_is_told_how_many_calls_it_may_make() -> None:
    run = Run([notes(2), notes(1)], WorkerLimits(max_tool_calls=3, max_tool_calls_per_turn=2))

    run.start()

    assert [request.max_calls for request in run.provider.requests] == [2, 1, 0]
    assert [request.n_calls for request in run.provider.requests] == [0, 2, 3]


def test_an_unknown_tool_fails_the_run() -> None:
    run = Run([[*notes(1), call("delete_everything")]])

    assert str(run.fail()) == "Unknown observational memory tool: delete_everything"
    assert run.noted == []


def test_arguments_of_the_cap_pass_and_larger_ones_fail() -> None:
    turn = [call("note", text="x" * 20)]
    size = measure({"text": "x" * 20}, 100, "arguments")

    Run([turn], WorkerLimits(max_argument_bytes=size)).start()
    failed = Run([turn], WorkerLimits(max_argument_bytes=size - 1)).fail()

    assert str(failed) == f"Observational memory tool arguments exceeds {size - 1} bytes"


def test_arguments_are_measured_again_after_redaction() -> None:
    turn = [call("note", text="k" * 20)]
    limits = WorkerLimits(max_argument_bytes=40)

    Run([turn], limits).start()

    assert "arguments exceeds" in str(Run([turn], limits, secrets=("k",)).fail())


def test_absent_arguments_fail_and_null_ones_reach_the_tool() -> None:
    assert "is not JSON" in str(Run([[ToolCall(id="c", name="note")]]).fail())

    run = Run([[ToolCall(id="c", name="note", arguments=None)]])
    run.start()
    assert run.noted == [None]


def test_a_secret_that_renames_the_arguments_key_fails_the_call() -> None:
    assert "is not JSON" in str(Run([notes(1)], secrets=("rgument",)).fail())


def test_a_tool_gets_raw_arguments_and_the_transcript_redacted_ones() -> None:
    run = Run([[call("note", text="the s3cr3t")]], secrets=("s3cr3t",))

    run.start()

    assert run.noted == [{"text": "the s3cr3t"}]
    assert "s3cr3t" not in str(run.transcript)
    assert "[REDACTED]" in str(run.transcript)


def test_a_result_of_the_cap_passes_and_a_larger_one_fails() -> None:
    value: JsonValue = {"ok": "x" * 30}
    size = measure({"result": value}, 1_000, "result")

    Run([notes(1)], WorkerLimits(max_result_bytes=size), value=value).start()
    failed = Run([notes(1)], WorkerLimits(max_result_bytes=size - 1), value=value).fail()

    assert "tool result exceeds" in str(failed)


def test_the_transcript_may_reach_its_cap_and_not_pass_it() -> None:
    whole = Run([notes(1)])
    whole.start()
    size = measure(whole.transcript, 10_000, "transcript")

    Run([notes(1)], WorkerLimits(max_message_bytes=size)).start()
    failed = Run([notes(1)], WorkerLimits(max_message_bytes=size - 1)).fail()

    assert str(failed) == f"Observational memory transcript exceeds {size - 1} bytes"


def test_a_prompt_beyond_its_cap_is_refused_before_the_provider_is_asked() -> None:
    run = Run([notes(1)], WorkerLimits(max_message_bytes=100), prompt="x" * 100)

    with pytest.raises(Refused) as caught:
        run.start()

    assert caught.value.reason == "too_large"
    assert run.provider.requests == []


@pytest.mark.parametrize(
    ("event", "failure"),
    [
        (TurnFailed(message="slow", code=429), "transient"),
        (TurnFailed(message="slow", code="429"), "provider"),
        (TurnFailed(message="model overloaded"), "transient"),
        (TurnFailed(message="bad key", code=401), "provider"),
        (Exception("rate limit reached"), "transient"),
        (ConnectionResetError("peer went away"), "transient"),
        (Exception("request aborted: timeout"), "provider"),
    ],
)
def test_a_failure_is_of_the_class_the_retry_rule_gives_it(
    event: TurnFailed | Exception, failure: str
) -> None:
    assert Run([[event]]).fail().failure == failure


def test_a_hint_when_to_come_back_is_kept() -> None:
    failed = Run([[TurnFailed(message="x", code=429, retry_after_ms=1_500)]]).fail()

    assert failed.retry_after_ms == 1_500


def test_a_refusal_of_the_provider_is_for_good() -> None:
    with pytest.raises(Refused, match="not this text") as caught:
        Run([[TurnFailed(message="not this text", is_refusal=True)]]).start()

    assert caught.value.reason == "provider_refused"


def test_what_a_provider_raises_is_redacted_and_cut() -> None:
    failed = Run(
        [[Exception("socket s3cr3t closed")]], WorkerLimits(max_error_bytes=16), secrets=("s3cr3t",)
    ).fail()

    assert str(failed) == "socket [REDACTED"


class Hanging:
    """A provider that never finishes a turn, and says when it was closed."""

    name = model = "hanging"

    def __init__(self) -> None:
        self.is_closed = False

    async def turn(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        try:
            for n in range(request.max_calls + 1):
                yield call("note", f"c{n}")
            await asyncio.Event().wait()
        finally:
            self.is_closed = True


def request(limits: WorkerLimits) -> LoopRequest:
    return LoopRequest(
        worker="observer",
        system="s",
        prompt="p",
        tools=(NOTE,),
        options={},
        material=Material(),
        limits=limits,
    )


def test_a_run_that_fails_closes_the_stream() -> None:
    provider = Hanging()

    with pytest.raises(WorkerFailed):
        asyncio.run(run_loop(provider, request(WorkerLimits()), {"note": lambda _: None}))

    assert provider.is_closed


def test_a_cancelled_run_is_cancelled_not_failed() -> None:
    provider = Scripted(lambda _: (_ for _ in ()).throw(asyncio.CancelledError()))

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run_loop(provider, request(WorkerLimits()), {"note": lambda _: None}))


class Endless:
    """A provider that would call for ever, and counts how far it got."""

    name = model = "endless"

    def __init__(self) -> None:
        self.n_yielded = 0

    async def turn(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        while True:
            self.n_yielded += 1
            yield call("note", text="x" * 100)


def test_the_stream_is_left_at_the_first_call_that_would_not_fit_the_transcript() -> None:
    provider = Endless()
    limits = WorkerLimits(max_message_bytes=1_000)

    with pytest.raises(WorkerFailed, match="transcript exceeds 1000 bytes"):
        asyncio.run(run_loop(provider, request(limits), {"note": lambda _: None}))

    assert provider.n_yielded < limits.max_tool_calls_per_turn
