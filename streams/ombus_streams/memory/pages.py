"""The raw messages of a branch, a page at a time from a cursor (S14)."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue, trim

from ombus_streams.memory.coverage import is_eligible
from ombus_streams.memory.serialize import entry_json, serialize_entries
from ombus_streams.memory.window import render_window

DEFAULT_LIMIT: Final = 20
MAX_LIMIT: Final = 100

Direction = Literal["forward", "backward"]
Refusal = Literal["invalid_cursor", "limit_exceeded", "cursor_not_found", "cursor_not_message"]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some messages, oldest first, the cursor's own among them."""

    cursor: str
    direction: Direction
    limit: int
    entries: tuple[Entry, ...]
    next_cursor: str | None
    """Where to go on; at the oldest page it points to the other side, as the reference's does."""
    prev_cursor: str | None
    text: str


class NoPage(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no page."""

    cursor: str
    direction: Direction
    limit: JsonValue
    """The limit that was asked for; 0 before it was looked at."""
    reason: Refusal
    text: str


def page(
    entries: Sequence[Entry],
    cursor: JsonValue,
    limit: JsonValue | UnsetType = UNSET,
    direction: JsonValue = None,
    detail: JsonValue = None,
    secrets: Sequence[str] = (),
) -> Page | NoPage:
    """Return up to ``limit`` messages that end at the cursor, or ``forward`` from it.

    Arguments come from a model: any JSON value is answered. ``detail`` ``full`` shows serialised
    entries, anything else the lines of the recent window.
    """
    way: Direction = "forward" if direction == "forward" else "backward"
    at = trim(cursor) if isinstance(cursor, str) else ""
    if not at:
        return _refused("", way, 0, "invalid_cursor")
    count = _whole(DEFAULT_LIMIT if limit is UNSET else limit)
    if count is None:
        shown = 0 if limit is UNSET or limit is None else limit
        return _refused(at, way, shown, "limit_exceeded")
    asked = next((entry for entry in entries if entry.id == at), None)
    if asked is None:
        return _refused(at, way, count, "cursor_not_found")
    if not is_eligible(asked):
        return _refused(at, way, count, "cursor_not_message")
    messages = [entry for entry in entries if is_eligible(entry)]
    place = next(i for i, entry in enumerate(messages) if entry.id == at)
    start = place if way == "forward" else max(0, place + 1 - count)
    end = min(len(messages), place + count) if way == "forward" else place + 1
    shown_entries = tuple(messages[start:end])
    before = messages[start - 1].id if start > 0 else None
    after = messages[end].id if end < len(messages) else None
    if detail == "full":
        text = serialize_entries(shown_entries, secrets)
    else:
        text = render_window(shown_entries, secrets)
    return Page(
        cursor=at,
        direction=way,
        limit=count,
        entries=shown_entries,
        next_cursor=before if way == "backward" and start > 0 else after,
        prev_cursor=after if way == "forward" and end < len(messages) else before,
        text=text or "none",
    )


def page_json(result: Page | NoPage) -> JsonObject:
    """Return the answer as a tool gives it."""
    value: JsonObject = {
        "found": isinstance(result, Page),
        "cursor": result.cursor,
        "direction": result.direction,
        "limit": result.limit,
        "entries": [],
    }
    if isinstance(result, NoPage):
        return value | {"reason": result.reason, "text": result.text}
    value["entries"] = [entry_json(entry) for entry in result.entries]
    if result.next_cursor is not None:
        value["nextCursor"] = result.next_cursor
    if result.prev_cursor is not None:
        value["prevCursor"] = result.prev_cursor
    return value | {"text": result.text}


_WORDS: Final[dict[Refusal, str]] = {
    "invalid_cursor": "A cursor is the id of a message: give one that a page or a source names.",
    "limit_exceeded": f"A page holds 1 to {MAX_LIMIT} messages: ask for a limit within that.",
    "cursor_not_found": "No entry of this branch has the cursor's id.",
    "cursor_not_message": "The cursor names an entry that is no message of the conversation.",
}


def _refused(cursor: str, way: Direction, limit: JsonValue, reason: Refusal) -> NoPage:
    return NoPage(cursor=cursor, direction=way, limit=limit, reason=reason, text=_WORDS[reason])


def _whole(limit: JsonValue) -> int | None:
    """Return ``limit`` as the whole number it is, or nothing outside 1 to ``MAX_LIMIT``."""
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        return None
    return int(limit) if 1 <= limit <= MAX_LIMIT and limit == int(limit) else None
