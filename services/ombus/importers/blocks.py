"""Message blocks of all providers become ours: text, thinking, tool_call, tool_result, media.

A text is never changed, joined or trimmed: recall gives it back byte for byte.
"""

from collections.abc import Iterator, Sequence

from ombus_schemas.jsontext import JsonObject, JsonValue

from ombus.importers.canonical import Draft
from ombus.importers.lines import BadRow, decode
from ombus.importers.media import media_block, without_media
from ombus.importers.origin import HUMAN, MODEL, TOOL, Spoken, parted

_TEXTS = ("text", "input_text", "output_text", "refusal", "summary_text", "reasoning_text")


def text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def thinking_block(text: str, signature: JsonValue = None) -> JsonObject:
    block: JsonObject = {"type": "thinking", "text": text}
    if isinstance(signature, str) and signature:
        block["signature"] = signature
    return block


def call_block(call_id: str, name: str, arguments: JsonValue) -> JsonObject:
    """Return a call; arguments that are no object, not even as JSON text, go under ``input``."""
    return {
        "type": "tool_call",
        "id": call_id,
        "name": name,
        "arguments": without_media(_arguments(arguments)),
    }


def result_block(call_id: str, name: str, content: JsonValue, *, is_error: bool) -> JsonObject:
    """Return a result; content that is one text is that text."""
    return {
        "type": "tool_result",
        "toolCallId": call_id,
        "name": name,
        "error" if is_error else "result": _result(content),
    }


def said(content: JsonValue) -> Iterator[JsonObject]:
    """Yield the blocks of a message's content, whatever its shape.

    Blocks of a provider's own kind are kept as they are; values that are no block are skipped.
    """
    if isinstance(content, str):
        if content:
            yield text_block(content)
        return
    for item in content if isinstance(content, list) else [content]:
        block = _block(item)
        if block is not None:
            yield block


def user_drafts(content: JsonValue, spoken: Spoken | None = None) -> list[Draft]:
    """Return one draft for each speaker in the content of a user's message, in order.

    ``spoken`` settles the speaker of all of it; else each text is judged by itself.
    """
    runs: list[tuple[Spoken, list[JsonObject]]] = []
    for block in said(content):
        text = block.get("text") if block.get("type") == "text" else None
        if spoken is not None:
            pieces = [(block, spoken)]
        elif isinstance(text, str):
            pieces = [(text_block(part), who) for part, who in parted(text)]
        else:
            pieces = [(block, runs[-1][0] if runs else HUMAN)]
        for piece, who in pieces:
            if runs and runs[-1][0].origin == who.origin:
                runs[-1][1].append(piece)
            else:
                runs.append((who, [piece]))
    return [message("user", run, who) for who, run in runs or [(spoken or HUMAN, [])]]


def message(role: str, content: Sequence[JsonObject], spoken: Spoken) -> Draft:
    return Draft(role=role, content=tuple(content), origin=spoken.origin, rule=spoken.rule)


def assistant_draft(content: JsonValue, calls: Sequence[JsonObject] = ()) -> Draft:
    return message("assistant", [*said(content), *calls], MODEL)


def result_draft(call_id: str, name: str, content: JsonValue, *, is_error: bool) -> Draft:
    return message("tool", [result_block(call_id, name, content, is_error=is_error)], TOOL)


def _block(item: JsonValue) -> JsonObject | None:
    if isinstance(item, str):
        return text_block(item)
    if not isinstance(item, dict):
        return None
    kind, text = item.get("type"), item.get("text")
    if kind in _TEXTS or (kind is None and isinstance(text, str)):
        text = text if isinstance(text, str) else item.get("refusal")
        return text_block(text) if isinstance(text, str) else None
    if kind == "thinking":
        thought = item.get("thinking", text)
        signature = item.get("signature", item.get("thinkingSignature"))
        return thinking_block(thought if isinstance(thought, str) else "", signature)
    if kind == "redacted_thinking":
        return {"type": "thinking", "text": "", "redacted": True}
    if kind in ("tool_use", "toolCall", "tool_call", "server_tool_use"):
        name = item.get("name")
        return call_block(
            str(item.get("id", "")),
            name if isinstance(name, str) else "unknown",
            item.get("input", item.get("arguments")),
        )
    media = media_block(item)
    if media is not None:
        return media
    kept = without_media(item)
    return kept if isinstance(kept, dict) else None


def _arguments(value: JsonValue) -> JsonObject:
    if isinstance(value, dict):
        return value
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        try:
            decoded = decode(value.encode())
        except BadRow:
            decoded = None
        if isinstance(decoded, dict):
            return decoded
    return {"input": value}


def _result(content: JsonValue) -> JsonValue:
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if not isinstance(content, list):
        return without_media(content)
    blocks = list(said(content))
    if not blocks:
        return ""
    if len(blocks) == 1 and blocks[0].get("type") == "text":
        return blocks[0]["text"]
    return [*blocks]
