"""The bounded tool-only loop: turns of a model until it stops calling tools (S15).

Every bound is checked before the thing it bounds is kept: a call when it arrives, a result before
it enters the transcript. A breach fails the run, and a failed run has no result.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.settings import WorkerLimits

from ombus_streams.memory.redact import redact, redact_text
from ombus_streams.memory.retry import Failure, is_transient
from ombus_streams.runtime.errors import FailureKind, LimitExceeded, Refused, WorkerFailed
from ombus_streams.runtime.limits import error_text, measure
from ombus_streams.runtime.provider import (
    Material,
    ModelProvider,
    ModelRequest,
    Text,
    Tool,
    ToolCall,
    TurnFailed,
    Usage,
    WorkerName,
)

Handler = Callable[[JsonValue], JsonValue]
"""Runs a tool on raw arguments and returns its value; it never raises for what a model sent."""

_LABEL: Final = "Observational memory"


class LoopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One run: what is sent first, and what the model may call."""

    worker: WorkerName
    system: str
    prompt: str
    tools: tuple[Tool, ...]
    options: JsonObject
    material: Material
    limits: WorkerLimits
    secrets: tuple[str, ...] = ()


class LoopResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run that succeeded went; what it collected is with the handlers."""

    n_turns: int
    n_calls: int
    usage: Usage | None
    """Summed over turns; ``None`` when the provider reports none."""


async def run_loop(
    provider: ModelProvider, request: LoopRequest, handlers: Mapping[str, Handler]
) -> LoopResult:
    """Ask for turns until one makes no call, or ``max_turns`` are used up.

    The calls of a turn are run after its stream has ended, one by one, in order; those of the last
    allowed turn are run too. Cancellation passes through.

    Raises:
        WorkerFailed: the provider failed, or the model broke a bound.
        Refused: the provider will not take this input, or the prompt is larger than its cap.
    """
    try:
        return await _turns(provider, request, handlers)
    except WorkerFailed as failed:
        message = _shown(failed, request)
        raise WorkerFailed(message, failed.failure, failed.retry_after_ms) from failed.__cause__
    except Refused as refused:
        raise Refused(_shown(refused, request), refused.reason) from refused.__cause__
    except LimitExceeded as exceeded:
        raise WorkerFailed(_shown(exceeded, request), "protocol") from exceeded
    except Exception as error:  # whatever a provider raises is its failure, by policy (S15)
        raise WorkerFailed(_shown(error, request), _raised_kind(error)) from error


class _Transcript:
    """Messages with their running size as one JSON array: brackets, commas, messages."""

    def __init__(self, max_bytes: int) -> None:
        self.messages: list[JsonObject] = []
        self._max_bytes = max_bytes
        self._size = 2

    @property
    def room(self) -> int:
        """How large the next message may be."""
        return self._max_bytes - self._size - (1 if self.messages else 0)

    def add(self, message: JsonObject) -> None:
        if self.room < 0:
            raise self._overflow()
        try:
            size = measure(message, self.room, _LABEL)
        except LimitExceeded as error:
            raise (self._overflow() if error.limit == self.room else error) from error
        self._size = self._max_bytes - self.room + size
        self.messages.append(message)

    def check(self, size: int) -> None:
        """Raise unless a message of ``size`` bytes would fit."""
        if size > self.room:
            raise self._overflow()

    def _overflow(self) -> LimitExceeded:
        return LimitExceeded(
            f"{_LABEL} transcript", f"exceeds {self._max_bytes} bytes", self._max_bytes
        )


class _Turn:
    """The calls of one turn: taken while the stream runs, executed after it ended."""

    def __init__(
        self, request: LoopRequest, transcript: _Transcript, names: Collection[str], n_before: int
    ) -> None:
        self.calls: list[ToolCall] = []
        self._shown: list[JsonValue] = []
        self._request, self._transcript = request, transcript
        self._names, self._n_before = names, n_before
        self._size = measure({"role": "assistant", "content": []}, 64, _LABEL)

    def take(self, call: ToolCall) -> None:
        """Keep ``call``; raises at the first bound it breaks, in the order of S15."""
        limits = self._request.limits
        if len(self.calls) >= limits.max_tool_calls_per_turn:
            raise LimitExceeded(
                f"{_LABEL} turn", f"makes more than {limits.max_tool_calls_per_turn} tool calls"
            )
        if self._n_before + len(self.calls) >= limits.max_tool_calls:
            raise LimitExceeded(
                f"{_LABEL} run", f"makes more than {limits.max_tool_calls} tool calls"
            )
        if call.name not in self._names:
            raise LimitExceeded("Unknown observational memory tool:", call.name)
        raw = _call_json(call)
        self._measure_call(raw)
        shown = redact(raw, self._request.secrets)
        size = self._measure_call(shown)
        self._size += size + (1 if self.calls else 0)
        self._transcript.check(self._size)
        self.calls.append(call)
        self._shown.append(shown)

    def run(self, handlers: Mapping[str, Handler]) -> None:
        """Run the calls in order and put them, with their results, into the transcript."""
        limit = self._request.limits.max_result_bytes
        label = f"{_LABEL} tool result"
        self._transcript.add({"role": "assistant", "content": self._shown})
        for call in self.calls:
            arguments = None if isinstance(call.arguments, UnsetType) else call.arguments
            value = handlers[call.name](arguments)
            block: JsonObject = {
                "type": "tool_result",
                "toolCallId": call.id,
                "name": call.name,
                "result": value,
            }
            measure(value, limit, label)
            measure({"result": value}, limit, label)
            shown = redact(block, self._request.secrets)
            measure(redact({"result": value}, self._request.secrets), limit, label)
            self._transcript.add({"role": "tool", "content": [shown]})

    def _measure_call(self, call: JsonValue) -> int:
        limits = self._request.limits
        size = measure(call, limits.max_message_bytes, f"{_LABEL} tool call")
        arguments = call.get("arguments", UNSET) if isinstance(call, dict) else UNSET
        measure(arguments, limits.max_argument_bytes, f"{_LABEL} tool arguments")
        return size


async def _turns(
    provider: ModelProvider, request: LoopRequest, handlers: Mapping[str, Handler]
) -> LoopResult:
    limits = request.limits
    transcript = _opened(request)
    n_turns = n_calls = 0
    usage: Usage | None = None
    while n_turns < limits.max_turns:
        n_turns += 1
        turn = _Turn(request, transcript, handlers.keys(), n_calls)
        asked = ModelRequest(
            worker=request.worker,
            messages=tuple(transcript.messages),
            tools=request.tools,
            options=request.options,
            max_calls=min(limits.max_tool_calls_per_turn, limits.max_tool_calls - n_calls),
            max_run_calls=min(
                limits.max_tool_calls, limits.max_turns * limits.max_tool_calls_per_turn
            ),
            n_calls=n_calls,
            material=request.material,
        )
        async with aclosing(provider.turn(asked)) as events:
            async for event in events:
                match event:
                    case ToolCall():
                        turn.take(event)
                    case Usage():
                        usage = _sum(usage, event)
                    case TurnFailed():
                        raise _failed(event)
                    case Text():
                        pass
        if not turn.calls:
            break
        n_calls += len(turn.calls)
        turn.run(handlers)
    return LoopResult(n_turns=n_turns, n_calls=n_calls, usage=usage)


def _opened(request: LoopRequest) -> _Transcript:
    transcript = _Transcript(request.limits.max_message_bytes)
    try:
        for role, text in (("system", request.system), ("user", request.prompt)):
            shown: JsonValue = redact_text(text, request.secrets)
            transcript.add({"role": role, "content": [{"type": "text", "text": shown}]})
    except LimitExceeded as error:
        raise Refused(str(error), "too_large") from error
    return transcript


def _call_json(call: ToolCall) -> JsonObject:
    value: JsonObject = {"type": "tool_call", "id": call.id, "name": call.name}
    if not isinstance(call.arguments, UnsetType):
        value["arguments"] = call.arguments
    return value


def _sum(before: Usage | None, more: Usage) -> Usage:
    before = before or Usage()
    return Usage(
        input_tokens=before.input_tokens + more.input_tokens,
        output_tokens=before.output_tokens + more.output_tokens,
        cached_tokens=before.cached_tokens + more.cached_tokens,
    )


def _failed(event: TurnFailed) -> WorkerFailed | Refused:
    if event.is_refusal:
        return Refused(event.message, "provider_refused")
    return WorkerFailed(event.message, _kind_of(event.message, event.code), event.retry_after_ms)


def _raised_kind(error: Exception) -> FailureKind:
    if isinstance(error, TimeoutError | ConnectionError):
        return "transient"
    code = getattr(error, "code", None)
    return _kind_of(str(error), code if isinstance(code, str | int) else None)


def _kind_of(message: str, code: str | int | None) -> FailureKind:
    return "transient" if is_transient(Failure(message=message, code=code)) else "provider"


def _shown(error: Exception, request: LoopRequest) -> str:
    return error_text(str(error), request.secrets, request.limits.max_error_bytes)
