"""Our own export: one encoded entry a line. Entries stay what they are, so that nothing is new.

Only session and tenant are the importer's.
"""

from typing import ClassVar, Literal

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue

from ombus.importers.canonical import LINEAR, Draft, Fate, Mark, Rows, Voice


class OmbusJsonl:
    """The format; see the module. Several sessions in one file are several transcripts."""

    name: ClassVar[str] = "ombus"
    threads_are: ClassVar[Literal["sub_agents", "sessions"]] = "sessions"

    def __init__(self) -> None:
        self._first: str | None = None

    def mark(self, row: JsonObject, number: int) -> Mark:
        try:
            entry = msgspec.convert(row, Entry)
        except msgspec.ValidationError as error:
            return Mark(fate=Fate.BAD, reason=f"not an entry: {str(error)[:120]}")
        if self._first is None:
            self._first = entry.session_id
        parent = entry.parent_id
        return Mark(
            id=entry.id,
            parent=LINEAR if parent is msgspec.UNSET else parent,
            voice=_voice(entry),
            thread="" if entry.session_id == self._first else entry.session_id,
        )

    def drafts(self, rows: list[JsonObject], number: int, session: Rows) -> list[Draft]:
        return [Draft(verbatim=msgspec.convert(rows[0], Entry))]

    def session_id(self, thread: str) -> str | None:
        return thread or self._first

    def facts(self, thread: str) -> JsonObject:
        return {}

    def version(self) -> JsonValue:
        return None


def _voice(entry: Entry) -> Voice:
    if entry.side or entry.message is None or entry.origin in ("injected", "summary", "worker"):
        return Voice.PASSIVE
    return Voice.HUMAN if entry.message.role == "user" else Voice.TURN
