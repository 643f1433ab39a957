"""The Messages API as documented, and as servers and networks break it."""

import json
from typing import Any

import pytest
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.providers.anthropic import Anthropic
from ombus_streams.runtime.provider import ModelProvider, Text, ToolCall, TurnFailed, Usage

from tests.providers.asking import FOLLOW_UP, ask, asked_of, request
from tests.providers.wire import Asked, Reply, error, events, whole

pytestmark = pytest.mark.filterwarnings("ignore:The model:DeprecationWarning")
pytest.importorskip("anthropic", reason="the extra `anthropic` is not installed")

ARGUMENTS = '{"content":"Use tabs — always 🙂","sourceEntryIds":["e1"],"relevance":"critical"}'
CACHED = {"type": "ephemeral"}


def streaming(url: str) -> ModelProvider:
    return Anthropic("claude-sonnet-4-5", base_url=url, api_key="sk-secret")


def waiting(url: str) -> ModelProvider:
    return Anthropic("claude-sonnet-4-5", base_url=url, api_key="sk-secret", streams=False)


START: JsonObject = {
    "type": "message_start",
    "message": {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "m",
        "stop_reason": None,
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 20,
            "cache_read_input_tokens": 64,
            "output_tokens": 1,
        },
    },
}
STOP: JsonObject = {"type": "message_stop"}


def credential(asked: Asked) -> str:
    """Return the key, in whichever header the SDK of the day sends it."""
    headers = asked.headers
    return headers.get("x-api-key") or headers["authorization"].removeprefix("Bearer ")


def begun(index: int, block: JsonObject) -> JsonObject:
    return {"type": "content_block_start", "index": index, "content_block": block}


def use(index: int, call_id: str) -> JsonObject:
    return begun(
        index, {"type": "tool_use", "id": call_id, "name": "record_observation", "input": {}}
    )


def piece(index: int, text: str) -> JsonObject:
    delta: JsonObject = {"type": "input_json_delta", "partial_json": text}
    return {"type": "content_block_delta", "index": index, "delta": delta}


def ended(index: int) -> JsonObject:
    return {"type": "content_block_stop", "index": index}


def stopped(reason: str | None) -> JsonObject:
    return {
        "type": "message_delta",
        "delta": {"stop_reason": reason},
        "usage": {"output_tokens": 12},
    }


def streamed(**fields: Any) -> Reply:
    return events(
        [
            START,
            {"type": "ping"},
            begun(0, {"type": "text", "text": ""}),
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": "I see. "},
            },
            ended(0),
            use(1, "toolu_a"),
            *(piece(1, ARGUMENTS[at : at + 7]) for at in range(0, len(ARGUMENTS), 7)),
            ended(1),
            use(2, "toolu_b"),
            piece(2, ""),
            ended(2),
            stopped("tool_use"),
            STOP,
        ],
        named=True,
        **fields,
    )


def message(stop: str | None, *content: JsonValue) -> Reply:
    return whole(
        {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": list(content),
            "stop_reason": stop,
            "usage": {
                "input_tokens": 30,
                "output_tokens": 12,
                "cache_read_input_tokens": 64,
            },
        }
    )


EXPECTED = [
    Text("I see. "),
    ToolCall(id="toolu_a", name="record_observation", arguments=json.loads(ARGUMENTS)),
    ToolCall(id="toolu_b", name="record_observation", arguments={}),
    Usage(input_tokens=94, output_tokens=12, cached_tokens=64),
]


@pytest.mark.parametrize("piece_bytes", [1, 3, 65_536])
def test_a_stream_is_read_wherever_it_is_split(piece_bytes: int) -> None:
    assert ask(streaming, streamed(piece_bytes=piece_bytes)) == EXPECTED


def test_an_answer_in_one_piece_says_the_same() -> None:
    found = ask(
        waiting,
        message(
            "tool_use",
            {"type": "text", "text": "I see. "},
            {
                "type": "tool_use",
                "id": "toolu_a",
                "name": "record_observation",
                "input": json.loads(ARGUMENTS),
            },
            {"type": "tool_use", "id": "toolu_b", "name": "record_observation", "input": {}},
        ),
    )

    assert found == EXPECTED


def test_a_request_says_what_the_documentation_asks_for() -> None:
    _, server = asked_of(streaming, streamed(), asked=request(*FOLLOW_UP, temperature=0))

    (asked,) = server.asked
    assert asked.path == "/v1/messages"
    assert credential(asked) == "sk-secret"
    assert asked.headers["x-session-id"] == "om:s1"
    body = asked.body
    assert (body["max_tokens"], body["stream"], body["temperature"]) == (8_192, True, 0)
    assert body["metadata"] == {"user_id": "om:s1"}
    assert [each["role"] for each in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"][0] == {
        "type": "tool_use",
        "id": "c1",
        "name": "record_observation",
        "input": {"content": "ä"},
    }
    results = body["messages"][2]["content"]
    assert [each["tool_use_id"] for each in results] == ["c1", "c2"]
    assert results[0]["content"] == '{"ok":true}'


def test_the_prefix_of_a_run_is_marked_for_the_cache_and_never_changes() -> None:
    _, first = asked_of(streaming, streamed())
    _, second = asked_of(streaming, streamed(), asked=request(*FOLLOW_UP))

    before, after = first.asked[0].body, second.asked[0].body
    assert before["system"][0]["cache_control"] == CACHED
    assert before["messages"][0]["content"][-1]["cache_control"] == CACHED
    assert (after["system"], after["tools"]) == (before["system"], before["tools"])
    assert after["messages"][:1] == before["messages"]


def test_thinking_is_asked_for_once_in_the_words_of_the_models_family() -> None:
    def newer(url: str) -> ModelProvider:
        return Anthropic("claude-opus-5", base_url=url)

    _, budgeted = asked_of(streaming, streamed(), asked=request(thinkingLevel="high"))
    _, adaptive = asked_of(newer, streamed(), asked=request(thinkingLevel="high"))
    _, later = asked_of(streaming, streamed(), asked=request(*FOLLOW_UP, thinkingLevel="high"))

    told = budgeted.asked[0].body
    assert told["thinking"] == {"type": "enabled", "budget_tokens": 8_192}
    assert told["max_tokens"] > 8_192
    assert adaptive.asked[0].body["thinking"] == {"type": "adaptive"}
    assert adaptive.asked[0].body["output_config"] == {"effort": "high"}
    assert "thinking" not in later.asked[0].body


def test_a_forced_tool_is_forced_once_so_a_run_can_end() -> None:
    def forced(url: str) -> ModelProvider:
        return Anthropic("m", base_url=url, tool_choice="named")

    _, first = asked_of(forced, streamed())
    _, second = asked_of(forced, streamed(), asked=request(*FOLLOW_UP))

    assert first.asked[0].body["tool_choice"] == {"type": "tool", "name": "record_observation"}
    assert second.asked[0].body["tool_choice"] == {"type": "auto"}


def test_the_environments_key_is_never_taken_without_being_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-somebody-else")

    _, server = asked_of(lambda url: Anthropic("m", base_url=url), streamed())

    assert credential(server.asked[0]) == "no-key"


BROKEN_CALL = [START, use(0, "t"), piece(0, '{"content":"cu'), ended(0)]


@pytest.mark.parametrize(
    ("reply", "code", "is_refusal", "waits_ms"),
    [
        (error(429, "slow", headers=[("retry-after", "3")], type="rate_limit_error"),
         "rate_limit", False, 3_000),
        (error(529, "Overloaded", type="overloaded_error"), "overloaded", False, None),
        (error(401, "invalid x-api-key", type="authentication_error"), 401, False, None),
        (error(400, "prompt is too long: 9 tokens > 8", type="invalid_request_error"),
         400, True, None),
        (error(400, "tools: field required", type="invalid_request_error"), 400, False, None),
        (error(413, "too large", type="request_too_large"), 413, True, None),
        (events([START, {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}],
                named=True), "overloaded", False, None),
        (events([START, stopped("refusal"), STOP], named=True), "refusal", True, None),
        (events([START, stopped("model_context_window_exceeded"), STOP], named=True),
         "model_context_window_exceeded", True, None),
        (events([START, stopped("max_tokens"), STOP], named=True), "max_tokens", False, None),
        (events([*BROKEN_CALL, stopped("max_tokens"), STOP], named=True),
         "max_tokens", False, None),
        (events([*BROKEN_CALL, stopped("tool_use"), STOP], named=True),
         "bad_arguments", False, None),
        (events([START, use(0, "t"), piece(0, "{}"), ended(0)], named=True),
         "ECONNRESET", False, None),
        (events([START, stopped("end_turn")], named=True), "ECONNRESET", False, None),
        (events([START], named=True, end="cut"), "ECONNRESET", False, None),
        (events([], named=True), "ECONNRESET", False, None),
    ],
)  # fmt: skip
def test_what_breaks_a_stream_fails_its_turn(
    reply: Reply, code: str | int, is_refusal: bool, waits_ms: int | None
) -> None:
    *before, failed = ask(streaming, reply)

    assert isinstance(failed, TurnFailed)
    found = (failed.code, failed.is_refusal, failed.retry_after_ms)
    assert found == (code, is_refusal, waits_ms)
    assert not any(isinstance(event, TurnFailed) for event in before)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (message("max_tokens", {"type": "tool_use", "id": "t", "name": "x", "input": {}}),
         "max_tokens"),
        (message("refusal"), "refusal"),
        (message(None), "ECONNRESET"),
    ],
)  # fmt: skip
def test_what_breaks_a_whole_answer_fails_its_turn(reply: Reply, code: str) -> None:
    *before, failed = ask(waiting, reply)

    assert isinstance(failed, TurnFailed)
    assert failed.code == code
    assert not any(isinstance(event, ToolCall) for event in before)


def test_an_empty_answer_ends_the_run_without_a_call() -> None:
    found = ask(streaming, events([START, stopped("end_turn"), STOP], named=True))

    assert found == [Usage(input_tokens=94, output_tokens=12, cached_tokens=64)]
