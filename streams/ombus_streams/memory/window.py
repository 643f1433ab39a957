"""The recent-message window: which entries are in it, and how they read (S10)."""

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Final

from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue, json_text

from ombus_streams.memory.redact import cut_utf8, redact_rendered, redacted_json_text
from ombus_streams.memory.tokens import entry_tokens

KEEP_RECENT: Final = 8
MAX_BYTES: Final = 524_288
"""Cap of a rendered window."""


def window_ids(entries: Iterable[Entry], keep: float) -> tuple[str, ...]:
    """Return the ids of the last ``keep`` message entries of any role, in branch order.

    Zero and less keep none; a fraction is cut off, and one below 1 then keeps all, as the
    reference does.
    """
    ids = tuple(entry.id for entry in entries if _is_message(entry))
    if keep <= 0:
        return ()
    count = int(keep) if isfinite(keep) else 0
    return ids[-count:] if count else ids


def window_entries(
    entries: Sequence[Entry], keep_recent: float | None = None, max_tokens: float | None = None
) -> tuple[Entry, ...]:
    """Return the entries in the window, oldest left out until they weigh ``max_tokens`` at most.

    Selection is by id, so an entry that repeats a chosen id is chosen too. May become empty.
    """
    chosen = frozenset(window_ids(entries, KEEP_RECENT if keep_recent is None else keep_recent))
    window = tuple(entry for entry in entries if entry.id in chosen)
    if max_tokens is None:
        return window
    weights = [entry_tokens(entry) for entry in window]
    total, first = sum(weights), 0
    while first < len(window) and total > max_tokens:
        total -= weights[first]
        first += 1
    return window[first:]


def render_window(
    entries: Iterable[Entry], secrets: Sequence[str] = (), max_bytes: float = MAX_BYTES
) -> str:
    """Return one ``[<id>] <role>: <parts>`` per message entry, redacted, then cut (row 1)."""
    lines = [_line(entry, secrets) for entry in entries if _is_message(entry)]
    return cut_utf8(redact_rendered("\n".join(lines), secrets), max_bytes)


def block_text(block: JsonObject, secrets: Sequence[str] = ()) -> str:
    """Return a content block as the window shows it; arguments and results are redacted JSON."""
    match block.get("type"):
        case "text" | "thinking":
            text = block.get("text")
            return text if isinstance(text, str) else "" if text is None else json_text(text)
        case "tool_call":
            arguments = _json(block, "arguments", secrets)
            return f"[tool_call {_printed(block, 'name')} {arguments}]"
        case "tool_call_delta":
            key = "index" if block.get("name") is None else "name"
            return f"[tool_call_delta {_printed(block, key)}]"
        case "tool_result":
            shown = "error" if _is_truthy(block.get("error")) else "result"
            return f"[tool_result {_printed(block, 'name')} {_json(block, shown, secrets)}]"
        case "image" | "file" as kind:
            named = _is_truthy(block.get("name"))
            return f"[{kind} {_printed(block, 'name')}]" if named else f"[{kind}]"
        case "audio" | "document" as kind:
            return f"[{kind}]"
        case _:
            return "[content]"


def _is_message(entry: Entry) -> bool:
    return entry.kind == "message" and entry.message is not None


def _line(entry: Entry, secrets: Sequence[str]) -> str:
    if entry.message is None:
        return ""
    parts = [block_text(block, secrets) for block in entry.message.content]
    return f"[{entry.id}] {entry.message.role}: {' '.join(part for part in parts if part)}"


def _json(block: JsonObject, key: str, secrets: Sequence[str]) -> str:
    return redacted_json_text(block[key], secrets) if key in block else "undefined"


def _printed(block: JsonObject, key: str) -> str:
    """Return the member as JavaScript prints it in a text."""
    if key not in block:
        return "undefined"
    value = block[key]
    return value if isinstance(value, str) else json_text(value)


def _is_truthy(value: JsonValue) -> bool:
    """Say what JavaScript says: empty lists and objects are true."""
    return isinstance(value, list | dict) or bool(value)
