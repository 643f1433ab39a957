"""Our messages as pi's (formats.md section 1): three roles, and what extensions put beside them."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec
from ombus_schemas.entries import Entry, Message
from ombus_schemas.jsontext import JsonObject, JsonValue, json_text

_NO_USAGE: Final[JsonObject] = {
    "input": 0,
    "output": 0,
    "cacheRead": 0,
    "cacheWrite": 0,
    "totalTokens": 0,
    "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0},
}


def pi_rows(entry: Entry, message: Message, at_ms: int) -> Iterator[JsonObject]:
    """Yield the rows of a message without ids: several when it holds several results."""
    blocks = message.content
    results = [block for block in blocks if block.get("type") == "tool_result"]
    rest = [block for block in blocks if block.get("type") != "tool_result"]
    if rest or not results:
        yield _spoken(entry, message, rest, at_ms)
    for block in results:
        is_error = "error" in block
        yield _row(
            {
                "role": "toolResult",
                "toolCallId": str(block.get("toolCallId", "")),
                "toolName": str(block.get("name", "unknown")),
                "content": list(_texts(block.get("error" if is_error else "result"))),
                "isError": is_error,
                "timestamp": at_ms,
            }
        )


def instant_ms(timestamp: str) -> int | None:
    """Return an ISO instant in milliseconds, ``None`` for what is none or has no zone."""
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return int(moment.timestamp() * 1_000) if moment.tzinfo is not None else None


def _spoken(entry: Entry, message: Message, blocks: Sequence[JsonObject], at_ms: int) -> JsonObject:
    if message.role == "assistant" and entry.origin not in ("injected", "summary"):
        return _row(_assistant(message, blocks, at_ms))
    content: list[JsonValue] = [_said(block) for block in blocks]
    if message.role == "user" and entry.origin in (None, "human"):
        return _row({"role": "user", "content": content, "timestamp": at_ms})
    # Said by nobody in pi's roles: pi shows it to the model, and nobody takes it for the user's.
    kind = f"ombus.{entry.origin or message.role}"
    return {
        "type": "custom_message",
        "customType": kind,
        "content": content,
        "display": False,
    }


def _assistant(message: Message, blocks: Sequence[JsonObject], at_ms: int) -> JsonObject:
    facts = message.metadata or {}
    content: list[JsonValue] = []
    n_calls = 0
    for block in blocks:
        match block.get("type"):
            case "thinking":
                thought: JsonObject = {"type": "thinking", "thinking": str(block.get("text", ""))}
                if "signature" in block:
                    thought["thinkingSignature"] = block["signature"]
                if block.get("redacted"):
                    thought["redacted"] = True
                content.append(thought)
            case "tool_call":
                n_calls += 1
                content.append(
                    {
                        "type": "toolCall",
                        "id": str(block.get("id", "")),
                        "name": str(block.get("name", "unknown")),
                        "arguments": block.get("arguments") or {},
                    }
                )
            case _:
                content.append(_said(block))
    body: JsonObject = {
        "role": "assistant",
        "content": content,
        "api": facts.get("api", "unknown"),
        "provider": facts.get("provider", "unknown"),
        "model": facts.get("model", "unknown"),
        "usage": _usage(facts.get("usage")),
        "stopReason": _stop_reason(facts.get("stopReason"), n_calls),
        "timestamp": at_ms,
    }
    for name in ("errorMessage", "responseId"):
        if name in facts:
            body[name] = facts[name]
    return body


def _usage(said: JsonValue) -> JsonObject:
    if not isinstance(said, dict):
        return _NO_USAGE
    return {**_NO_USAGE, **{name: said[name] for name in _NO_USAGE if name in said}}


def _stop_reason(said: JsonValue, n_calls: int) -> str:
    if isinstance(said, str) and said in ("stop", "length", "toolUse", "error", "aborted"):
        return said
    return "toolUse" if n_calls else "stop"


def _row(message: JsonObject) -> JsonObject:
    return {"type": "message", "message": message}


def _said(block: JsonObject) -> JsonObject:
    """Return a block pi knows; media are references here, their bytes are in no log."""
    text = block.get("text")
    if block.get("type") == "text" and isinstance(text, str):
        return {"type": "text", "text": text}
    return {"type": "text", "text": json_text(block)}


def _texts(result: JsonValue) -> Iterator[JsonObject]:
    if isinstance(result, str):
        yield {"type": "text", "text": result}
    elif isinstance(result, list) and all(isinstance(item, dict) for item in result):
        for item in result:
            if isinstance(item, dict):
                yield _said(item)
    elif result is not None:
        yield {"type": "text", "text": msgspec.json.encode(result).decode()}
