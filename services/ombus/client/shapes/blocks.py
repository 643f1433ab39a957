"""Content blocks as ours, and reading fields of objects and mappings alike.

A text is never changed, joined or trimmed: recall gives it back byte for byte.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from ombus_schemas.jsontext import JsonObject, JsonValue

ORIGIN_BY_ROLE = {"user": "human", "assistant": "model", "tool": "tool", "system": "injected"}
_TEXTS = ("text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal")


def field(holder: object, name: str) -> object:
    """Return a member of a mapping, or an attribute, or ``None``."""
    if isinstance(holder, Mapping):
        return holder.get(name)
    return getattr(holder, name, None)


def text_of(holder: object, name: str) -> str:
    """Return the member as text, empty if it is none."""
    value = field(holder, name)
    return value if isinstance(value, str) else ""


def plain(value: object) -> JsonValue:
    """Return what JSON has of a value; what it has not is shown by its text."""
    found: JsonValue = msgspec.to_builtins(value, enc_hook=_shown, str_keys=True)
    return found


def text(said: str) -> JsonObject:
    return {"type": "text", "text": said}


def thinking(said: str) -> JsonObject:
    return {"type": "thinking", "text": said}


def call(call_id: str, name: str, arguments: object) -> JsonObject:
    """Return a call; arguments may be JSON text."""
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except msgspec.DecodeError:
            arguments = {"input": arguments}
    given = plain(arguments)
    shown: JsonValue = given if isinstance(given, dict) else {"input": given}
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": shown}


def result(call_id: str, name: str, content: object, *, is_error: bool) -> JsonObject:
    """Return a result; content that is one text is that text."""
    said = plain(content)
    if isinstance(said, list) and len(said) == 1:
        (only,) = said
        if isinstance(only, dict) and only.keys() == {"type", "text"}:
            said = only["text"]
    return {
        "type": "tool_result",
        "toolCallId": call_id,
        "name": name,
        "error" if is_error else "result": said,
    }


def said(content: object) -> Iterator[JsonObject]:
    """Yield blocks of a message's content: a text, or a list of texts and blocks."""
    if isinstance(content, str):
        if content:
            yield text(content)
        return
    for item in content if isinstance(content, Sequence) else ():
        if isinstance(item, str):
            yield text(item)
        elif field(item, "type") in _TEXTS:
            yield text(text_of(item, "text") or text_of(item, "refusal"))
        elif field(item, "type") not in ("tool_use", "tool_call", "function_call"):
            block = plain(item)
            if isinstance(block, dict):
                yield block


def entry(role: str, content: Sequence[JsonObject], entry_id: str = "") -> JsonObject:
    """Return the entry of a message, with the id the framework gave it if there is one."""
    made: JsonObject = {
        "kind": "message",
        "message": {"role": role, "content": list(content)},
        "origin": ORIGIN_BY_ROLE.get(role, "injected"),
    }
    return {"id": entry_id, **made} if entry_id else made


def _shown(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)
