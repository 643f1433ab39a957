"""A model behind the Chat Completions API: OpenAI's own, or any server that speaks it.

vLLM, Ollama, LM Studio, llama.cpp and gateways differ in what they leave out, so nothing optional
is relied on: ids, usage and even finish reasons may be missing, and only the last of these makes a
turn fail, because without it nobody knows whether the answer is whole. The SDK (extra ``openai``)
is imported when the first turn is asked for, and never retries by itself.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, cast

from ombus_schemas.jsontext import JsonObject, JsonValue

from ombus_streams.providers.chat import ChatAnswer, messages_of
from ombus_streams.providers.clients import Clients
from ombus_streams.providers.failures import failure, is_torn
from ombus_streams.providers.options import (
    RequestOptions,
    Thinking,
    ToolChoice,
    correlation_headers,
    request_options,
)
from ombus_streams.runtime.provider import ModelRequest, Tool, TurnEvent, TurnFailed

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAIError

OFFICIAL: Final = "https://api.openai.com/v1"
NO_KEY: Final = "no-key"
"""What a server that asks for no credential is sent: the SDK insists on one."""
TIMEOUT_SECONDS: Final = 120.0

MAX_NAMED_IDS: Final = 256
_ID_LISTS: Final = frozenset({"sourceEntryIds", "supportingObservationIds", "observationIds"})
_FIXED: Final = frozenset(
    {"model", "messages", "tools", "tool_choice", "stream", "stream_options", "n"}
)
_EFFORT: Final[Mapping[Thinking, str]] = {
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
}
"""``off`` sends nothing: a model that does not reason refuses the field."""


class OpenAI:
    """A provider over one model of one address. Stateless between turns."""

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        name: str = "openai",
        streams: bool = True,
        tool_choice: ToolChoice = "auto",
        forced_turns: int = 1,
        max_tokens: int | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        names_ids: bool = False,
    ) -> None:
        """``tool_choice`` holds for the first ``forced_turns`` turns of a run, ``auto`` after them:

        a run ends with a turn that calls nothing. ``names_ids`` lists the ids an item may cite in
        the tool's schema: a server that decodes by schema then cannot let a small model make one
        up, at the price of tools that differ from run to run and so of the prompt cache.
        """
        self._names_ids = names_ids
        self.name, self.model = name, model
        self._key, self._base_url = api_key or NO_KEY, base_url or OFFICIAL
        self._streams, self._max_tokens = streams, max_tokens
        self._tool_choice, self._forced_turns = tool_choice, forced_turns
        self._timeout = timeout_seconds
        self._clients: Clients[AsyncOpenAI] = Clients(self._open)

    async def turn(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        """Yield the calls of one turn, each as soon as it is whole; the usage; or a failure."""
        from openai import OpenAIError

        try:
            events = self._streamed(request) if self._streams else self._answered(request)
            async with aclosing(events):
                async for event in events:
                    yield event
        except OpenAIError as error:
            yield _failed(error, self._key)
        except Exception as error:  # the SDK lets broken JSON and torn connections pass through
            if not is_torn(error):
                raise
            yield failure(f"the answer cannot be read: {error}", kind="ECONNRESET")

    def _open(self) -> "AsyncOpenAI":
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        # Every argument is said: what is left out, the SDK looks up in the environment.
        return AsyncOpenAI(
            api_key=self._key,
            base_url=self._base_url,
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(timeout=self._timeout),
        )

    async def _streamed(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        answer = ChatAnswer()
        stream = await self._clients.get().chat.completions.create(
            **self._body(request), stream=True, stream_options={"include_usage": True}
        )
        async with stream:
            async for chunk in stream:
                for event in answer.take_chunk(chunk):
                    yield event
        for event in answer.end():
            yield event

    async def _answered(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        answer = ChatAnswer()
        completion = await self._clients.get().chat.completions.create(
            **self._body(request), stream=False
        )
        for event in (*answer.take_whole(completion), *answer.end()):
            yield event

    def _body(self, request: ModelRequest) -> "dict[str, Any]":
        options = request_options(request.options, _FIXED)
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages_of(request.messages),
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": _named(tool, request) if self._names_ids else tool.parameters,
                    },
                }
                for tool in request.tools
            ],
            "tool_choice": self._choice(request),
            "extra_headers": correlation_headers(options.correlation_id),
            "extra_body": self._extra(options),
        }
        return body

    def _extra(self, options: RequestOptions) -> JsonObject:
        extra: JsonObject = dict(options.body)
        most = options.max_tokens or self._max_tokens
        if most is not None:
            # Only OpenAI's own reasoning models refuse the old name, only they know the new one.
            extra["max_completion_tokens" if self._is_official else "max_tokens"] = most
        effort = _EFFORT.get(options.thinking) if options.thinking else None
        if effort is not None:
            extra["reasoning_effort"] = effort
        if self._is_official and options.correlation_id:
            extra["prompt_cache_key"] = options.correlation_id[:64]
        return extra

    @property
    def _is_official(self) -> bool:
        return self._base_url.startswith("https://api.openai.com/")

    def _choice(self, request: ModelRequest) -> JsonValue:
        n_before = sum(message.get("role") == "assistant" for message in request.messages)
        if self._tool_choice == "auto" or n_before >= self._forced_turns:
            return "auto"
        if self._tool_choice == "required":
            return "required"
        return {"type": "function", "function": {"name": request.tools[0].name}}


def _named(tool: Tool, request: ModelRequest) -> JsonObject:
    """Return the tool's schema with the ids that the run was shown."""
    shown = request.material.sources or request.material.observations
    ids: list[JsonValue] = [item.id for item in shown]
    listed: JsonObject = {
        "type": "array",
        "items": {"type": "string", "enum": ids[:MAX_NAMED_IDS]},
        "minItems": 1,
    }
    properties = cast(JsonObject, tool.parameters.get("properties", {}))
    named: JsonObject = {
        name: listed if name in _ID_LISTS else schema for name, schema in properties.items()
    }
    return {**tool.parameters, "properties": named}


def _failed(error: "OpenAIError", key: str) -> TurnFailed:
    from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError

    match error:
        case APITimeoutError():
            return failure("the provider did not answer in time", kind="timeout")
        case APIConnectionError():
            cause = error.__cause__
            said = f"the connection failed: {cause or error}"
            return failure(said, kind="ECONNRESET", secret=key)
        case APIStatusError():
            return failure(
                error.message,
                status=error.status_code,
                kind=error.code or error.type,
                headers=error.response.headers,
                secret=key,
            )
        case APIError():
            return failure(error.message, kind=error.code or error.type, secret=key)
        case _:
            return failure(str(error), secret=key)
