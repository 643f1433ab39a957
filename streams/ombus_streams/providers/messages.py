"""What the Messages API is sent and answers: transcripts out, blocks of calls in."""

from typing import TYPE_CHECKING, Final, cast

from ombus_schemas.jsontext import JsonObject, JsonValue, json_text

from ombus_streams.providers.toolcalls import CallBuilder, unique_id
from ombus_streams.runtime.provider import Text, ToolCall, TurnEvent, TurnFailed, Usage

if TYPE_CHECKING:
    from anthropic.types import Message, MessageDeltaUsage, RawMessageStreamEvent
    from anthropic.types import Usage as MessageUsage

_CACHED: Final[JsonObject] = {"type": "ephemeral"}


def messages_of(transcript: tuple[JsonObject, ...]) -> tuple[list[JsonObject], list[JsonObject]]:
    """Return the system blocks and the messages; results of one turn are one message."""
    system: list[JsonObject] = []
    messages: list[JsonObject] = []
    for message in transcript:
        blocks = cast("list[JsonObject]", message["content"])
        match message["role"]:
            case "system":
                system += [
                    {"type": "text", "text": block["text"], "cache_control": _CACHED}
                    for block in blocks
                ]
            case "assistant":
                calls: list[JsonValue] = [_use(block) for block in blocks]
                messages.append({"role": "assistant", "content": calls})
            case "tool":
                results: list[JsonValue] = [
                    {
                        "type": "tool_result",
                        "tool_use_id": block["toolCallId"],
                        "content": json_text(block.get("result")),
                    }
                    for block in blocks
                ]
                last = messages[-1]["content"]
                if messages[-1]["role"] == "user" and isinstance(last, list):
                    last += results
                else:
                    messages.append({"role": "user", "content": results})
            case _:
                said: list[JsonValue] = [
                    {"type": "text", "text": block["text"], "cache_control": _CACHED}
                    for block in blocks
                    if block["text"]  # an empty text is refused
                ]
                messages.append({"role": "user", "content": said or "(nothing)"})
    return system, messages


def _use(block: JsonObject) -> JsonObject:
    arguments = block.get("arguments")
    return {
        "type": "tool_use",
        "id": block["id"],
        "name": block["name"],
        "input": arguments if isinstance(arguments, dict) else {},
    }


class MessageAnswer:
    """What one turn has said so far."""

    def __init__(self) -> None:
        self._calls: dict[int, CallBuilder] = {}
        self._ids: list[str] = []
        self._stop: str | None = None
        self._is_over = False
        self._input = self._cached = self._output = 0
        self._has_usage = False
        self._broken: TurnFailed | None = None

    def take_event(self, event: "RawMessageStreamEvent") -> list[TurnEvent]:
        match event.type:
            case "message_start":
                self._take_usage(event.message.usage)
            case "content_block_start" if event.content_block.type == "tool_use":
                block = event.content_block
                self._calls[event.index] = CallBuilder(block.id, block.name)
            case "content_block_delta" if event.delta.type == "text_delta":
                return [Text(event.delta.text)]
            case "content_block_delta" if event.delta.type == "input_json_delta":
                builder = self._calls.get(event.index)
                if builder is not None and not builder.add(event.delta.partial_json or ""):
                    return [TurnFailed(message="a call's arguments grow without end")]
            case "content_block_stop" if event.index in self._calls:
                return self._finished(event.index)
            case "message_delta":
                self._stop = event.delta.stop_reason or self._stop
                self._take_usage(event.usage)
            case "message_stop":
                self._is_over = True
            case _:
                pass
        return []

    def take_whole(self, message: "Message") -> list[TurnEvent]:
        self._take_usage(message.usage)
        self._stop, self._is_over = message.stop_reason, message.stop_reason is not None
        events: list[TurnEvent] = []
        for block in message.content or ():
            if block.type == "text":
                events.append(Text(block.text))
            elif block.type == "tool_use" and self._stop != "max_tokens":
                call_id = unique_id(block.id, self._ids, len(self._ids))
                self._ids.append(call_id)
                arguments = cast(JsonValue, block.input)
                events.append(ToolCall(id=call_id, name=block.name, arguments=arguments))
        return events

    def end(self) -> list[TurnEvent]:
        """Return what is left to say once nothing more comes."""
        events: list[TurnEvent] = []
        if self._has_usage:
            events.append(
                Usage(
                    input_tokens=self._input + self._cached,
                    output_tokens=self._output,
                    cached_tokens=self._cached,
                )
            )
        match self._stop:
            case "refusal":
                said = "the model refuses this input"
                events.append(TurnFailed(message=said, code="refusal", is_refusal=True))
            case "model_context_window_exceeded":
                said = "the input leaves no room in the model's window"
                events.append(TurnFailed(message=said, code=self._stop, is_refusal=True))
            case "max_tokens":
                said = "the answer was cut at its output limit"
                events.append(TurnFailed(message=said, code="max_tokens"))
            case None:
                said = "the answer ended without a stop reason"
                events.append(TurnFailed(message=said, code="ECONNRESET"))
            case _ if not self._is_over:
                said = "the answer broke off before its end"
                events.append(TurnFailed(message=said, code="ECONNRESET"))
            case _ if self._broken is not None:
                events.append(self._broken)
            case _:
                pass
        return events

    def _finished(self, index: int) -> list[TurnEvent]:
        call = self._calls.pop(index).finish(self._ids, len(self._ids))
        if isinstance(call, ToolCall):
            self._ids.append(call.id)
            return [call]
        # A call cut by the output limit is closed like any other; the reason comes after it.
        self._broken = self._broken or call
        return []

    def _take_usage(self, usage: "MessageUsage | MessageDeltaUsage | None") -> None:
        if usage is None:
            return
        self._has_usage = True
        fresh = usage.input_tokens
        if fresh:
            self._input = fresh + (usage.cache_creation_input_tokens or 0)
        self._cached = usage.cache_read_input_tokens or self._cached
        self._output = usage.output_tokens or self._output
