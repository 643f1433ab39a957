"""What a parent hears of a child: chosen by policy, concealed, capped, coalesced (S23.2).

A fold of the child's own entries: its first one names parent, delegation and policy, windows run by
append time, and the id of every event follows from the entry it tells of. So a refold says the same
again, and whoever listens keeps each event once.

Every event that the policy asks for is delivered, counted in a coalesced marker, or counted behind
the capped one; ``closed`` sums them up when the child's agent ends.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from ombus_schemas.bodies import data_of
from ombus_schemas.concealment import conceal
from ombus_schemas.entries import SCHEMA_VERSION, Entry
from ombus_schemas.ids import RUN_ID_DIGITS, hash_parts, result_entry_id
from ombus_schemas.jsontext import JsonObject, json_text, utf16_length
from ombus_schemas.supervision import (
    ChildEvent,
    ChildEventsCapped,
    ChildEventsClosed,
    ChildEventsCoalesced,
    ChildMilestone,
    Delegation,
    ReportPolicy,
    SupervisionEvent,
    delegation_of,
)

from ombus_streams.supervision.child_events import LIFE, TOOLS, Told, child_events
from ombus_streams.supervision.limits import DEFAULT, HARD

WORKER: Final = "milestones"
WINDOW_MS: Final = 1_000
SESSION_SUFFIX: Final = "-session"


class Telling(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """One child's state, a row of bounded size; ``told`` moves it in place."""

    delegation: Delegation
    session_id: str
    tenant_id: str
    told: Told = msgspec.field(default_factory=Told)
    is_begun: bool = False
    window_ms: int = -1
    """Where the window began; -1: none yet."""
    n_in_window: int = 0
    n_pending: int = 0
    """Coalesced since the last marker."""
    is_capped: bool = False
    n_offered: int = 0
    n_delivered: int = 0
    n_coalesced: int = 0
    n_capped: int = 0


def telling_of(entry: Entry) -> Telling | None:
    """Return the state that the first entry of a session opens, or ``None`` if it is no child's.

    A session that names a delegation under another id than that delegation gives its child is
    nobody's child: nobody can speak for a child whose session is not theirs.
    """
    delegation = delegation_of(entry)
    if delegation is None or entry.session_id != delegation.delegation_id + SESSION_SUFFIX:
        return None
    return Telling(delegation=delegation, session_id=entry.session_id, tenant_id=entry.tenant_id)


def tell(
    state: Telling, entry: Entry, ordinal: int, at_ms: int, secrets: Sequence[str] = ()
) -> list[Entry]:
    """Return what the parent hears of this entry, moving ``state``.

    ``ordinal``: the entry's place in its session. ``at_ms``: its append time.
    """
    policy = state.delegation.policy
    is_first, state.is_begun = not state.is_begun, True
    heard: list[SupervisionEvent] = []
    is_over = False
    for event in child_events(state.told, entry, is_first=is_first):
        is_over = is_over or event["type"] == "agent_finished"
        if is_asked_for(policy, event):
            _offer(state, conceal_event(event, secrets), at_ms, heard)
    if is_over and policy.report != "on-complete":
        _mark_coalesced(state, heard)
        heard.append(
            ChildEventsClosed(
                child_id=state.delegation.child_id,
                delegation_id=state.delegation.delegation_id,
                offered=state.n_offered,
                delivered=state.n_delivered,
                coalesced=state.n_coalesced,
                capped=state.n_capped,
            )
        )
    return [_entry(state, entry, event, ordinal, n) for n, event in enumerate(heard)]


def is_asked_for(policy: ReportPolicy, event: JsonObject) -> bool:
    """Say whether a policy wants an event: S23.2's pump."""
    name = str(event["type"])
    if policy.report == "on-complete":
        return False
    if policy.report == "stream":
        return True
    if policy.every_turns is None and not policy.when:
        return name in LIFE or name in TOOLS
    turn, every = event.get("turn"), policy.every_turns
    if name == "turn_started" and every and isinstance(turn, int) and turn % every == 0:
        return True
    return name in policy.when or f"{name}:{event.get('toolName')}" in policy.when


def conceal_event(event: JsonObject, secrets: Sequence[str]) -> JsonObject:
    """Return ``event`` without known secrets and secret shapes; its type is ours."""
    concealed = conceal({key: event[key] for key in event if key != "type"}, secrets)
    assert isinstance(concealed, dict)
    return {"type": event["type"], **concealed}


def limit_of(delegation: Delegation, name: str) -> int:
    """Return the effective limit of that name; what is named can only be below the hard one."""
    return min(delegation.limits.get(name, DEFAULT[name]), HARD[name])


def _offer(state: Telling, event: JsonObject, at_ms: int, heard: list[SupervisionEvent]) -> None:
    delegation = state.delegation
    max_events = limit_of(delegation, "childEvents")
    max_per_second = limit_of(delegation, "childEventsPerSecond")
    state.n_offered += 1
    if state.is_capped:
        state.n_capped += 1
        return
    is_large = utf16_length(json_text(event)) > limit_of(delegation, "childEventBytes")
    if is_large or state.n_delivered >= max_events:
        state.is_capped = True
        state.n_capped += 1
        _mark_coalesced(state, heard)
        heard.append(
            ChildEventsCapped(
                child_id=delegation.child_id,
                delegation_id=delegation.delegation_id,
                max_child_events=max_events,
            )
        )
        return
    if state.window_ms < 0 or at_ms >= state.window_ms + WINDOW_MS:
        state.window_ms, state.n_in_window = at_ms, 0
    if state.n_in_window >= max_per_second:
        state.n_pending += 1
        state.n_coalesced += 1
        return
    state.n_in_window += 1
    state.n_delivered += 1
    _mark_coalesced(state, heard)
    heard.append(_delivered(state, event))


def _delivered(state: Telling, event: JsonObject) -> SupervisionEvent:
    child_id, delegation_id = state.delegation.child_id, state.delegation.delegation_id
    if state.delegation.policy.report == "stream":
        return ChildEvent(child_id=child_id, delegation_id=delegation_id, child_event=event)
    return ChildMilestone(
        child_id=child_id, delegation_id=delegation_id, turn=state.told.turn, child_event=event
    )


def _mark_coalesced(state: Telling, heard: list[SupervisionEvent]) -> None:
    if state.n_pending:
        heard.append(
            ChildEventsCoalesced(
                child_id=state.delegation.child_id,
                delegation_id=state.delegation.delegation_id,
                dropped=state.n_pending,
                max_per_second=limit_of(state.delegation, "childEventsPerSecond"),
            )
        )
        state.n_pending = 0


def _entry(state: Telling, cause: Entry, event: SupervisionEvent, ordinal: int, n: int) -> Entry:
    placed = msgspec.structs.replace(
        event,
        depth=state.delegation.depth,
        child_session_id=state.session_id,
        child_ordinal=ordinal,
        n=n,
    )
    place = hash_parts(state.tenant_id, state.session_id, str(ordinal), str(n))
    return Entry(
        id=result_entry_id(WORKER, place[:RUN_ID_DIGITS]),
        session_id=state.delegation.parent_session_id,
        tenant_id=state.tenant_id,
        parent_id=None,
        timestamp=cause.timestamp,
        kind="event",
        schema_version=SCHEMA_VERSION,
        data=data_of(placed),
        origin="worker",
    )
