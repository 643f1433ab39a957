"""The Chat Completions API as documented, and as servers and networks break it."""

import json
from typing import Any

import msgspec
import pytest
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.providers.openai import OpenAI
from ombus_streams.runtime.provider import (
    Material,
    ModelProvider,
    Text,
    ToolCall,
    TurnFailed,
    Usage,
)

from tests.providers.asking import FOLLOW_UP, ask, asked_of, request
from tests.providers.wire import Reply, error, events, whole
from tests.support.ledgers import message

pytest.importorskip("openai", reason="the extra `openai` is not installed")

ARGUMENTS = '{"content":"Use tabs — always 🙂","sourceEntryIds":["e1"],"relevance":"critical"}'


def streaming(url: str) -> ModelProvider:
    return OpenAI("m", base_url=f"{url}/v1", api_key="sk-secret")


def waiting(url: str) -> ModelProvider:
    return OpenAI("m", base_url=f"{url}/v1", api_key="sk-secret", streams=False)


def chunk(delta: JsonObject | None, finish: str | None = None, **more: JsonValue) -> JsonObject:
    choices: list[JsonValue] = []
    if delta is not None:
        choices.append({"index": 0, "delta": delta, "finish_reason": finish})
    return {"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": choices, **more}


def piece(arguments: str, index: int = 0, call_id: str | None = None) -> JsonObject:
    call: JsonObject = {"index": index, "function": {"arguments": arguments}}
    if call_id is not None:
        call |= {"id": call_id, "type": "function"}
        call["function"] = {"name": "record_observation", "arguments": arguments}
    return {"tool_calls": [call]}


USAGE: JsonObject = {
    "prompt_tokens": 90,
    "completion_tokens": 12,
    "total_tokens": 102,
    "prompt_tokens_details": {"cached_tokens": 64},
}


def streamed(**fields: Any) -> Reply:
    return events(
        [
            chunk({"role": "assistant", "content": "I see. "}),
            chunk(piece("", 0, "call_a")),
            *(chunk(piece(ARGUMENTS[at : at + 7])) for at in range(0, len(ARGUMENTS), 7)),
            chunk(piece("{}", 1, "call_b")),
            chunk({}, "tool_calls"),
            chunk(None, usage=USAGE),
            "[DONE]",
        ],
        **fields,
    )


def completion(finish: str | None, **message: JsonValue) -> Reply:
    choice: JsonObject = {
        "index": 0,
        "message": {"role": "assistant", "content": None, **message},
        "finish_reason": finish,
    }
    return whole({"id": "x", "object": "chat.completion", "choices": [choice], "usage": USAGE})


EXPECTED = [
    Text("I see. "),
    ToolCall(id="call_a", name="record_observation", arguments=json.loads(ARGUMENTS)),
    ToolCall(id="call_b", name="record_observation", arguments={}),
    Usage(input_tokens=90, output_tokens=12, cached_tokens=64),
]


@pytest.mark.parametrize("piece_bytes", [1, 3, 65_536])
def test_a_stream_is_read_wherever_it_is_split(piece_bytes: int) -> None:
    found = ask(streaming, streamed(piece_bytes=piece_bytes))

    assert [*found[:2], found[3], found[2]] == EXPECTED  # the last call is whole at the end


def test_an_answer_in_one_piece_says_the_same() -> None:
    calls: list[JsonValue] = [
        {
            "id": f"call_{name}",
            "type": "function",
            "function": {"name": "record_observation", "arguments": arguments},
        }
        for name, arguments in (("a", ARGUMENTS), ("b", ""))
    ]

    found = ask(waiting, completion("tool_calls", content="I see. ", tool_calls=calls))

    assert [*found[:2], found[3], found[2]] == EXPECTED


def test_a_request_says_what_the_documentation_asks_for() -> None:
    _, server = asked_of(streaming, streamed(), asked=request(*FOLLOW_UP, temperature=0))

    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == "Bearer sk-secret"
    assert asked.headers["x-session-id"] == "om:s1"
    body = asked.body
    assert (body["model"], body["stream"], body["temperature"]) == ("m", True, 0)
    assert body["stream_options"] == {"include_usage": True}
    assert body["tool_choice"] == "auto"
    assert "prompt_cache_key" not in body  # another's server may refuse what it does not know
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool"]
    assert body["messages"][2]["tool_calls"][0] == {
        "id": "c1",
        "type": "function",
        "function": {"name": "record_observation", "arguments": '{"content":"ä"}'},
    }


def test_the_prefix_of_a_request_is_the_same_in_every_turn_of_a_run() -> None:
    _, first = asked_of(streaming, streamed())
    _, second = asked_of(streaming, streamed(), asked=request(*FOLLOW_UP))

    before, after = first.asked[0].body, second.asked[0].body
    assert after["messages"][:2] == before["messages"]
    assert after["tools"] == before["tools"]


def test_a_forced_tool_is_forced_once_so_a_run_can_end() -> None:
    def forced(url: str) -> ModelProvider:
        return OpenAI("m", base_url=url, tool_choice="named")

    _, first = asked_of(forced, streamed())
    _, second = asked_of(forced, streamed(), asked=request(*FOLLOW_UP))

    named = {"type": "function", "function": {"name": "record_observation"}}
    assert first.asked[0].body["tool_choice"] == named
    assert second.asked[0].body["tool_choice"] == "auto"
    assert first.asked[0].headers["authorization"] == "Bearer no-key"


def test_ids_may_be_named_in_the_schema_for_servers_that_decode_by_it() -> None:
    def naming(url: str) -> ModelProvider:
        return OpenAI("m", base_url=url, names_ids=True)

    asked = msgspec.structs.replace(
        request(), material=Material(sources=(message("e1", "x"), message("e2", "y")))
    )
    _, server = asked_of(naming, streamed(), asked=asked)

    (tool,) = server.asked[0].body["tools"]
    properties = tool["function"]["parameters"]["properties"]
    assert properties["sourceEntryIds"]["items"]["enum"] == ["e1", "e2"]
    assert properties["content"] == {"type": "string"}


def test_thinking_and_output_limit_are_told_in_the_servers_words() -> None:
    _, server = asked_of(
        streaming, streamed(), asked=request(thinkingLevel="high", maxTokens=500, model="evil")
    )

    body = server.asked[0].body
    assert (body["reasoning_effort"], body["max_tokens"], body["model"]) == ("high", 500, "m")


@pytest.mark.parametrize(
    ("headers", "waits_ms"),
    [
        ((("retry-after", "7"),), 7_000),
        ((("retry-after-ms", "250"), ("retry-after", "7")), 250),
        ((("retry-after", "soon"),), None),
        ((), None),
    ],
)
def test_too_many_requests_say_how_long_to_wait(
    headers: tuple[tuple[str, str], ...], waits_ms: int | None
) -> None:
    (failed,) = ask(streaming, error(429, "slow down", headers=headers))

    assert isinstance(failed, TurnFailed)
    assert (failed.code, failed.retry_after_ms, failed.is_refusal) == (429, waits_ms, False)


def test_the_sdk_itself_never_asks_twice() -> None:
    _, server = asked_of(streaming, error(500, "broken"), streamed())

    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("reply", "code", "is_refusal"),
    [
        (error(529, "busy"), "overloaded", False),
        (error(503, "away"), 503, False),
        (error(401, "Incorrect API key provided: sk-secret"), 401, False),
        (error(429, "no money", code="insufficient_quota"), "insufficient_quota", False),
        (error(400, "too big", code="context_length_exceeded"), 400, True),
        (error(400, "Requested tokens (9) exceed context window of 8"), 400, True),
        (error(400, "tools is no list"), 400, False),
        (error(413, "too big"), 413, True),
        (events([chunk({"content": "a"}), '{"error":{"message":"x","code":"502"}}']), 502, False),
        (events([chunk({"refusal": "No."}), chunk({}, "stop"), "[DONE]"]), "content_filter", True),
        (events([chunk({}, "content_filter"), "[DONE]"]), "content_filter", True),
        (events([chunk(None), "[DONE]"]), "temporarily_unavailable", False),
        (events(["[DONE]"]), "temporarily_unavailable", False),
        (events([chunk({}, "length"), "[DONE]"]), "max_tokens", False),
        (events([chunk(piece("{}", 0, "a"))]), "ECONNRESET", False),
        (events([chunk(piece("{}", 0, "a"))], end="cut"), "ECONNRESET", False),
        (events(['{"choices":[{"ind']), "ECONNRESET", False),
        (events([chunk(piece('{"content":"cu', 0, "a")), chunk({}, "tool_calls")]),
         "bad_arguments", False),
        (events([chunk(piece('{"content":"cu', 0, "a")), chunk({}, "length")]),
         "max_tokens", False),
        (events([chunk(piece("[" * 100_000, 0, "a")), chunk({}, "tool_calls")]),
         "bad_arguments", False),
    ],
)  # fmt: skip
def test_what_breaks_a_stream_fails_its_turn(
    reply: Reply, code: str | int, is_refusal: bool
) -> None:
    *before, failed = ask(streaming, reply)

    assert isinstance(failed, TurnFailed)
    assert (failed.code, failed.is_refusal) == (code, is_refusal)
    assert not any(isinstance(event, TurnFailed) for event in before)
    assert "sk-secret" not in failed.message


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (whole({"id": "x", "choices": []}), "temporarily_unavailable"),
        (whole({"id": "x"}), "temporarily_unavailable"),
        (completion("length", content="cut"), "max_tokens"),
        (completion("stop", refusal="No."), "content_filter"),
        (whole({"id": "x"}, end="cut"), "ECONNRESET"),
    ],
)
def test_what_breaks_a_whole_answer_fails_its_turn(reply: Reply, code: str | int) -> None:
    *_, failed = ask(waiting, reply)

    assert isinstance(failed, TurnFailed)
    assert failed.code == code


def test_nobody_at_the_address_is_a_lost_connection() -> None:
    (failed,) = ask(lambda _url: OpenAI("m", base_url="http://127.0.0.1:9"))

    assert isinstance(failed, TurnFailed)
    assert failed.code == "ECONNRESET"


def test_text_instead_of_a_call_is_no_failure() -> None:
    """Case B13: a fenced reply is prose, and prose of a tool-only turn is ignored."""
    said = '```json\n{"observations":[]}\n```'

    found = ask(streaming, events([chunk({"content": said}), chunk({}, "stop"), "[DONE]"]))

    assert found == [Text(said)]


def test_calls_without_ids_or_with_one_id_are_told_apart() -> None:
    found = ask(
        streaming,
        events(
            [
                chunk(piece('{"content":"a"}', 0, "")),
                chunk(piece('{"content":"b"}', 1, "")),
                chunk(piece('{"content":"c"}', 2, "same")),
                chunk(piece('{"content":"d"}', 3, "same")),
                chunk({}, "tool_calls"),
            ]
        ),
    )

    calls = [event for event in found if isinstance(event, ToolCall)]
    assert len({call.id for call in calls}) == len(calls) == 4
    assert [call.arguments for call in calls] == [{"content": each} for each in "abcd"]


def test_one_provider_serves_one_loop_after_the_other() -> None:
    shared: dict[str, ModelProvider] = {}

    def opened(url: str) -> ModelProvider:
        provider = shared.setdefault("one", OpenAI("m", base_url=url))
        return provider

    assert len(ask(opened, streamed())) == 4
    (failed,) = ask(opened, streamed())  # the first server is gone: an answer, not a dead loop
    assert isinstance(failed, TurnFailed)
