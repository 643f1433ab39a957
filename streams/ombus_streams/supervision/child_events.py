"""What an entry of a child says happened: agent, turn and tool events, never message text.

A host may publish its agent's events as ``event`` entries; what it does not say follows from the
messages: a turn is what the assistant says at a stretch, calls start tools, results finish them.
Only the members named here leave the session, and words are cut (S23.2).
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from ombus_schemas.bodies import MAX_COUNT
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue

from ombus_streams.memory.redact import cut_utf16

MAX_WORD_UNITS: Final = 256
"""UTF-16 units of one member of an event."""
MAX_TOLD: Final = 64
"""Calls remembered, so that a message and the host's own event of it are one."""

LIFE: Final = frozenset({"agent_started", "agent_finished", "agent_suspended", "agent_denied"})
TOOLS: Final = frozenset(
    {
        "tool_execution_started",
        "tool_execution_finished",
        "tool_execution_error",
        "tool_execution_blocked",
    }
)
TURNS: Final = frozenset(
    {"turn_started", "turn_finished", "provider_turn_started", "provider_turn_finished"}
)
_WORDS: Final = ("toolName", "toolCallId", "status", "reason", "stopReason", "limit", "error")
_COUNTS: Final = ("turn", "attempt", "durationMs", "totalTokens", "exitCode")
_ENDS: Final = frozenset({"tool_execution_finished", "tool_execution_error"})
_RESULT_KEY_BY_NAME: Final[Mapping[str, str]] = MappingProxyType(
    {"tool_execution_started": "start", **dict.fromkeys(_ENDS, "end")}
)


class Told(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """What reading the next entry depends on; bounded, kept as part of a row."""

    turn: int = 0
    is_turn_open: bool = False
    is_speaking: bool = False
    """The last message was the assistant's."""
    says_turns: bool = False
    """The host tells of turns itself: its messages are none."""
    calls: list[str] = msgspec.field(default_factory=list)


def child_events(told: Told, entry: Entry, *, is_first: bool) -> Iterator[JsonObject]:
    """Yield the events of an entry in order, moving ``told``. Total: other content says nothing."""
    if is_first:
        yield {"type": "agent_started"}
    if entry.message is not None:
        yield from _of_message(told, entry)
        return
    said = entry.event if isinstance(entry.event, dict) else entry.data
    if entry.kind == "event" and isinstance(said, dict):
        yield from _of_event(told, said)


def _of_message(told: Told, entry: Entry) -> Iterator[JsonObject]:
    message = entry.message
    assert message is not None
    goes_on, told.is_speaking = told.is_speaking, message.role == "assistant"
    if told.is_speaking and not goes_on and not told.says_turns:
        if told.is_turn_open:
            yield {"type": "turn_finished", "turn": told.turn}
        told.turn += 1
        told.is_turn_open = True
        yield {"type": "turn_started", "turn": told.turn}
    for block in message.content:
        match block.get("type"):
            case "tool_call":
                found = _tool("tool_execution_started", block.get("id"), block.get("name"))
            case "tool_result":
                name = "tool_execution_error" if "error" in block else "tool_execution_finished"
                found = _tool(name, block.get("toolCallId"), block.get("name"))
            case _:
                continue
        if _is_news(told, found):
            yield found


def _of_event(told: Told, said: JsonObject) -> Iterator[JsonObject]:
    name = said.get("type")
    if not isinstance(name, str) or name not in LIFE | TOOLS | TURNS:
        return
    found = _shown(name, said)
    if name == "turn_started":
        told.says_turns = told.is_turn_open = True
        said_turn = found.get("turn")
        told.turn += 1
        if isinstance(said_turn, int) and said_turn >= 0:
            told.turn = said_turn
        found["turn"] = told.turn
    elif name == "turn_finished":
        told.is_turn_open = False
    elif name == "agent_finished" and told.is_turn_open:
        told.is_turn_open = False
        if not told.says_turns:
            yield {"type": "turn_finished", "turn": told.turn}
    if _is_news(told, found):
        yield found


def _shown(name: str, said: JsonObject) -> JsonObject:
    shown: JsonObject = {"type": name}
    for key in _WORDS:
        word = said.get(key)
        if isinstance(word, str):
            shown[key] = cut_utf16(word, MAX_WORD_UNITS)
    for key in _COUNTS:
        count = said.get(key)
        if isinstance(count, int) and not isinstance(count, bool) and abs(count) <= MAX_COUNT:
            shown[key] = count
    return shown


def _tool(name: str, call_id: JsonValue, tool: JsonValue) -> JsonObject:
    return _shown(name, {"toolName": tool, "toolCallId": call_id})


def _is_news(told: Told, event: JsonObject) -> bool:
    """Say whether this half of a call was not told of yet."""
    half, call_id = _RESULT_KEY_BY_NAME.get(str(event["type"])), event.get("toolCallId")
    if half is None or call_id is None:
        return True
    key = f"{half}:{call_id}"
    if key in told.calls:
        return False
    told.calls.append(key)
    del told.calls[:-MAX_TOLD]
    return True
