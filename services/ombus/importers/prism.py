"""Session entries of a Prism store, whose ledger may still use marker names without ``om.``.

The shape is nearly ours (formats.md section 1); ids, parents and ledger records are kept, also a
drop of an observation that never existed.
"""

from typing import ClassVar, Final, Literal, get_args

import msgspec
from ombus_schemas.entries import Origin
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import (
    OBSERVATIONS_DROPPED,
    OBSERVATIONS_RECORDED,
    REFLECTIONS_RECORDED,
)

from ombus.importers.blocks import assistant_draft, message, said, user_drafts
from ombus.importers.canonical import LINEAR, Draft, Fate, Mark, Rows, Voice
from ombus.importers.fields import object_of, objects, text_of
from ombus.importers.origin import SYSTEM, TOOL

_MARKERS: Final = {
    "observations_recorded": OBSERVATIONS_RECORDED,
    "reflections_recorded": REFLECTIONS_RECORDED,
    "observations_dropped": OBSERVATIONS_DROPPED,
}
_ORIGINS: Final[tuple[Origin, ...]] = get_args(Origin)


class Prism:
    """The format; see the module."""

    name: ClassVar[str] = "prism"
    threads_are: ClassVar[Literal["sub_agents", "sessions"]] = "sessions"

    def __init__(self) -> None:
        self._first: str | None = None

    def mark(self, row: JsonObject, number: int) -> Mark:
        session, kind = text_of(row, "sessionId"), text_of(row, "kind")
        if not kind or not session:
            return Mark(fate=Fate.BAD, reason="no kind or no sessionId")
        if self._first is None:
            self._first = session
        body = object_of(row, "message")
        voice = Voice.PASSIVE
        if kind == "message":
            human = any(draft.origin == "human" for draft in _message(body))
            voice = Voice.HUMAN if human else Voice.TURN
        return Mark(
            id=text_of(row, "id") or None,
            parent=text_of(row, "parentId") or (None if "parentId" in row else LINEAR),
            voice=voice,
            thread="" if session == self._first else session,
            calls=tuple(
                (text_of(block, "id"), text_of(block, "name"))
                for block in objects(body.get("content"))
                if block.get("type") == "tool_call"
            ),
        )

    def drafts(self, rows: list[JsonObject], number: int, session: Rows) -> list[Draft]:
        row = rows[0]
        kind, body = text_of(row, "kind"), row.get("message")
        data, metadata = row.get("data"), object_of(row, "metadata")
        if isinstance(data, dict) and isinstance(name := data.get("type"), str):
            data = {**data, "type": _MARKERS.get(name, name)}
        drafts = _message(body) if isinstance(body, dict) else [Draft()]
        origin = row.get("origin")
        known = next((name for name in _ORIGINS if name == origin), None)
        model = row.get("model")
        *early, last = (
            msgspec.structs.replace(
                draft,
                kind=kind,
                origin=known or draft.origin,
                rule="prism.origin" if known else draft.rule,
                native_type=kind,
                timestamp=row.get("timestamp"),
                metadata=metadata,
            )
            for draft in drafts
        )
        last = msgspec.structs.replace(
            last,
            data=data,
            summary=text_of(row, "summary") or None,
            label=text_of(row, "label") or None,
            model=model if isinstance(model, dict) else None,
        )
        return [*early, last]

    def session_id(self, thread: str) -> str | None:
        return thread or self._first

    def facts(self, thread: str) -> JsonObject:
        return {}

    def version(self) -> JsonValue:
        return None


def _message(body: JsonObject) -> list[Draft]:
    content = body.get("content")
    match body.get("role"):
        case "assistant":
            return [assistant_draft(content)]
        case "tool":
            return [message("tool", list(said(content)), TOOL)]
        case "system":
            return [message("system", list(said(content)), SYSTEM)]
        case _:
            return user_drafts(content)
