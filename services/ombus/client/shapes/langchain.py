"""LangChain and LangGraph messages: objects, or what ``messages_to_dict`` makes of them."""

from collections.abc import Iterable

from ombus_schemas.jsontext import JsonObject

from ombus.client.shapes.blocks import call, entry, field, result, said, text_of

_ROLE_BY_TYPE = {
    "human": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "system": "system",
    "tool": "tool",
}


def from_langchain(messages: Iterable[object]) -> list[JsonObject]:
    """Return one entry a message; their ids are kept, so the same list may be given again."""
    return [_entry(message) for message in messages]


def _entry(message: object) -> JsonObject:
    kind = text_of(message, "type")
    held = field(message, "data") if isinstance(message, dict) and "data" in message else message
    entry_id = text_of(held, "id")
    if kind == "tool":
        block = result(
            text_of(held, "tool_call_id"),
            text_of(held, "name"),
            field(held, "content"),
            is_error=field(held, "status") == "error",
        )
        return entry("tool", [block], entry_id)
    blocks = list(said(field(held, "content")))
    calls = field(held, "tool_calls")
    for each in calls if isinstance(calls, list) else ():
        blocks.append(call(text_of(each, "id"), text_of(each, "name"), field(each, "args")))
    return entry(_ROLE_BY_TYPE.get(kind, kind or "user"), blocks, entry_id)
