"""A model behind Anthropic's Messages API.

The prefix of a request (tool, system text, the first message) is the same in every turn of a run
and marked for the prompt cache. The SDK (extra ``anthropic``) is imported when the first turn is
asked for, and never retries by itself.
"""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from ombus_schemas.jsontext import JsonObject, JsonValue

from ombus_streams.providers.clients import Clients
from ombus_streams.providers.failures import failure, is_torn
from ombus_streams.providers.messages import MessageAnswer, messages_of
from ombus_streams.providers.options import (
    Thinking,
    ToolChoice,
    correlation_headers,
    request_options,
)
from ombus_streams.runtime.provider import ModelRequest, TurnEvent, TurnFailed

if TYPE_CHECKING:
    from anthropic import AnthropicError, AsyncAnthropic

OFFICIAL: Final = "https://api.anthropic.com"
NO_KEY: Final = "no-key"
"""What an address that asks for no credential is sent: the SDK would search for one else."""
TIMEOUT_SECONDS: Final = 120.0
MAX_TOKENS: Final = 8_192
"""Of one turn, thinking included; the API insists on a number."""

_FIXED: Final = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "stream", "thinking", "max_tokens"}
)
_BUDGETS: Final[Mapping[Thinking, int]] = {
    "minimal": 1_024,
    "low": 2_048,
    "medium": 4_096,
    "high": 8_192,
    "xhigh": 16_384,
}
_EFFORT: Final[Mapping[Thinking, str]] = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
}
_BUDGETED: Final = re.compile(r"claude-(3|(opus|sonnet|haiku)-4(-[0-5])?(-\d{8})?$)")
"""Models that are given a number of thinking tokens; later ones are told an effort."""


class Anthropic:
    """A provider over one model. Stateless between turns.

    Thinking is asked for in the first turn of a run alone: later turns would have to send back
    signed thinking, which the loop's transcript does not hold.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        name: str = "anthropic",
        streams: bool = True,
        tool_choice: ToolChoice = "auto",
        forced_turns: int = 1,
        max_tokens: int = MAX_TOKENS,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """``tool_choice`` holds for the first ``forced_turns`` turns of a run, ``auto`` after."""
        self.name, self.model = name, model
        self._key, self._base_url = api_key or NO_KEY, base_url or OFFICIAL
        self._streams, self._max_tokens = streams, max_tokens
        self._tool_choice, self._forced_turns = tool_choice, forced_turns
        self._timeout = timeout_seconds
        self._clients: Clients[AsyncAnthropic] = Clients(self._open)

    async def turn(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        """Yield the calls of one turn, each as soon as it is whole; the usage; or a failure."""
        from anthropic import AnthropicError

        try:
            events = self._streamed(request) if self._streams else self._answered(request)
            async with aclosing(events):
                async for event in events:
                    yield event
        except AnthropicError as error:
            yield _failed(error, self._key)
        except Exception as error:  # the SDK lets broken JSON and torn connections pass through
            if not is_torn(error):
                raise
            yield failure(f"the answer cannot be read: {error}", kind="ECONNRESET")

    def _open(self) -> "AsyncAnthropic":
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

        # Every argument is said: what is left out, the SDK looks up in the environment.
        return AsyncAnthropic(
            api_key=self._key,
            base_url=self._base_url,
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(timeout=self._timeout),
        )

    async def _streamed(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        answer = MessageAnswer()
        stream = await self._clients.get().messages.create(**self._body(request), stream=True)
        async with stream:
            async for event in stream:
                for found in answer.take_event(event):
                    yield found
        for found in answer.end():
            yield found

    async def _answered(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        answer = MessageAnswer()
        message = await self._clients.get().messages.create(**self._body(request), stream=False)
        for event in (*answer.take_whole(message), *answer.end()):
            yield event

    def _body(self, request: ModelRequest) -> "dict[str, Any]":
        options = request_options(request.options, _FIXED)
        system, messages = messages_of(request.messages)
        n_before = sum(message["role"] == "assistant" for message in messages)
        most = options.max_tokens or self._max_tokens
        extra: JsonObject = dict(options.body)
        choice = self._tool_choice if n_before < self._forced_turns else "auto"
        if options.thinking not in (None, "off") and not n_before:
            choice = "auto"  # a model that thinks is not forced
            if _BUDGETED.match(self.model):
                budget = _BUDGETS[options.thinking]
                extra["thinking"] = {"type": "enabled", "budget_tokens": budget}
                most = max(most, budget + 1_024)
            else:
                extra["thinking"] = {"type": "adaptive"}
                extra["output_config"] = {"effort": _EFFORT[options.thinking]}
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": most,
            "system": system,
            "messages": messages,
            "tools": [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": tool.parameters,
                }
                for tool in request.tools
            ],
            "tool_choice": _CHOICES[choice]
            if choice != "named"
            else {"type": "tool", "name": request.tools[0].name},
            "extra_headers": correlation_headers(options.correlation_id),
            "extra_body": extra,
        }
        if options.correlation_id and "metadata" not in extra:
            body["metadata"] = {"user_id": options.correlation_id}
        return body


_CHOICES: Final[Mapping[str, JsonValue]] = {"auto": {"type": "auto"}, "required": {"type": "any"}}


def _failed(error: "AnthropicError", key: str) -> TurnFailed:
    from anthropic import APIConnectionError, APIError, APIStatusError, APITimeoutError

    match error:
        case APITimeoutError():
            return failure("the provider did not answer in time", kind="timeout")
        case APIConnectionError():
            cause = error.__cause__
            said = f"the connection failed: {cause or error}"
            return failure(said, kind="ECONNRESET", secret=key)
        case APIStatusError():
            message, kind = _named(error.body)
            return failure(
                message or error.message,
                status=error.status_code if error.status_code >= 400 else None,
                kind=kind,
                headers=error.response.headers,
                secret=key,
            )
        case APIError():
            message, kind = _named(error.body)
            return failure(message or error.message, kind=kind, secret=key)
        case _:
            return failure(str(error), secret=key)


def _named(body: object) -> tuple[str, str | None]:
    """Return what an error body says and calls itself."""
    inner = body.get("error") if isinstance(body, dict) else None
    said = inner if isinstance(inner, dict) else {}
    message, kind = said.get("message"), said.get("type")
    return (
        message if isinstance(message, str) else "",
        kind if isinstance(kind, str) else None,
    )
