"""Which tool result answers which call (design.md section 8).

A result pairs with the nearest earlier call of its id that has no result yet. A result without its
call is never shown; a call without its result says so.
"""

from collections.abc import Iterable, Sequence, Set
from typing import Final

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject

Place = tuple[int, int]
"""Index of an entry and of a block in its message."""

NO_RESULT_YET: Final = "[no result yet]"


class Pairs(msgspec.Struct, kw_only=True, frozen=True):
    """The pairing of one branch."""

    call_by_result: dict[Place, Place]
    open_calls: frozenset[Place]
    orphans: frozenset[Place]
    """Results that answer no call."""


def pair(entries: Sequence[Entry]) -> Pairs:
    """Return how the results of a branch pair with its calls."""
    waiting: dict[str, list[Place]] = {}
    call_by_result: dict[Place, Place] = {}
    orphans: set[Place] = set()
    for i, entry in enumerate(entries):
        for b, block in enumerate(_blocks(entry)):
            match block.get("type"):
                case "tool_call":
                    waiting.setdefault(str(block.get("id")), []).append((i, b))
                case "tool_result":
                    calls = waiting.get(str(block.get("toolCallId")))
                    if calls:
                        call_by_result[i, b] = calls.pop()
                    else:
                        orphans.add((i, b))
    return Pairs(
        call_by_result=call_by_result,
        open_calls=frozenset(place for calls in waiting.values() for place in calls),
        orphans=frozenset(orphans),
    )


def closure(entries: Sequence[Entry], kept: Iterable[int]) -> frozenset[int]:
    """Return ``kept`` and what it takes so that every kept call and result has its other half."""
    partners: dict[int, set[int]] = {}
    for result, call in pair(entries).call_by_result.items():
        partners.setdefault(result[0], set()).add(call[0])
        partners.setdefault(call[0], set()).add(result[0])
    closed: set[int] = set()
    todo = list(kept)
    while todo:
        at = todo.pop()
        if at not in closed:
            closed.add(at)
            todo.extend(partners.get(at, ()))
    return frozenset(closed)


def shown(entries: Sequence[Entry], chosen: Set[int]) -> tuple[dict[int, Entry], tuple[Entry, ...]]:
    """Return the chosen entries as they may be shown, by index, and those that lost a result.

    Results whose call is not chosen are taken out block by block, an entry that holds nothing
    else with them; a call without a chosen result is marked.
    """
    pairs = pair(entries)
    answered = {call for result, call in pairs.call_by_result.items() if result[0] in chosen}
    kept: dict[int, Entry] = {}
    robbed: list[Entry] = []
    for i in sorted(chosen):
        entry = entries[i]
        blocks: list[JsonObject] = []
        for b, block in enumerate(_blocks(entry)):
            if block.get("type") == "tool_result":
                call = pairs.call_by_result.get((i, b))
                if call is None or call[0] not in chosen:
                    continue
            blocks.append(block)
            if block.get("type") == "tool_call" and (i, b) not in answered:
                blocks.append({"type": "text", "text": NO_RESULT_YET})
        n_before = len(_blocks(entry))
        n_results = sum(block.get("type") == "tool_result" for block in blocks)
        n_results_before = sum(block.get("type") == "tool_result" for block in _blocks(entry))
        if n_results < n_results_before:
            robbed.append(entry)
        if (blocks or not n_before) and entry.message is not None:
            message = msgspec.structs.replace(entry.message, content=blocks)
            kept[i] = msgspec.structs.replace(entry, message=message)
    return kept, tuple(robbed)


def paired(messages: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return messages as a model may be given them again: each call with its result.

    Open calls and results without a call are left out block by block, and so is a message that
    holds nothing else.
    """
    pairs = pair(messages)
    alone = pairs.open_calls | pairs.orphans
    kept: list[Entry] = []
    for i, entry in enumerate(messages):
        blocks = [block for b, block in enumerate(_blocks(entry)) if (i, b) not in alone]
        if entry.message is not None and (blocks or not _blocks(entry)):
            message = msgspec.structs.replace(entry.message, content=blocks)
            kept.append(msgspec.structs.replace(entry, message=message))
    return tuple(kept)


def _blocks(entry: Entry) -> list[JsonObject]:
    return entry.message.content if entry.message is not None else []
