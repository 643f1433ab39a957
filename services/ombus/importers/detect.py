"""Which format a file has, by what is in its first rows; names of files say nothing."""

from collections import Counter
from typing import IO, Final, Literal, get_args

import msgspec
from ombus_schemas.jsontext import JsonObject, JsonValue

from ombus.importers.documents import read_document
from ombus.importers.lines import BadRow, Row, read_row, rows_of

FormatName = Literal[
    "pi",
    "claude-code",
    "ombus",
    "prism",
    "codex",
    "gemini",
    "messages",
    "swe-agent",
    "openhands",
    "anthropic-web",
]
FORMATS: Final[tuple[FormatName, ...]] = get_args(FormatName)
Layout = Literal["lines", "document_a_line", "one_document", "document_an_element"]

_LOOKED_AT: Final = 60
"""Rows that vote."""
_CLAUDE_ROWS: Final = ("summary", "file-history-snapshot", "queue-operation", "permission-mode")
_CODEX_ROWS: Final = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_CODEX_ITEMS: Final = (
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "local_shell_call",
    "reasoning",
)
_PI_ROWS: Final = (
    "custom_message",
    "compaction",
    "branch_summary",
    "custom",
    "model_change",
    "thinking_level_change",
    "label",
    "session_info",
)
_LISTS: Final[tuple[tuple[str, FormatName], ...]] = (
    ("loglines", "anthropic-web"),
    ("trajectory", "swe-agent"),
    ("history", "openhands"),
    ("messages", "messages"),
    ("contents", "messages"),
    ("conversations", "messages"),
    ("chat_messages", "messages"),
    ("conversation", "messages"),
)
"""Which list makes an object a document of which format, the strongest sign first."""


class Detected(msgspec.Struct, frozen=True):
    """A format and how the file carries its rows."""

    name: FormatName
    layout: Layout


def detect(file: IO[bytes]) -> Detected:
    """Return what the file holds. Total: what nobody knows is read as ``messages``."""
    values: list[JsonValue] = []
    rows: list[Row] = []
    for row in rows_of(file):
        if len(rows) >= _LOOKED_AT:
            break
        rows.append(row)
        try:
            values.append(read_row(file, row))
        except BadRow:
            continue
    objects = [value for value in values if isinstance(value, dict)]
    is_only_list = len(rows) == 1 and bool(values) and isinstance(values[0], list)
    if is_only_list or (_opens(file, rows) and len(objects) * 2 < len(rows)):
        return _of_document(file, rows[0].offset)
    documents = Counter(name for value in objects if (name := by_lists(value)) is not None)
    votes = Counter(name for value in objects if (name := _vote(value)) is not None)
    if documents and documents.total() > votes.total():
        return Detected(documents.most_common(1)[0][0], "document_a_line")
    if votes:
        return Detected(votes.most_common(1)[0][0], "lines")
    return Detected("messages", "lines")


def by_lists(value: JsonObject) -> FormatName | None:
    """Return the format of a document by the lists it has, or ``None`` if it is none."""
    for key, name in _LISTS:
        if isinstance(value.get(key), list):
            return name
    return None


def _opens(file: IO[bytes], rows: list[Row]) -> bool:
    """Say whether the file may be one document over several lines, or one that is too long."""
    if not rows:
        return False
    file.seek(rows[0].offset)
    if file.read(256).lstrip()[:1] not in (b"{", b"["):
        return False
    try:
        read_row(file, rows[0])
    except BadRow:
        return True
    return False


def _of_document(file: IO[bytes], start: int) -> Detected:
    end = file.seek(0, 2)
    document = read_document(file, start, end)
    for key, name in _LISTS:
        if key in document.lists:
            return Detected(name, "one_document")
    for row in document.lists.get("", ())[:_LOOKED_AT]:
        try:
            value = read_row(file, row)
        except BadRow:
            continue
        if isinstance(value, dict):
            name_by_lists = by_lists(value)
            if name_by_lists is not None:
                return Detected(name_by_lists, "document_an_element")
            if "action" in value or "observation" in value:
                return Detected("openhands", "one_document")
            break
    return Detected("messages", "one_document")


def _vote(value: JsonObject) -> FormatName | None:
    kind = value.get("type")
    if "kind" in value and "sessionId" in value and "id" in value:
        return "ombus" if "schemaVersion" in value and "tenantId" in value else "prism"
    if "uuid" in value or "parentUuid" in value or "leafUuid" in value or kind in _CLAUDE_ROWS:
        return "claude-code"
    if kind in _CODEX_ROWS and "payload" in value:
        return "codex"
    if kind in _CODEX_ITEMS or "record_type" in value or "instructions" in value:
        return "codex"
    if kind == "session" and "id" in value:
        return "pi"
    if kind in _PI_ROWS or "parentId" in value:
        return "pi"
    if kind == "message" and isinstance(value.get("message"), dict):
        return "pi"
    if (kind == "init" and "session_id" in value) or "tool_id" in value or "delta" in value:
        return "gemini"
    if kind == "message" and isinstance(value.get("content"), list) and "role" in value:
        return "codex"
    return None
