"""pi and oh-my-pi session files, versions 1 to 3 (formats.md section 1).

The tree is real: a user who goes back opens a branch. pi-OM's ledger lives in ``custom`` entries
and in the details of compactions; both become ours, the native ids stay.
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
from ombus.importers.canonical import (
    LINEAR,
    Draft,
    Fate,
    Linear,
    Mark,
    Rows,
    Voice,
)
from ombus.importers.fields import flag, objects, text_of
from ombus.importers.media import without_media
from ombus.importers.origin import TOOL, Spoken
from ombus.importers.pi_ledger import SUMMARY, compaction_draft, custom_draft

EVICTED: Final = Spoken("injected", "pi.evicted_content")
EXCLUDED: Final = Spoken("injected", "pi.excluded_from_context")
EXTENSION: Final = Spoken("injected", "pi.extension_message")
AGENT: Final = Spoken("injected", "pi.agent_attribution")
SHELL: Final = Spoken("human", "pi.user_shell_command")

_KEPT_OF_MESSAGE: Final = (
    "provider",
    "model",
    "api",
    "stopReason",
    "errorMessage",
    "usage",
    "responseId",
)


class Pi:
    """The format; see the module."""

    name: ClassVar[str] = "pi"
    threads_are: ClassVar[Literal["sub_agents", "sessions"]] = "sub_agents"

    def __init__(self) -> None:
        self._header: JsonObject | None = None

    def mark(self, row: JsonObject, number: int) -> Mark:
        kind = row.get("type")
        if kind == "session":
            if self._header is None:
                self._header = row
                return Mark(fate=Fate.MERGED, reason="session header")
            return Mark(fate=Fate.LEFT_OUT, reason="another session header")
        if not isinstance(kind, str):
            return Mark(fate=Fate.BAD, reason="no type")
        if kind == "message" and not isinstance(row.get("message"), dict):
            return Mark(fate=Fate.BAD, reason="message without content")
        native_id = row.get("id")
        return Mark(
            id=native_id if isinstance(native_id, str) else None,
            parent=_parent(row),
            voice=_voice(row),
            calls=_calls(row),
        )

    def drafts(self, rows: list[JsonObject], number: int, session: Rows) -> list[Draft]:
        row = rows[0]
        kind = text_of(row, "type")
        match kind:
            case "message":
                drafts = _message_drafts(row, number, session)
            case "custom_message":
                drafts = user_drafts(row.get("content"), _custom_speaker(row))
            case "compaction":
                drafts = [compaction_draft(row)]
            case "branch_summary":
                drafts = [_summary(row, "pi.branch_summary")]
            case "custom":
                drafts = [custom_draft(row, session)]
            case "model_change":
                drafts = [Draft(kind="model_change", model=_model(row))]
            case "label":
                target = session.entry_id(text_of(row, "targetId"))
                data: JsonObject = {"type": "pi.label", "targetId": target}
                label = row.get("label")
                drafts = [
                    Draft(kind="label", label=label if isinstance(label, str) else None, data=data)
                ]
            case _:
                drafts = [Draft(kind="metadata", data=_rest(row, f"pi.{kind}"))]
        return [_stamped(draft, row, kind) for draft in drafts]

    def session_id(self, thread: str) -> str | None:
        return text_of(self._header or {}, "id") or None

    def facts(self, thread: str) -> JsonObject:
        header = self._header or {}
        return {key: value for key, value in header.items() if key not in ("type", "id")}

    def version(self) -> JsonValue:
        if self._header is None:
            return None
        return self._header.get("version", 1)


def _parent(row: JsonObject) -> str | None | Linear:
    if "parentId" not in row:
        return LINEAR
    parent = row["parentId"]
    return parent if isinstance(parent, str) and parent else None


def _voice(row: JsonObject) -> Voice:
    body = row.get("message")
    if row.get("type") != "message" or not isinstance(body, dict):
        return Voice.PASSIVE
    match body.get("role"):
        case "user":
            drafts = user_drafts(body.get("content"), _user_speaker(row, body))
            human = any(draft.origin == "human" for draft in drafts)
            return Voice.HUMAN if human else Voice.PASSIVE
        case "assistant" | "toolResult" | "bashExecution":
            return Voice.TURN
        case _:
            return Voice.PASSIVE


def _calls(row: JsonObject) -> tuple[tuple[str, str], ...]:
    body = row.get("message")
    content = body.get("content") if isinstance(body, dict) else None
    return tuple(
        (text_of(block, "id"), text_of(block, "name"))
        for block in objects(content)
        if block.get("type") == "toolCall" and text_of(block, "name")
    )


def _message_drafts(row: JsonObject, number: int, session: Rows) -> list[Draft]:
    body = row["message"]
    assert isinstance(body, dict)
    content = body.get("content")
    evicted = "evictedContent" in row or "evictedContent" in body
    match body.get("role"):
        case "user":
            drafts = user_drafts(content, _user_speaker(row, body))
        case "assistant":
            drafts = [_with_message_facts(assistant_draft(content), body)]
        case "toolResult":
            call_id = text_of(body, "toolCallId")
            name = text_of(body, "toolName") or session.tool_name(call_id) or "unknown"
            drafts = [result_draft(call_id, name, content, is_error=flag(body, "isError"))]
        case "bashExecution":
            drafts = _shell(row, body, number)
        case "branchSummary" | "compactionSummary":
            drafts = [_summary(body, f"pi.{body['role']}")]
        case "custom" | "hookMessage":
            drafts = user_drafts(content, _custom_speaker(body))
        case "system":
            drafts = [message("system", list(said(content)), Spoken("injected", "role.system"))]
        case role:
            drafts = user_drafts(content, Spoken("injected", f"pi.role_{role}"))
    if evicted:
        drafts = [
            _changed(draft, EVICTED, {**draft.metadata, "unavailable": _evicted(row, body)})
            for draft in drafts
        ]
    return drafts


def _user_speaker(row: JsonObject, body: JsonObject) -> Spoken | None:
    attribution = body.get("attribution", row.get("attribution"))
    return AGENT if isinstance(attribution, str) and attribution != "user" else None


def _custom_speaker(holder: JsonObject) -> Spoken | None:
    """An extension speaks in the user's role, unless it says that the user does."""
    return None if holder.get("attribution") == "user" else EXTENSION


def _shell(row: JsonObject, body: JsonObject, number: int) -> list[Draft]:
    """A command the user ran by hand: a call and its result, like a command of the agent."""
    call_id = f"shell-{text_of(row, 'id') or number}"
    excluded = flag(body, "excludeFromContext")
    call = call_block(call_id, "bash", {"command": text_of(body, "command")})
    code = body.get("exitCode")
    failed = (isinstance(code, int) and code != 0) or flag(body, "cancelled")
    output = result_draft(call_id, "bash", text_of(body, "output"), is_error=failed)
    facts: JsonObject = {"exitCode": code} if isinstance(code, int) else {}
    for key in ("cancelled", "truncated", "fullOutputPath", "excludeFromContext"):
        if body.get(key):
            facts[key] = body[key]
    return [
        message("assistant", [call], EXCLUDED if excluded else SHELL),
        _changed(output, EXCLUDED if excluded else TOOL, facts),
    ]


def _summary(holder: JsonObject, kind: str) -> Draft:
    data: JsonObject = {"type": kind}
    if isinstance(holder.get("fromId"), str):
        data["fromId"] = holder["fromId"]
    return Draft(
        kind="summary",
        summary=text_of(holder, "summary"),
        data=data,
        origin=SUMMARY.origin,
        rule=SUMMARY.rule,
    )


def _model(row: JsonObject) -> JsonObject:
    """pi says ``provider`` and ``modelId``; oh-my-pi says ``model`` as ``provider/model``."""
    provider, model = text_of(row, "provider"), text_of(row, "modelId") or text_of(row, "model")
    if not provider and "/" in model:
        provider, _, model = model.partition("/")
    return {"provider": provider, "model": model}


def _with_message_facts(draft: Draft, body: JsonObject) -> Draft:
    facts = {key: body[key] for key in _KEPT_OF_MESSAGE if body.get(key) is not None}
    return msgspec.structs.replace(draft, message_metadata=facts)


def _evicted(row: JsonObject, body: JsonObject) -> JsonValue:
    found = row.get("evictedContent", body.get("evictedContent"))
    return found if isinstance(found, dict) else True


def _changed(draft: Draft, spoken: Spoken, metadata: JsonObject) -> Draft:
    return msgspec.structs.replace(draft, origin=spoken.origin, rule=spoken.rule, metadata=metadata)


def _stamped(draft: Draft, row: JsonObject, kind: str) -> Draft:
    body = row.get("message")
    timestamp = row.get("timestamp")
    if timestamp is None and isinstance(body, dict):
        timestamp = body.get("timestamp")
    custom = row.get("customType")
    metadata = draft.metadata
    if draft.kind == "message" and isinstance(custom, str):
        metadata = {**metadata, "customType": custom}
    return msgspec.structs.replace(draft, timestamp=timestamp, native_type=kind, metadata=metadata)


def _rest(row: JsonObject, kind: str) -> JsonObject:
    skip = ("type", "id", "parentId", "timestamp")
    return {"type": kind, **{k: without_media(v) for k, v in row.items() if k not in skip}}
