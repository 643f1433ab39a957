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
_LARGE_BYTES: Final = 1024 * 1024
"""A larger row is looked at without decoding it."""
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
    objects: list[JsonObject] = []
    first: Row | None = None
    n_continued = n_rows = 0
    opens = False
    for row in rows_of(file):
        if row.size == 0:
            continue
        n_rows += 1
        if n_rows > _LOOKED_AT:
            break
        value, is_bad = _value(file, row)
        if first is None:
            first = row
            opens = isinstance(value, list) or (is_bad and _starts(file, row, b"{["))
        if isinstance(value, dict):
            objects.append(value)
        n_continued += is_bad and _ends(file, row, b",{[")
    if first is not None and opens and (n_continued > len(objects) or not objects):
        document = _of_document(file, first.offset)
        if objects or n_continued or n_rows == 1 or document.is_sure:
            return Detected(document.name, document.layout)
    documents: Counter[FormatName] = Counter(
        name for value in objects if (name := by_lists(value)) is not None
    )
    votes: Counter[FormatName] = Counter(
        vote for value in objects if (vote := _vote(value)) is not None
    )
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


def _value(file: IO[bytes], row: Row) -> tuple[JsonValue, bool]:
    """Return a row's value, and whether it is bad; of a large one what its small parts say."""
    if row.size > _LARGE_BYTES:
        document = read_document(file, row.offset, row.offset + row.size)
        seen: JsonObject = {**document.facts, **{key: [] for key in document.lists}}
        return seen, not seen
    try:
        return read_row(file, row), False
    except BadRow:
        return None, True


def _starts(file: IO[bytes], row: Row, characters: bytes) -> bool:
    file.seek(row.offset)
    return file.read(64).lstrip()[:1] in tuple(bytes((one,)) for one in characters)


def _ends(file: IO[bytes], row: Row, characters: bytes) -> bool:
    """Say whether a bad row ends like a line within a document."""
    if row.size < 0:
        return False
    file.seek(row.offset + max(0, row.size - 64))
    return file.read(min(row.size, 64)).rstrip()[-1:] in tuple(bytes((c,)) for c in characters)


class _Document(msgspec.Struct, frozen=True):
    name: FormatName
    layout: Layout
    is_sure: bool


def _of_document(file: IO[bytes], start: int) -> _Document:
    end = file.seek(0, 2)
    document = read_document(file, start, end)
    for key, name in _LISTS:
        if key in document.lists:
            return _Document(name, "one_document", True)
    for row in document.lists.get("", ())[:_LOOKED_AT]:
        value, _ = _value(file, row)
        if not isinstance(value, dict):
            continue
        by_list = by_lists(value)
        if by_list is not None:
            return _Document(by_list, "document_an_element", True)
        if "action" in value or "observation" in value:
            return _Document("openhands", "one_document", True)
        break
    return _Document("messages", "one_document", False)


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
