"""What the Chat Completions API is sent and answers: transcripts out, pieces of calls in."""

from typing import TYPE_CHECKING, cast

from ombus_schemas.jsontext import JsonObject, JsonValue, json_text

from ombus_streams.providers.toolcalls import CallBuilder
from ombus_streams.runtime.provider import Text, ToolCall, TurnEvent, TurnFailed, Usage

if TYPE_CHECKING:
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletion, ChatCompletionChunk


def messages_of(transcript: tuple[JsonObject, ...]) -> list[JsonObject]:
    """Return the transcript of the loop as chat messages."""
    messages: list[JsonObject] = []
    for message in transcript:
        blocks = cast("list[JsonObject]", message["content"])
        match message["role"]:
            case "assistant":
                calls: list[JsonValue] = [
                    {
                        "id": block["id"],
                        "type": "function",
                        "function": {
                            "name": block["name"],
                            "arguments": json_text(block.get("arguments")),
                        },
                    }
                    for block in blocks
                ]
                messages.append({"role": "assistant", "content": "", "tool_calls": calls})
            case "tool":
                messages += [
                    {
                        "role": "tool",
                        "tool_call_id": block["toolCallId"],
                        "content": json_text(block.get("result")),
                    }
                    for block in blocks
                ]
            case role:
                text = "".join(str(block["text"]) for block in blocks)
                messages.append({"role": role, "content": text})
    return messages


class ChatAnswer:
    """What one turn has said so far. Servers may send a choice's pieces in any order."""

    def __init__(self) -> None:
        self._calls: dict[int, CallBuilder] = {}
        self._ids: list[str] = []
        self._refusal = ""
        self._finish: str | None = None
        self._has_choice = False
        self._usage: Usage | None = None

    def take_chunk(self, chunk: "ChatCompletionChunk") -> list[TurnEvent]:
        events: list[TurnEvent] = []
        self._take_usage(chunk.usage)
        for choice in chunk.choices or ():
            if choice.index:
                continue
            self._has_choice = True
            self._finish = choice.finish_reason or self._finish
            delta = choice.delta
            if delta is None:
                continue
            self._refusal += delta.refusal or ""
            if delta.content:
                events.append(Text(delta.content))
            for piece in delta.tool_calls or ():
                events += self._take_piece(
                    piece.index,
                    piece.id or "",
                    (piece.function.name if piece.function else "") or "",
                    (piece.function.arguments if piece.function else "") or "",
                )
        return events

    def take_whole(self, completion: "ChatCompletion") -> list[TurnEvent]:
        self._take_usage(completion.usage)
        events: list[TurnEvent] = []
        for choice in (completion.choices or ())[:1]:
            self._has_choice = True
            self._finish = choice.finish_reason or "stop"
            message = choice.message
            if message is None:
                continue
            self._refusal = message.refusal or ""
            if message.content:
                events.append(Text(message.content))
            for number, call in enumerate(message.tool_calls or ()):
                if call.type == "function":
                    events += self._take_piece(
                        number,
                        call.id or "",
                        call.function.name or "",
                        call.function.arguments or "",
                    )
        return events

    def end(self) -> list[TurnEvent]:
        """Return what is left to say once nothing more comes."""
        events: list[TurnEvent] = [] if self._usage is None else [self._usage]
        reason = self._finish
        if reason == "content_filter" or self._refusal:
            said = self._refusal or "the answer was stopped by a content filter"
            events.append(TurnFailed(message=said, code="content_filter", is_refusal=True))
        elif not self._has_choice:
            events.append(
                TurnFailed(
                    message="the provider answered without a choice",
                    code="temporarily_unavailable",
                )
            )
        elif reason is None:
            events.append(
                TurnFailed(message="the answer ended without a finish reason", code="ECONNRESET")
            )
        elif reason == "length":
            events.append(
                TurnFailed(message="the answer was cut at its output limit", code="max_tokens")
            )
        else:
            events += self._rest()
        return events

    def _take_piece(self, index: int, call_id: str, name: str, arguments: str) -> list[TurnEvent]:
        events: list[TurnEvent] = []
        builder = self._calls.get(index)
        # Some servers give every call of a turn index 0, each under an id of its own.
        is_next = builder is not None and call_id and builder.call_id not in ("", call_id)
        if builder is None or is_next:
            events += self._rest()
            builder = self._calls[index] = CallBuilder()
        builder.call_id = builder.call_id or call_id
        builder.name = builder.name or name
        if not builder.add(arguments):
            events.append(TurnFailed(message="a call's arguments grow without end"))
        return events

    def _rest(self) -> list[TurnEvent]:
        """Return the calls that are whole because something else has begun."""
        events: list[TurnEvent] = []
        for builder in self._calls.values():
            call = builder.finish(self._ids, len(self._ids))
            if isinstance(call, ToolCall):
                self._ids.append(call.id)
            events.append(call)
        self._calls.clear()
        return events

    def _take_usage(self, usage: "CompletionUsage | None") -> None:
        if usage is None:
            return
        details = usage.prompt_tokens_details
        self._usage = Usage(
            input_tokens=usage.prompt_tokens or 0,
            output_tokens=usage.completion_tokens or 0,
            cached_tokens=(details.cached_tokens if details else 0) or 0,
        )
