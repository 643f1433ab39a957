"""What an agent reads before it answers: its memory, and the messages that are not memory yet.

Two blocks (S11). Ours shows all active memory, and keeps in the window what no run has read; what
does not fit is named in a last line, so nothing is silently missing (design.md section 8). The
reference's rules are the options of section 12, rows 11, 12 and 19.
"""

from collections.abc import Sequence, Set
from typing import Final, Literal

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import utf8_length
from ombus_schemas.records import Observation, Reflection

from ombus_streams.memory import scopes
from ombus_streams.memory.ledger import Ledger
from ombus_streams.memory.pairing import shown
from ombus_streams.memory.payload import removal_order
from ombus_streams.memory.pending import (
    NOTICE_BYTES,
    PairRule,
    Window,
    notice,
    pending_window,
    span,
)
from ombus_streams.memory.redact import redact_text
from ombus_streams.memory.render import MAX_BYTES as MAX_MEMORY_BYTES
from ombus_streams.memory.render import (
    OutlineLine,
    observation_mark,
    reflection_mark,
    render_memory,
)
from ombus_streams.memory.scope_projection import project_scopes
from ombus_streams.memory.scopes import ScopeMap
from ombus_streams.memory.shared import SharedMemory, with_shared_refs
from ombus_streams.memory.visible import Alignment, visible
from ombus_streams.memory.window import MAX_BYTES as MAX_WINDOW_BYTES
from ombus_streams.memory.window import render_window, window_entries

MEMORY_TITLE: Final = "observational-memory"
MEMORY_PRIORITY: Final = 10
WINDOW_TITLE: Final = "recent-messages"
WINDOW_PRIORITY: Final = 9

WindowRule = Literal["pending", "recent"]
"""``pending``: the recent messages and all that no run has read. ``recent``: those alone."""

_MAX_CHARACTER_BYTES: Final = 4
_REFLECTION_SHARE: Final = 0.5
"""The part of the memory block that reflections may fill before they are trimmed."""


class Block(msgspec.Struct, kw_only=True, frozen=True):
    """One block of a prompt; the higher priority is kept longer."""

    title: str
    content: str
    priority: int


def blocks(
    entries: Sequence[Entry],
    keep_recent: float | None = None,
    max_tokens: float | None = None,
    secrets: Sequence[str] = (),
    invalidated_ids: Set[str] = frozenset(),
    shared: SharedMemory | None = None,
    window: WindowRule = "pending",
    alignment: Alignment = "active",
    pairs: PairRule = "closed",
) -> tuple[Block, ...]:
    """Return the memory block, always, and the recent messages if there are any.

    The bytes do not change while nothing changed. Nothing invalidated is in either block, unless
    the reference's window is asked for, which knows no invalidation.
    """
    if window == "recent":
        raw = window_entries(entries, keep_recent, max_tokens)
        boundary_id = raw[0].id if raw else None
        if pairs == "closed":
            raw = tuple(shown(raw, frozenset(range(len(raw))))[0].values())
        selected = Window(entries=raw)
    else:
        selected = pending_window(entries, keep_recent, max_tokens, invalidated_ids, pairs, secrets)
        boundary_id = selected.entries[0].id if selected.entries else None
    scope_map = scopes.fold(entries)
    shared = shared if scope_map.is_scoped else None  # the implicit scope is never shared (S11)
    held = visible(entries, invalidated_ids, shared, alignment, boundary_id)
    if shared is not None:
        scope_map = with_shared_refs(scope_map, shared)
    found = [memory_block(held, scope_map, secrets)]
    recent = window_block(selected, secrets)
    return (*found, recent) if recent is not None else tuple(found)


def memory_block(held: Ledger, scope_map: ScopeMap, secrets: Sequence[str] = ()) -> Block:
    """Return the block of the visible memory, of the current scope if there are scopes.

    Over the cap whole lines go: observations in removal order, reflections oldest first and only
    beyond their own share. The last line says what went.
    """
    observations: tuple[Observation, ...] = held.observations
    reflections: tuple[Reflection, ...] = held.reflections
    outline: tuple[OutlineLine, ...] = ()
    if scope_map.is_scoped:
        scoped = project_scopes(held, scope_map, scope_map.leaf, "self+ancestors")
        observations, reflections = scoped.observations, scoped.reflections
        outline = scoped.outline
    text = render_memory(observations, reflections, outline, secrets)
    if utf8_length(text) > MAX_MEMORY_BYTES - _MAX_CHARACTER_BYTES:  # it may have been cut
        text = _trimmed(observations, reflections, outline, secrets)
    return Block(title=MEMORY_TITLE, content=text, priority=MEMORY_PRIORITY)


def window_block(selected: Window, secrets: Sequence[str] = ()) -> Block | None:
    """Return the block of the recent messages with what is missing in its last line, or nothing."""
    notices = [notice(omission) for omission in selected.omissions]
    room = MAX_WINDOW_BYTES - sum(utf8_length(line) + 1 for line in notices)
    text = render_window(selected.entries, secrets, room)
    lines = [line for line in (text, *notices) if line]
    if not lines:
        return None
    return Block(title=WINDOW_TITLE, content="\n".join(lines), priority=WINDOW_PRIORITY)


def _size(
    observations: Sequence[Observation],
    reflections: Sequence[Reflection],
    outline: Sequence[OutlineLine],
    secrets: Sequence[str],
) -> int:
    frame = utf8_length(render_memory((), (), outline, secrets))
    n_observed = sum(_line_bytes(item, secrets) for item in observations)
    return frame + n_observed + sum(_line_bytes(item, secrets) for item in reflections)


def _line_bytes(item: Observation | Reflection, secrets: Sequence[str]) -> int:
    mark = observation_mark(item) if isinstance(item, Observation) else reflection_mark(item)
    return utf8_length(redact_text(item.content, secrets)) + len(item.id) + len(mark) + 6


def _trimmed(
    observations: Sequence[Observation],
    reflections: Sequence[Reflection],
    outline: Sequence[OutlineLine],
    secrets: Sequence[str],
) -> str:
    room = MAX_MEMORY_BYTES - NOTICE_BYTES - _size((), (), outline, secrets)
    share = int(room * _REFLECTION_SHARE)
    n_observed = sum(_line_bytes(item, secrets) for item in observations)
    n_reflected = sum(_line_bytes(item, secrets) for item in reflections)
    first = 0
    while first < len(reflections) and n_reflected > max(share, room - n_observed):
        n_reflected -= _line_bytes(reflections[first], secrets)
        first += 1
    gone: set[int] = set()
    for place in removal_order(observations):
        if n_observed + n_reflected <= room:
            break
        n_observed -= _line_bytes(observations[place], secrets)
        gone.add(place)
    kept = [item for i, item in enumerate(observations) if i not in gone]
    notices = []
    if first:
        ids = [item.id for item in reflections[:first]]
        notices.append(f"[not shown, over the budget: {span(ids, 'reflection')}]")
    if gone:
        ids = [observations[i].id for i in sorted(gone)]
        notices.append(f"[not shown, over the budget: {span(ids, 'observation')}]")
    text = render_memory(kept, reflections[first:], outline, secrets)
    return "\n".join((text, *notices))
