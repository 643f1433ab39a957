"""Claude Code session files, and the web sessions that have the same rows without links.

Most of what looks like a fork in ``parentUuid`` is not one (formats.md section 2): one API message
is written as a row per block, and its parallel results hang on different rows. Rows of one message
become one entry. Sub-agents (``isSidechain``) become sessions of their own, linked to this one.
"""

from typing import ClassVar, Final, Literal

import msgspec
from ombus_schemas.jsontext import JsonObject, JsonValue

from ombus.importers.blocks import assistant_draft, result_draft, said, user_drafts
from ombus.importers.canonical import (
    LINEAR,
    Boundary,
    Draft,
    Fate,
    Linear,
    Mark,
    Rows,
    Voice,
)
from ombus.importers.fields import flag, object_of, objects, text_of
from ombus.importers.media import without_media
from ombus.importers.origin import Spoken

META: Final = Spoken("injected", "claude.is_meta")
SUMMARY: Final = Spoken("summary", "claude.compact_summary")
QUEUED_BY_PROGRAM: Final = Spoken("injected", "claude.queued_by_program")
NOT_HUMAN: Final = Spoken("injected", "claude.origin_field")
SUB_AGENT_PROMPT: Final = Spoken("model", "claude.sidechain_prompt")
ATTACHED: Final = Spoken("injected", "claude.attachment")
EVENT: Final = Spoken("injected", "claude.system_row")

_BOOKKEEPING: Final = frozenset(
    {
        "summary",
        "file-history-snapshot",
        "queue-operation",
        "last-prompt",
        "ai-title",
        "custom-title",
        "agent-name",
        "permission-mode",
    }
)
"""Rows beside the conversation: titles of other files, snapshots, repeated prompts."""
_LINKS: Final = ("type", "uuid", "parentUuid", "logicalParentUuid", "timestamp", "sessionId")
_SESSION_FACTS: Final = ("cwd", "gitBranch", "version", "entrypoint", "slug", "agentId")


class ClaudeCode:
    """The format; see the module."""

    name: ClassVar[str] = "claude-code"
    threads_are: ClassVar[Literal["sub_agents", "sessions"]] = "sub_agents"

    def __init__(self) -> None:
        self._session_id: str | None = None
        self._facts: dict[str, JsonObject] = {}
        self._thread_by_uuid: dict[str, str] = {}
        self._last_thread = ""
        self._turns: dict[str, int] = {}

    def mark(self, row: JsonObject, number: int) -> Mark:
        kind, uuid = row.get("type"), text_of(row, "uuid") or None
        if not isinstance(kind, str):
            return Mark(fate=Fate.BAD, reason="no type")
        self._session_id = self._session_id or text_of(row, "sessionId") or None
        if kind in _BOOKKEEPING and uuid is None:
            return Mark(fate=Fate.LEFT_OUT, reason=kind)
        thread = self._thread(row, uuid)
        parent = _parent(row)
        if kind == "progress":
            fate = Fate.LEFT_OUT
            return Mark(fate=fate, reason=kind, id=uuid, parent=parent, thread=thread)
        if kind not in ("user", "assistant"):
            if uuid is None and kind not in ("system", "attachment"):
                return Mark(fate=Fate.LEFT_OUT, reason=f"row of type {kind[:40]}")
            voice = _queued_voice(row) if kind == "attachment" else Voice.PASSIVE
            return Mark(id=uuid, parent=parent, voice=voice, thread=thread)
        body = row.get("message")
        if not isinstance(body, dict) or "content" not in body:
            return Mark(fate=Fate.BAD, reason="message without content")
        if thread not in self._facts:
            self._facts[thread] = {key: row[key] for key in _SESSION_FACTS if key in row}
        if kind == "assistant":
            group = text_of(body, "id")
            return Mark(
                id=uuid,
                parent=parent,
                voice=Voice.TURN,
                group=f"{self._turns.get(thread, 0)}:{group}" if group else None,
                thread=thread,
                calls=_calls(body),
            )
        voice = _user_voice(row, body)
        if voice == Voice.HUMAN:
            self._turns[thread] = self._turns.get(thread, 0) + 1
        return Mark(id=uuid, parent=parent, voice=voice, thread=thread)

    def drafts(self, rows: list[JsonObject], number: int, session: Rows) -> list[Draft]:
        row = rows[0]
        match row.get("type"):
            case "assistant":
                drafts = [_assistant(rows)]
            case "user":
                drafts = _user(row, session)
            case "attachment":
                drafts = _attachment(row)
            case kind:
                data = _rest(row, f"claude-code.{kind}")
                drafts = [Draft(kind="metadata", data=data, origin=EVENT.origin, rule=EVENT.rule)]
        kind = text_of(row, "type")
        return [
            msgspec.structs.replace(draft, timestamp=row.get("timestamp"), native_type=kind)
            for draft in drafts
        ]

    def session_id(self, thread: str) -> str | None:
        if self._session_id is None or not thread:
            return self._session_id
        return f"{self._session_id}:{thread}"

    def facts(self, thread: str) -> JsonObject:
        facts = self._facts.get(thread, {})
        return {**facts, "subAgent": thread} if thread else facts

    def version(self) -> JsonValue:
        return None

    def _thread(self, row: JsonObject, uuid: str | None) -> str:
        """Return the sub-agent of a row: named, else that of its parent, else a new one."""
        if not flag(row, "isSidechain"):
            return ""
        parent = text_of(row, "parentUuid")
        thread = self._thread_by_uuid.get(parent, "")
        if agent := text_of(row, "agentId"):
            thread = f"agent-{agent}"
        elif not thread:
            is_lost = parent and self._last_thread
            thread = self._last_thread if is_lost else f"agent-{uuid or 'unnamed'}"
        if uuid is not None:
            self._thread_by_uuid[uuid] = thread
        self._last_thread = thread
        return thread


class AnthropicWeb(ClaudeCode):
    """The rows of a web session: no ids, no parents, file order is the order."""

    name: ClassVar[str] = "anthropic-web"


def _parent(row: JsonObject) -> str | None | Linear:
    parent = text_of(row, "parentUuid", "logicalParentUuid")
    if parent:
        return parent
    return None if "parentUuid" in row else LINEAR


def _user_voice(row: JsonObject, body: JsonObject) -> Voice:
    content = body["content"]
    if any(block.get("type") == "tool_result" for block in objects(content)):
        return Voice.TURN
    if flag(row, "isCompactSummary"):
        return Voice.PASSIVE
    drafts = user_drafts(content, _speaker(row))
    return Voice.HUMAN if any(draft.origin == "human" for draft in drafts) else Voice.PASSIVE


def _queued_voice(row: JsonObject) -> Voice:
    human = any(draft.origin == "human" and draft.role for draft in _attachment(row))
    return Voice.HUMAN if human else Voice.PASSIVE


def _speaker(row: JsonObject) -> Spoken | None:
    if flag(row, "isMeta"):
        return META
    said_by = object_of(row, "origin").get("kind")
    return NOT_HUMAN if isinstance(said_by, str) and said_by != "human" else None


def _calls(body: JsonObject) -> tuple[tuple[str, str], ...]:
    return tuple(
        (text_of(block, "id"), text_of(block, "name"))
        for block in objects(body["content"])
        if block.get("type") == "tool_use" and text_of(block, "name")
    )


def _assistant(rows: list[JsonObject]) -> Draft:
    """One entry of all rows of a message, its usage once: the last row's counts all of it."""
    bodies = [object_of(row, "message") for row in rows]
    blocks = [block for body in bodies for block in said(body.get("content"))]
    facts: JsonObject = {}
    for body in bodies:
        for key, name in (("model", "model"), ("stop_reason", "stopReason"), ("usage", "usage")):
            if body.get(key) is not None:
                facts[name] = body[key]
    if flag(rows[0], "isApiErrorMessage"):
        facts["isApiErrorMessage"] = True
    return msgspec.structs.replace(
        assistant_draft([]),
        content=tuple(blocks),
        message_id=text_of(bodies[0], "id") or None,
        message_metadata=facts,
        metadata={"rows": len(rows)} if len(rows) > 1 else {},
    )


def _user(row: JsonObject, session: Rows) -> list[Draft]:
    content = object_of(row, "message").get("content")
    if flag(row, "isCompactSummary"):
        return [_compaction(content)]
    speaker = _speaker(row)
    if isinstance(content, list):
        drafts: list[Draft] = []
        rest: list[JsonValue] = []
        for block in content:
            if isinstance(block, dict) and block.get("type") == "tool_result":
                drafts += user_drafts(rest, speaker) if rest else ()
                rest = []
                drafts.append(_result(block, row, session))
            else:
                rest.append(block)
        if rest or not drafts:
            drafts += user_drafts(rest, speaker)
    else:
        drafts = user_drafts(content, speaker)
    if flag(row, "isSidechain"):
        drafts = [_by_agent(draft) for draft in drafts]
    return drafts


def _result(block: JsonObject, row: JsonObject, session: Rows) -> Draft:
    call_id = text_of(block, "tool_use_id")
    name = session.tool_name(call_id) or "unknown"
    draft = result_draft(call_id, name, block.get("content"), is_error=flag(block, "is_error"))
    agent = object_of(row, "toolUseResult").get("agentId")
    if isinstance(agent, str):
        return msgspec.structs.replace(draft, metadata={"agentId": agent})
    return draft


def _by_agent(draft: Draft) -> Draft:
    """What a sub-agent takes for its user's words are the words of the agent above it."""
    if draft.origin != "human":
        return draft
    origin, rule = SUB_AGENT_PROMPT.origin, SUB_AGENT_PROMPT.rule
    return msgspec.structs.replace(draft, origin=origin, rule=rule)


def _compaction(content: JsonValue) -> Draft:
    texts = [block["text"] for block in said(content) if block.get("type") == "text"]
    return Draft(
        kind="compaction",
        summary="\n".join(text for text in texts if isinstance(text, str)),
        data={"keepEntryIds": [], "strategy": "imported", "trigger": "imported"},
        origin=SUMMARY.origin,
        rule=SUMMARY.rule,
        boundary=Boundary(),
    )


def _attachment(row: JsonObject) -> list[Draft]:
    """Text typed while the agent was busy is the user's; other attachments are the program's."""
    attached = object_of(row, "attachment")
    if attached.get("type") == "queued_command" and "prompt" in attached:
        mode = attached.get("commandMode", "prompt")
        speaker = QUEUED_BY_PROGRAM if mode != "prompt" else _speaker(attached)
        return user_drafts(attached["prompt"], speaker)
    data: JsonObject = {"type": "claude-code.attachment", "attachment": without_media(attached)}
    return [Draft(kind="custom", data=data, origin=ATTACHED.origin, rule=ATTACHED.rule)]


def _rest(row: JsonObject, kind: str) -> JsonObject:
    skip = (*_LINKS, *_SESSION_FACTS, "userType", "isSidechain")
    return {"type": kind, **{k: without_media(v) for k, v in row.items() if k not in skip}}
