"""Messages as an API takes them (Anthropic, OpenAI, Gemini), web exports, and unknown shapes.

Whatever has somebody who speaks and something said is a message; the names of the two fields are
looked for (formats.md section 6).
"""

from collections.abc import Iterator
from typing import ClassVar, Final, Literal

import msgspec
from ombus_schemas.jsontext import JsonObject, JsonValue

from ombus.importers.blocks import (
    assistant_draft,
    call_block,
    message,
    result_draft,
    said,
    user_drafts,
)
from ombus.importers.canonical import Draft, Fate, Mark, Rows, Voice
from ombus.importers.documents import small
from ombus.importers.fields import flag, object_of, objects, text_of
from ombus.importers.origin import SYSTEM

_SPEAKERS: Final = ("role", "sender", "from", "speaker", "author")
_SAID: Final = ("content", "text", "parts", "message", "value", "body")
_ROLES: Final = {
    "human": "user",
    "user": "user",
    "prompter": "user",
    "customer": "user",
    "assistant": "assistant",
    "model": "assistant",
    "gpt": "assistant",
    "ai": "assistant",
    "bot": "assistant",
    "chatgpt": "assistant",
    "agent": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "toolresult": "tool",
    "system": "system",
    "developer": "system",
}


class Messages:
    """The format; see the module. ``facts`` are the values beside the list of messages."""

    name: ClassVar[str] = "messages"
    threads_are: ClassVar[Literal["sub_agents", "sessions"]] = "sub_agents"

    def __init__(self, facts: JsonObject) -> None:
        self._facts = facts

    def mark(self, row: JsonObject, number: int) -> Mark:
        body = _body(row)
        role = _role(body)
        if role is None:
            return Mark(fate=Fate.BAD, reason="nobody speaks: no known role")
        if not any(key in body for key in (*_SAID, "tool_calls", "function_call")):
            return Mark(fate=Fate.BAD, reason="nothing said: no text or content")
        drafts = list(_drafts(body, number, None))
        voice = Voice.TURN
        if all(draft.origin in ("injected", "summary") for draft in drafts):
            voice = Voice.PASSIVE
        elif all(draft.origin in ("human", "injected", "summary") for draft in drafts):
            voice = Voice.HUMAN
        calls = tuple(
            (text_of(block, "id"), text_of(block, "name"))
            for draft in drafts
            for block in draft.content
            if block.get("type") == "tool_call"
        )
        native_id = text_of(row, "uuid", "id") or None
        return Mark(id=native_id, voice=voice, calls=calls)

    def drafts(self, rows: list[JsonObject], number: int, session: Rows) -> list[Draft]:
        row = rows[0]
        body = _body(row)
        time = next(
            (
                row[key]
                for key in ("timestamp", "created_at", "create_time", "time", "date", "ts")
                if row.get(key) is not None
            ),
            body.get("timestamp"),
        )
        kind = text_of(row, "type") or _role(body) or ""
        return [
            msgspec.structs.replace(draft, timestamp=time, native_type=kind)
            for draft in _drafts(body, number, session)
        ]

    def session_id(self, thread: str) -> str | None:
        names = ("session_id", "sessionId", "conversation_id", "uuid", "id")
        return text_of(self._facts, *names) or None

    def facts(self, thread: str) -> JsonObject:
        return small(self._facts, "model", "title", "name", "system")

    def version(self) -> JsonValue:
        return None


def _body(row: JsonObject) -> JsonObject:
    """Return the message in a row: the row itself, or what it wraps."""
    inner = row.get("message")
    return inner if isinstance(inner, dict) and _role(inner) is not None else row


def _role(body: JsonObject) -> str | None:
    for key in _SPEAKERS:
        value = body.get(key)
        if isinstance(value, dict):
            value = value.get("role")
        if isinstance(value, str) and value.lower() in _ROLES:
            return _ROLES[value.lower()]
    return None


def _content(body: JsonObject) -> JsonValue:
    for key in _SAID:
        value = body.get(key)
        if value is not None and value != []:
            return value.get("parts", value) if isinstance(value, dict) else value
    return None


def _drafts(body: JsonObject, number: int, session: Rows | None) -> Iterator[Draft]:
    content = _content(body)
    match _role(body):
        case "assistant":
            yield from _assistant(body, content, number)
        case "tool":
            call_id = text_of(body, "tool_call_id", "toolCallId", "call_id", "name")
            yield _result(call_id, text_of(body, "name", "toolName"), content, session, body)
        case "user":
            yield from _user(content, session)
        case _:
            yield message("system", list(said(content)), SYSTEM)


def _assistant(body: JsonObject, content: JsonValue, number: int) -> Iterator[Draft]:
    calls = [
        call_block(
            text_of(call, "id") or f"call-{number}-{at}",
            text_of(object_of(call, "function") or call, "name") or "unknown",
            (object_of(call, "function") or call).get("arguments"),
        )
        for at, call in enumerate(objects(body.get("tool_calls")))
    ]
    old = object_of(body, "function_call")
    if old:
        name = text_of(old, "name") or "unknown"
        calls.append(call_block(name, name, old.get("arguments")))
    parts: list[JsonValue] = []
    for part in content if isinstance(content, list) else [content]:
        called = object_of(part, "functionCall") if isinstance(part, dict) else {}
        if called:
            name = text_of(called, "name") or "unknown"
            calls.append(call_block(text_of(called, "id") or name, name, called.get("args")))
        else:
            parts.append(part)
    yield assistant_draft(parts if isinstance(content, list) else content, calls)


def _user(content: JsonValue, session: Rows | None) -> Iterator[Draft]:
    """Results travel in the user's messages: each is an entry of its own, in order."""
    rest: list[JsonValue] = []
    n_drafts = 0
    for part in content if isinstance(content, list) else [content]:
        block = part if isinstance(part, dict) else {}
        answered = object_of(block, "functionResponse")
        if block.get("type") != "tool_result" and not answered:
            rest.append(part)
            continue
        if rest:
            yield from user_drafts(rest)
        rest = []
        n_drafts += 1
        if answered:
            name = text_of(answered, "name") or "unknown"
            call_id = text_of(answered, "id") or name
            yield _result(call_id, name, answered.get("response"), session, answered)
        else:
            yield _result(text_of(block, "tool_use_id"), "", block.get("content"), session, block)
    if rest or not n_drafts:
        yield from user_drafts(rest if isinstance(content, list) else content)


def _result(
    call_id: str, name: str, content: JsonValue, session: Rows | None, holder: JsonObject
) -> Draft:
    known = session.tool_name(call_id) if session is not None else None
    failed = flag(holder, "is_error") or flag(holder, "isError")
    return result_draft(call_id, known or name or "unknown", content, is_error=failed)
