"""Codex CLI rollouts: modern (wrapped items) and legacy (bare items), formats.md section 3.

No ids and no parents: file order is the order, ids come from line numbers. Only response items
are taken; ``event_msg`` rows repeat them.
"""

import re
from typing import ClassVar, Final, Literal

import msgspec
from ombus_schemas.jsontext import JsonObject, JsonValue

from ombus.importers.blocks import (
    assistant_draft,
    call_block,
    message,
    result_draft,
    said,
    thinking_block,
    user_drafts,
)
from ombus.importers.canonical import Boundary, Draft, Fate, Mark, Rows, Voice
from ombus.importers.fields import object_of, objects, text_of
from ombus.importers.origin import MODEL, SYSTEM, Spoken

SUMMARY: Final = Spoken("summary", "codex.compacted")

_LEFT_OUT: Final = {
    "event_msg": "event_msg repeats response items",
    "turn_context": "turn context",
    "world_state": "world state",
}
_CALLS: Final = (
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "web_search_call",
    "tool_search_call",
)
_OUTPUTS: Final = ("function_call_output", "custom_tool_call_output", "tool_search_output")
_EXIT: Final = re.compile(
    r'(?:Process exited with code |Exit code: |"exit_code": ?)(-?\d{1,9})', re.IGNORECASE
)
_META: Final = (
    "cwd",
    "originator",
    "cli_version",
    "source",
    "thread_source",
    "model_provider",
    "git",
    "forked_from_id",
    "parent_thread_id",
)


class Codex:
    """The format; see the module."""

    name: ClassVar[str] = "codex"
    threads_are: ClassVar[Literal["sub_agents", "sessions"]] = "sub_agents"

    def __init__(self) -> None:
        self._meta: JsonObject | None = None
        self._is_legacy = False

    def mark(self, row: JsonObject, number: int) -> Mark:
        kind = row.get("type")
        if kind == "session_meta" or _is_legacy_header(row):
            self._is_legacy = kind != "session_meta"
            if self._meta is None:
                self._meta = row if self._is_legacy else object_of(row, "payload")
                return Mark(fate=Fate.MERGED, reason="session header")
            return Mark(fate=Fate.LEFT_OUT, reason="another session header")
        if "record_type" in row and kind is None:
            return Mark(fate=Fate.LEFT_OUT, reason="state record")
        if not isinstance(kind, str):
            return Mark(fate=Fate.BAD, reason="no type")
        if kind in _LEFT_OUT:
            return Mark(fate=Fate.LEFT_OUT, reason=_LEFT_OUT[kind])
        if kind == "compacted":
            return Mark()
        item = _item(row)
        if item is None:
            return Mark(fate=Fate.LEFT_OUT, reason=f"row of type {kind[:40]}")
        drafts = _drafts(item, number, None)
        if not drafts:
            return Mark(fate=Fate.LEFT_OUT, reason="reasoning without text")
        call = text_of(item, "call_id", "id")
        is_call = item.get("type") in _CALLS
        return Mark(
            voice=_voice(drafts),
            calls=((call, _tool(item)),) if is_call and call else (),
        )

    def drafts(self, rows: list[JsonObject], number: int, session: Rows) -> list[Draft]:
        row = rows[0]
        item = _item(row)
        kind = text_of(row, "type")
        if kind == "compacted":
            drafts = [_compaction(object_of(row, "payload") or row)]
        else:
            drafts = _drafts(item, number, session) if item is not None else []
            kind = text_of(item or {}, "type") or kind
        return [
            msgspec.structs.replace(draft, timestamp=row.get("timestamp"), native_type=kind)
            for draft in drafts
        ]

    def session_id(self, thread: str) -> str | None:
        return text_of(self._meta or {}, "id", "session_id") or None

    def facts(self, thread: str) -> JsonObject:
        meta = self._meta or {}
        facts = {key: meta[key] for key in _META if meta.get(key) is not None}
        parent = text_of(meta, "forked_from_id", "parent_thread_id") or _spawned_by(meta)
        return {**facts, "parentSession": parent} if parent else facts

    def version(self) -> JsonValue:
        return "legacy" if self._is_legacy else None


def _is_legacy_header(row: JsonObject) -> bool:
    return "type" not in row and isinstance(row.get("id"), str) and "timestamp" in row


def _spawned_by(meta: JsonObject) -> str:
    spawn = object_of(object_of(object_of(meta, "source"), "subagent"), "thread_spawn")
    return text_of(spawn, "parent_thread_id")


def _item(row: JsonObject) -> JsonObject | None:
    """Return the response item of a row: its payload, or the bare row of a legacy file."""
    kind = row.get("type")
    if kind == "response_item":
        payload = row.get("payload")
        return payload if isinstance(payload, dict) else None
    if kind in ("message", "reasoning", *_CALLS, *_OUTPUTS) and "payload" not in row:
        return row
    return None


def _voice(drafts: list[Draft]) -> Voice:
    if any(draft.origin == "human" for draft in drafts):
        return Voice.HUMAN
    injected = all(draft.origin in ("injected", "summary") for draft in drafts)
    return Voice.PASSIVE if injected else Voice.TURN


def _drafts(item: JsonObject, number: int, session: Rows | None) -> list[Draft]:
    kind = item.get("type")
    if kind == "message":
        return _message(item)
    if kind == "reasoning":
        return _reasoning(item)
    call_id = text_of(item, "call_id", "id") or f"L{number}"
    if kind in _CALLS:
        name = _tool(item)
        value = item.get("arguments", item.get("input", item.get("action")))
        return [message("assistant", [call_block(call_id, name, value)], MODEL)]
    if kind in _OUTPUTS:
        called = session.tool_name(call_id) if session is not None else None
        return [_output(call_id, called or "unknown", item.get("output"))]
    return [Draft(kind="metadata", data={"type": f"codex.{kind}"})]


def _tool(item: JsonObject) -> str:
    kind = text_of(item, "type")
    return text_of(item, "name") or kind.removesuffix("_call") or "unknown"


def _message(item: JsonObject) -> list[Draft]:
    content = item.get("content")
    match item.get("role"):
        case "assistant":
            draft = assistant_draft(content)
            phase = text_of(item, "phase")
            facts: JsonObject = {"phase": phase} if phase else {}
            return [msgspec.structs.replace(draft, message_metadata=facts)]
        case "user":
            return user_drafts(content)
        case _:
            return [message("system", list(said(content)), SYSTEM)]


def _reasoning(item: JsonObject) -> list[Draft]:
    texts = [
        text_of(part, "text")
        for key in ("summary", "content")
        for part in objects(item.get(key))
        if text_of(part, "text")
    ]
    return [message("assistant", [thinking_block(text) for text in texts], MODEL)] if texts else []


def _output(call_id: str, name: str, output: JsonValue) -> Draft:
    failed = False
    if isinstance(output, dict):
        failed = output.get("success") is False
        output = output.get("content", output.get("output", output.get("content_items")))
    draft = result_draft(call_id, name, output, is_error=failed)
    found = None
    if isinstance(output, str):
        # The runner writes the code before the output, or (legacy JSON) behind it.
        found = _EXIT.search(output[:400]) or (
            _EXIT.search(output[-200:]) if output.startswith('{"output"') else None
        )
    return msgspec.structs.replace(draft, metadata={"exitCode": int(found[1])}) if found else draft


def _compaction(payload: JsonObject) -> Draft:
    """The history it was replaced by is old content: it is not imported again."""
    return Draft(
        kind="compaction",
        summary=text_of(payload, "message"),
        data={"keepEntryIds": [], "strategy": "imported", "trigger": "imported"},
        origin=SUMMARY.origin,
        rule=SUMMARY.rule,
        boundary=Boundary(),
    )
