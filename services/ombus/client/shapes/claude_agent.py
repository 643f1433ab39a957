"""Messages of the Claude Agent SDK, as ``query`` yields them; those without content are left out.

A block is told by its fields, since the SDK's classes carry no name of their kind.
"""

from collections.abc import Iterable

from ombus_schemas.jsontext import JsonObject

from ombus.client.shapes.blocks import (
    call,
    entry,
    field,
    plain,
    result,
    said,
    text,
    text_of,
    thinking,
)


def from_claude_agent(messages: Iterable[object]) -> list[JsonObject]:
    """Return one entry a message of the user or the assistant; tool results are the tool's."""
    names: dict[str, str] = {}
    found: list[JsonObject] = []
    for message in messages:
        content = field(message, "content")
        if not isinstance(content, str | list | tuple):
            continue
        role = "assistant" if field(message, "model") is not None else "user"
        if isinstance(content, str):
            blocks = list(said(content))
        else:
            blocks = [_block(each, names) for each in content]
        is_tool = bool(blocks) and all(each["type"] == "tool_result" for each in blocks)
        if blocks:
            found.append(entry("tool" if is_tool else role, blocks, text_of(message, "uuid")))
    return found


def _block(block: object, names: dict[str, str]) -> JsonObject:
    if field(block, "tool_use_id") is not None:
        call_id, content = text_of(block, "tool_use_id"), field(block, "content")
        is_error = field(block, "is_error") is True
        shown = list(content) if isinstance(content, list | tuple) else content
        return result(call_id, names.get(call_id, ""), shown, is_error=is_error)
    if field(block, "thinking") is not None:
        return thinking(text_of(block, "thinking"))
    if field(block, "input") is not None:
        call_id, name = text_of(block, "id"), text_of(block, "name")
        names[call_id] = name
        return call(call_id, name, field(block, "input"))
    if field(block, "text") is not None:
        return text(text_of(block, "text"))
    kept = plain(block)
    return kept if isinstance(kept, dict) else {"type": "content"}
