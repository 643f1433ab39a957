"""SWE-agent trajectories: the history of one run (formats.md section 4).

Commands are text in older files: an assistant row with an ``action`` is a call, and the row of
the environment after it is the result. The steps repeat the history; they are read only if there
is none.
"""

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

_TOOL: Final = "bash"
"""What a textual action is given to: a shell."""


class SweAgent:
    """The format; see the module."""

    name: ClassVar[str] = "swe-agent"
    threads_are: ClassVar[Literal["sub_agents", "sessions"]] = "sub_agents"

    def __init__(self, facts: JsonObject) -> None:
        self._facts = facts
        self._open_calls: dict[int, str] = {}
        self._open_call = ""

    def mark(self, row: JsonObject, number: int) -> Mark:
        if "role" not in row:
            is_step = "action" in row or "observation" in row
            return Mark(voice=Voice.TURN) if is_step else Mark(fate=Fate.BAD, reason="no role")
        if flag(row, "is_demo") or row.get("message_type") == "demonstration":
            return Mark(fate=Fate.LEFT_OUT, reason="demonstration")
        calls = _calls(row, number)
        role = row["role"]
        if role == "assistant":
            self._open_call = text_of(calls[0], "id") if calls else ""
        elif role in ("user", "tool") and self._open_call:
            self._open_calls[number] = self._open_call
            self._open_call = ""
        return Mark(
            voice=self._voice(row, number),
            calls=tuple((text_of(call, "id"), text_of(call, "name")) for call in calls),
        )

    def drafts(self, rows: list[JsonObject], number: int, session: Rows) -> list[Draft]:
        row = rows[0]
        if "role" not in row:
            return _step(row, number)
        content, kind = row.get("content"), text_of(row, "message_type") or text_of(row, "role")
        match row["role"]:
            case "assistant":
                drafts = [assistant_draft(content, _calls(row, number))]
            case "user" | "tool":
                call_id = self._answered(row, number)
                if call_id:
                    name = session.tool_name(call_id) or _TOOL
                    drafts = [result_draft(call_id, name, content, is_error=False)]
                else:
                    drafts = user_drafts(content)
            case _:
                drafts = [message("system", list(said(content)), SYSTEM)]
        agent = text_of(row, "agent")
        return [
            msgspec.structs.replace(
                draft, native_type=kind, metadata={"agent": agent} if agent else {}
            )
            for draft in drafts
        ]

    def session_id(self, thread: str) -> str | None:
        return text_of(self._facts, "instance_id") or None

    def facts(self, thread: str) -> JsonObject:
        info = object_of(self._facts, "info")
        return {
            **small(self._facts, "environment", "instance_id"),
            **small(info, "exit_status", "model_stats"),
        }

    def version(self) -> JsonValue:
        return None

    def _answered(self, row: JsonObject, number: int) -> str:
        ids = row.get("tool_call_ids")
        if isinstance(ids, list) and ids and isinstance(ids[0], str):
            return ids[0]
        return self._open_calls.get(number, "")

    def _voice(self, row: JsonObject, number: int) -> Voice:
        match row["role"]:
            case "assistant":
                return Voice.TURN
            case "user" | "tool":
                return Voice.TURN if self._answered(row, number) else Voice.HUMAN
            case _:
                return Voice.PASSIVE


def _calls(row: JsonObject, number: int) -> list[JsonObject]:
    """Return the calls of an assistant row: named ones, else its textual action."""
    if row.get("role") != "assistant":
        return []
    named = [
        call_block(
            text_of(call, "id") or f"call-{number}",
            text_of(object_of(call, "function"), "name") or "unknown",
            object_of(call, "function").get("arguments"),
        )
        for call in objects(row.get("tool_calls"))
    ]
    action = text_of(row, "action")
    if named or not action:
        return named
    return [call_block(f"call-{number}", _TOOL, {"command": action})]


def _step(row: JsonObject, number: int) -> list[Draft]:
    action = text_of(row, "action")
    calls = [call_block(f"call-{number}", _TOOL, {"command": action})] if action else []
    drafts = [assistant_draft(row.get("response", row.get("thought")), calls)]
    if calls and "observation" in row:
        drafts.append(result_draft(f"call-{number}", _TOOL, row["observation"], is_error=False))
    return [msgspec.structs.replace(draft, native_type="step") for draft in drafts]
