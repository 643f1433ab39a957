"""Gemini CLI ``stream-json``: one event a line; deltas of one message become one entry."""

from typing import ClassVar, Literal

import msgspec
from ombus_schemas.jsontext import JsonObject, JsonValue

from ombus.importers.blocks import assistant_draft, call_block, message, result_draft, user_drafts
from ombus.importers.canonical import Draft, Fate, Mark, Rows, Voice
from ombus.importers.fields import flag, object_of, text_of
from ombus.importers.origin import MODEL


class Gemini:
    """The format; see the module."""

    name: ClassVar[str] = "gemini"
    threads_are: ClassVar[Literal["sub_agents", "sessions"]] = "sub_agents"

    def __init__(self) -> None:
        self._init: JsonObject | None = None
        self._message = 0
        self._speaks = ""

    def mark(self, row: JsonObject, number: int) -> Mark:
        kind = row.get("type")
        speaks, self._speaks = self._speaks, ""
        match kind:
            case "init" if self._init is None:
                self._init = row
                return Mark(fate=Fate.MERGED, reason="session header")
            case "message":
                role = text_of(row, "role")
                if not isinstance(row.get("content"), str):
                    return Mark(fate=Fate.BAD, reason="message without content")
                if not flag(row, "delta"):
                    return Mark(voice=_voice(row))
                self._message += role != speaks
                self._speaks = role
                return Mark(voice=_voice(row), group=f"{role}:{self._message}")
            case "tool_use":
                call = (text_of(row, "tool_id"), text_of(row, "tool_name") or "unknown")
                return Mark(voice=Voice.TURN, calls=(call,))
            case "tool_result":
                return Mark(voice=Voice.TURN)
            case "result":
                return Mark(fate=Fate.LEFT_OUT, reason="closing statistics")
            case str():
                return Mark() if "message" in row else _left_out(kind)
            case _:
                return Mark(fate=Fate.BAD, reason="no type")

    def drafts(self, rows: list[JsonObject], number: int, session: Rows) -> list[Draft]:
        row = rows[0]
        match row.get("type"):
            case "message":
                drafts = _message(rows)
            case "tool_use":
                name = text_of(row, "tool_name") or "unknown"
                call = call_block(text_of(row, "tool_id"), name, row.get("parameters"))
                drafts = [message("assistant", [call], MODEL)]
            case "tool_result":
                drafts = [_result(row, session)]
            case kind:
                data: JsonObject = {"type": f"gemini.{kind}", "message": row.get("message")}
                drafts = [Draft(kind="metadata", data=data)]
        time = row.get("timestamp", row.get("ts"))
        kind = text_of(row, "type")
        return [
            msgspec.structs.replace(draft, timestamp=time, native_type=kind) for draft in drafts
        ]

    def session_id(self, thread: str) -> str | None:
        return text_of(self._init or {}, "session_id") or None

    def facts(self, thread: str) -> JsonObject:
        model = text_of(self._init or {}, "model")
        return {"model": model} if model else {}

    def version(self) -> JsonValue:
        return None


def _left_out(kind: str) -> Mark:
    return Mark(fate=Fate.LEFT_OUT, reason=f"row of type {kind[:40]}")


def _voice(row: JsonObject) -> Voice:
    if row.get("role") != "user":
        return Voice.TURN
    drafts = user_drafts(row.get("content"))
    return Voice.HUMAN if any(draft.origin == "human" for draft in drafts) else Voice.PASSIVE


def _message(rows: list[JsonObject]) -> list[Draft]:
    text = "".join(text_of(row, "content") for row in rows)
    return user_drafts(text) if rows[0].get("role") == "user" else [assistant_draft(text)]


def _result(row: JsonObject, session: Rows) -> Draft:
    call_id = text_of(row, "tool_id")
    name = session.tool_name(call_id) or text_of(row, "tool_name") or "unknown"
    failed = row.get("status") == "error"
    content = row.get("output")
    if content is None and failed:
        content = text_of(object_of(row, "error"), "message") or row.get("error")
    return result_draft(call_id, name, content, is_error=failed)
