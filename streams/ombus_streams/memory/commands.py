"""What a person asks of the memory: ``om:status`` and ``om:view`` (S22)."""

from collections.abc import Sequence, Set
from typing import Final

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import Observation, Reflection
from ombus_schemas.settings import MemorySettings

from ombus_streams.memory.errors import MemoryFault
from ombus_streams.memory.ledger import Ledger, active, blocks_observation, blocks_reflection
from ombus_streams.memory.projection import project
from ombus_streams.memory.render import render_memory
from ombus_streams.memory.shared import SharedMemory, join
from ombus_streams.memory.tokens import branch_tokens, item_tokens

STATUS: Final = "om:status"
VIEW: Final = "om:view"
USAGE: Final = "Usage: /om:view [full]"


class NoSession(MemoryFault):
    """A command was given outside a session."""


class Status(msgspec.Struct, kw_only=True, frozen=True):
    """Counts of one branch."""

    n_recorded: int
    n_dropped: int
    """Dropped ids, those that nobody recorded among them."""
    n_active: int
    n_visible: int
    n_reflections: int
    n_visible_reflections: int
    raw_tokens: int | float
    pool_tokens: int | float
    pool_target_tokens: int | float
    pool_max_tokens: int | float
    runtime: JsonObject


class View(msgspec.Struct, kw_only=True, frozen=True):
    """The memory as a person reads it."""

    mode: str
    n_observations: int
    n_reflections: int
    text: str


class BadMode(msgspec.Struct, kw_only=True, frozen=True):
    """The mode is neither absent nor ``full``."""

    message: str = USAGE


def status(
    entries: Sequence[Entry],
    session_id: str | None,
    settings: MemorySettings | None = None,
    runtime: JsonObject | None = None,
) -> Status:
    """Return what is recorded, dropped, active and visible; raises ``NoSession`` without an id."""
    _require_session(session_id, STATUS)
    context = (settings or MemorySettings()).context
    projection = project(entries)
    pool = active(projection.full)
    return Status(
        n_recorded=len(projection.full.observations),
        n_dropped=len(projection.full.dropped_ids),
        n_active=len(pool),
        n_visible=len(projection.observations),
        n_reflections=len(projection.full.reflections),
        n_visible_reflections=len(projection.reflections),
        raw_tokens=branch_tokens(entries),
        pool_tokens=item_tokens(pool),
        pool_target_tokens=context.observations_pool_target_tokens,
        pool_max_tokens=context.observations_pool_max_tokens,
        runtime={"inFlight": False} if runtime is None else runtime,
    )


def status_json(found: Status) -> JsonObject:
    """Return the value of the command."""
    return {
        "observations": {
            "recorded": found.n_recorded,
            "dropped": found.n_dropped,
            "active": found.n_active,
            "visible": found.n_visible,
        },
        "reflections": {
            "recorded": found.n_reflections,
            "visible": found.n_visible_reflections,
        },
        "tokens": {
            "raw": found.raw_tokens,
            "activeObservationPool": found.pool_tokens,
            "observationsPoolTarget": found.pool_target_tokens,
            "observationsPoolMax": found.pool_max_tokens,
        },
        "runtime": found.runtime,
    }


def status_text(found: Status) -> str:
    """Return the three lines a person reads."""
    error = found.runtime.get("lastError")
    running = "running" if found.runtime.get("inFlight") is True else "idle"
    return "\n".join(
        (
            f"Observations: {found.n_recorded:,} recorded, {found.n_dropped:,} dropped, "
            f"{found.n_active:,} active, {found.n_visible:,} visible. Reflections: "
            f"{found.n_reflections:,} recorded, {found.n_visible_reflections:,} visible.",
            f"Tokens: {found.raw_tokens:,} in the branch, {found.pool_tokens:,} in the pool "
            f"(target {found.pool_target_tokens:,}, at most {found.pool_max_tokens:,}).",
            f"Workers: {running}" + (f", last error: {error}" if error else ""),
        )
    )


def view(
    entries: Sequence[Entry],
    session_id: str | None,
    mode: JsonValue = None,
    secrets: Sequence[str] = (),
    invalidated_ids: Set[str] = frozenset(),
    shared: SharedMemory | None = None,
) -> View | BadMode:
    """Return the visible memory, or all that is active with ``full``; never by scope.

    Anything but a text counts as no mode. Raises ``NoSession`` without a session id.
    """
    _require_session(session_id, VIEW)
    asked = mode if isinstance(mode, str) else "visible"
    if isinstance(mode, str) and mode not in ("", "full"):
        return BadMode()
    projection = project(entries, None, invalidated_ids)
    observations: Sequence[Observation] = projection.observations
    reflections: Sequence[Reflection] = projection.reflections
    if asked == "full":
        observations, reflections = _full(projection.full, invalidated_ids)
    elif shared is not None:
        joined = join(projection, shared, invalidated_ids)
        observations, reflections = active(joined), joined.reflections
    return View(
        mode=asked,
        n_observations=len(observations),
        n_reflections=len(reflections),
        text=render_memory(observations, reflections, secrets=secrets),
    )


def view_json(found: View) -> JsonObject:
    """Return the value of the command."""
    return {
        "mode": found.mode,
        "observations": found.n_observations,
        "reflections": found.n_reflections,
        "text": found.text,
    }


def _full(
    ledger: Ledger, invalidated_ids: Set[str]
) -> tuple[Sequence[Observation], Sequence[Reflection]]:
    hit = {item.id for item in ledger.observations if blocks_observation(invalidated_ids, item)}
    blocking = hit | invalidated_ids
    return (
        [item for item in active(ledger) if item.id not in hit],
        [item for item in ledger.reflections if not blocks_reflection(blocking, item)],
    )


def _require_session(session_id: str | None, command: str) -> None:
    if not session_id:
        raise NoSession(f"{command} needs a session: open one, or name it")
