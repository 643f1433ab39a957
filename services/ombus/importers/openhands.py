"""OpenHands runs: one event stream each, from ``output.jsonl``, the resolver or a download.

An observation answers the action its ``cause`` names; the old shape has no ids, there it answers
the action before it (formats.md section 5).
"""

from typing import ClassVar, Final, Literal

import msgspec
from ombus_schemas.jsontext import JsonObject, JsonValue

from ombus.importers.blocks import assistant_draft, call_block, message, result_draft, user_drafts
from ombus.importers.canonical import Draft, Fate, Mark, Rows, Voice
from ombus.importers.documents import small
from ombus.importers.fields import object_of, text_of
from ombus.importers.media import linked
from ombus.importers.origin import SYSTEM, Spoken

RECALLED: Final = Spoken("injected", "openhands.recall")
STATE: Final = Spoken("injected", "openhands.state")
SUMMARY: Final = Spoken("summary", "openhands.condensation")

_NO_CALLS: Final = frozenset(
    {
        "message",
        "system",
        "finish",
        "reject",
        "recall",
        "condensation",
        "condensation_request",
        "change_agent_state",
        "null",
        "think",
    }
)
"""Actions that are no tool calls."""
_STATES: Final = frozenset({"agent_state_changed", "recall", "null", "think", "condense"})
"""Observations that answer no call."""
_FAILURES: Final = frozenset({"error", "user_rejected"})


class OpenHands:
    """The format; see the module."""

    name: ClassVar[str] = "openhands"
    threads_are: ClassVar[Literal["sub_agents", "sessions"]] = "sub_agents"

    def __init__(self, facts: JsonObject) -> None:
        self._facts = facts
        self._open_call = ""
        self._call_by_row: dict[int, str] = {}
        self._human_rows: set[int] = set()
        self._last_said = ""

    def mark(self, row: JsonObject, number: int) -> Mark:
        action, observation = row.get("action"), row.get("observation")
        if isinstance(action, str):
            is_human = action == "message" and self._is_by_user(row)
            self._last_said = "agent message" if action == "message" and not is_human else action
            if is_human:
                self._human_rows.add(number)
                return Mark(id=_event_id(row), voice=_human_voice(row))
            if action in _NO_CALLS:
                turn = action in ("message", "finish", "reject", "think")
                return Mark(id=_event_id(row), voice=Voice.TURN if turn else Voice.PASSIVE)
            call_id = _call_id(row, number)
            self._open_call = call_id
            return Mark(id=_event_id(row), voice=Voice.TURN, calls=((call_id, _tool(row)),))
        if isinstance(observation, str):
            self._last_said = "observation"
            if observation in _STATES:
                return Mark(id=_event_id(row))
            cause = row.get("cause")
            self._call_by_row[number] = f"e{cause}" if cause is not None else self._open_call
            self._open_call = ""
            return Mark(id=_event_id(row), voice=Voice.TURN)
        return Mark(fate=Fate.BAD, reason="neither action nor observation")

    def drafts(self, rows: list[JsonObject], number: int, session: Rows) -> list[Draft]:
        row = rows[0]
        if isinstance(row.get("action"), str):
            drafts = [*self._action(row, number)]
        else:
            drafts = [self._observation(row, number, session)]
        kind = text_of(row, "action", "observation")
        return [
            msgspec.structs.replace(draft, native_type=kind, timestamp=row.get("timestamp"))
            for draft in drafts
        ]

    def session_id(self, thread: str) -> str | None:
        issue = object_of(self._facts, "issue")
        if isinstance(issue.get("number"), int):
            return f"{text_of(issue, 'owner')}-{text_of(issue, 'repo')}-{issue['number']}"
        return text_of(self._facts, "instance_id") or None

    def facts(self, thread: str) -> JsonObject:
        return small(self._facts, "instance_id", "issue", "success", "error")

    def version(self) -> JsonValue:
        return None

    def _is_by_user(self, row: JsonObject) -> bool:
        """Without ``source``: the first message is the task, and one after a message a reply."""
        source = row.get("source")
        if isinstance(source, str):
            return source == "user"
        return self._last_said in ("", "agent message")

    def _action(self, row: JsonObject, number: int) -> list[Draft]:
        action, args = text_of(row, "action"), _arguments(row)
        text = text_of(args, "content")
        thought = text_of(args, "thought") or text_of(row, "thought")
        match action:
            case "message":
                images = _images(args)
                if number in self._human_rows:
                    return user_drafts([text, *images])
                return [assistant_draft([text, *images])]
            case "system":
                return [message("system", [{"type": "text", "text": text}], SYSTEM)]
            case "finish" | "reject" | "think":
                said = text_of(args, "final_thought") or thought or text_of(row, "message")
                return [assistant_draft(said)]
            case "condensation":
                summary = text_of(args, "summary")
                data: JsonObject = {"type": "openhands.condensation"}
                if summary:
                    origin, rule = SUMMARY.origin, SUMMARY.rule
                    return [
                        Draft(kind="summary", summary=summary, data=data, origin=origin, rule=rule)
                    ]
                return [_state(data, STATE)]
            case "recall" | "condensation_request" | "change_agent_state" | "null":
                return [_state({"type": f"openhands.{action}", "args": args}, STATE)]
            case _:
                call = {key: value for key, value in args.items() if key not in _NOT_ARGUMENTS}
                block = call_block(_call_id(row, number), _tool(row), call)
                return [assistant_draft(thought, [block])]

    def _observation(self, row: JsonObject, number: int, session: Rows) -> Draft:
        kind, content = text_of(row, "observation"), row.get("content")
        if kind in _STATES:
            data: JsonObject = {"type": f"openhands.{kind}", "content": content}
            return _state(data, RECALLED if kind == "recall" else STATE)
        call_id = self._call_by_row.get(number, "")
        name = session.tool_name(call_id) or text_of(
            object_of(row, "tool_call_metadata"), "function_name"
        )
        draft = result_draft(call_id, name or kind, content, is_error=kind in _FAILURES)
        extras = object_of(row, "extras")
        code = row.get("exit_code", extras.get("exit_code"))
        code = code if code is not None else object_of(extras, "metadata").get("exit_code")
        if isinstance(code, int) and not isinstance(code, bool):
            return msgspec.structs.replace(draft, metadata={"exitCode": code})
        return draft


_NOT_ARGUMENTS: Final = frozenset(
    {
        "thought",
        "keep_prompt",
        "is_confirmed",
        "confirmation_state",
        "action_risk",
        "security_risk",
        "kernel_init_code",
        "hidden",
        "is_input",
        "blocking",
    }
)
_ENVELOPE: Final = frozenset(
    {
        "id",
        "timestamp",
        "source",
        "message",
        "action",
        "args",
        "cause",
        "timeout",
        "tool_call_metadata",
        "llm_metrics",
    }
)


def _event_id(row: JsonObject) -> str | None:
    found = row.get("id")
    return f"e{found}" if type(found) is int else None


def _call_id(row: JsonObject, number: int) -> str:
    return _event_id(row) or f"call-{number}"


def _tool(row: JsonObject) -> str:
    named = text_of(object_of(row, "tool_call_metadata"), "function_name")
    return named or text_of(row, "action")


def _arguments(row: JsonObject) -> JsonObject:
    """Return an action's arguments; the old shape has them beside the action's name."""
    args = row.get("args")
    if isinstance(args, dict):
        return args
    return {key: value for key, value in row.items() if key not in _ENVELOPE}


def _images(args: JsonObject) -> list[JsonValue]:
    urls = args.get("image_urls", args.get("images_urls"))
    if not isinstance(urls, list):
        return []
    return [{**linked("image", url)} for url in urls if isinstance(url, str)]


def _human_voice(row: JsonObject) -> Voice:
    drafts = user_drafts(text_of(_arguments(row), "content"))
    return Voice.HUMAN if any(draft.origin == "human" for draft in drafts) else Voice.PASSIVE


def _state(data: JsonObject, spoken: Spoken) -> Draft:
    return Draft(kind="metadata", data=data, origin=spoken.origin, rule=spoken.rule)
