"""The default compaction: older entries as plain lines, no memory involved (S23.1)."""

from collections.abc import Sequence
from typing import Final

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue, json_text, utf16_length

from ombus_streams.memory.redact import cut_utf16, redact_text
from ombus_streams.memory.window import KEEP_RECENT, window_ids

NAME: Final = "default-compaction"
MAX_SUMMARY_UNITS: Final = 4_000
"""UTF-16 units of a summary; 0 means no limit."""
NOTHING_TO_SUMMARISE: Final = "There is nothing before the kept messages."
ELLIPSIS: Final = "…"


class Compacted(msgspec.Struct, kw_only=True, frozen=True):
    """A compaction ready to be appended."""

    name: str
    summary: str
    data: JsonObject
    parent_id: str | None
    """The last entry of the branch; ``None`` for an empty one."""


class Cut(msgspec.Struct, kw_only=True, frozen=True):
    """Where a branch is cut: what stays as it is and what is summed up."""

    keep_ids: tuple[str, ...]
    through_id: str | None
    """The last entry that is summed up; ``None`` when nothing is."""
    first_kept_id: str | None
    older: tuple[Entry, ...]


def cut(entries: Sequence[Entry], keep_ids: Sequence[str]) -> Cut:
    """Return the cut just before the first kept entry; after the last one if none is kept."""
    kept = frozenset(keep_ids)
    place = next((i for i, entry in enumerate(entries) if entry.id in kept), len(entries))
    older = tuple(entries[:place])
    return Cut(
        keep_ids=tuple(keep_ids),
        through_id=older[-1].id if older else None,
        first_kept_id=entries[place].id if place < len(entries) else None,
        older=older,
    )


def summarise(
    entries: Sequence[Entry],
    keep_recent: int | float | None = None,
    trigger: str | None = None,
    secrets: Sequence[str] = (),
    max_units: int = MAX_SUMMARY_UNITS,
    name: str = NAME,
) -> Compacted:
    """Return the compaction of everything before the last ``keep_recent`` messages.

    Redacted first, then cut to whole characters with an ellipsis (design.md section 12, rows 1
    and 10).
    """
    keep = max(0, KEEP_RECENT if keep_recent is None else keep_recent)
    place = cut(entries, window_ids(entries, keep))
    lines = [line for entry in place.older if (line := _line(entry)) is not None]
    text = redact_text("\n".join(lines) or NOTHING_TO_SUMMARISE, secrets)
    if 0 < max_units < utf16_length(text):
        text = cut_utf16(text, max_units - 1) + ELLIPSIS
    return Compacted(
        name=name,
        summary=text,
        data=compaction_data(place, name, trigger),
        parent_id=entries[-1].id if entries else None,
    )


def compaction_data(place: Cut, strategy: str, trigger: str | None) -> JsonObject:
    """Return ``data`` of a compaction without memory, absent members left out."""
    data: JsonObject = {}
    if place.through_id is not None:
        data["throughEntryId"] = place.through_id
    data["keepEntryIds"] = list(place.keep_ids)
    data["strategy"] = strategy
    if trigger is not None:
        data["trigger"] = trigger
    return data


def should_auto_compact(
    entries: Sequence[Entry], threshold_entries: int, has_compacted: bool
) -> bool:
    """Say whether a run compacts by itself: once, above the threshold, never twice in a row."""
    if has_compacted or len(entries) <= threshold_entries:
        return False
    return not entries or entries[-1].kind != "compaction"


def _line(entry: Entry) -> str | None:
    if entry.kind == "message" and entry.message is not None:
        parts = [_block_text(block) for block in entry.message.content]
        return f"{entry.message.role}: {' '.join(part for part in parts if part)}"
    if entry.kind == "summary" and entry.summary:
        return f"summary: {entry.summary}"
    if entry.kind == "model_change" and entry.model is not None:
        return f"model changed to {_shown(entry.model, 'provider')}/{_shown(entry.model, 'model')}"
    if entry.kind == "label" and entry.label:
        return f"label: {entry.label}"
    return None


def _block_text(block: JsonObject) -> str:
    match block.get("type"):
        case "text" | "thinking":
            text = block.get("text")
            return text if isinstance(text, str) else ""
        case "tool_call" | "tool_result" as kind:
            return f"[{kind} {_shown(block, 'name')}]"
        case "tool_call_delta":
            key = "index" if block.get("name") is None else "name"
            return f"[tool_call_delta {_shown(block, key)}]"
        case "image" | "audio" | "file" | "document" as kind:
            return f"[{kind}]"
        case _:
            return "[content]"


def _shown(holder: JsonObject, key: str) -> str:
    if key not in holder:
        return "undefined"
    value: JsonValue = holder[key]
    return value if isinstance(value, str) else json_text(value)
