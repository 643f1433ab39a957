"""Delegations: events on ``ombus.supervision.events`` and what a child's first entry carries.

An event is an ``event`` entry keyed by the parent session whose ``data.type`` is the event's name
(design.md section 15); the names are those of S23.2. ``requested``, ``admitted`` and ``cancelled``
are added, since here a delegation is a sequence of facts; ``heartbeat``, ``closed``, lineages and
the parent's own life are ours, too. Events are read on that topic only: on a session's own log the
same names mean whatever its host meant.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from ombus_schemas.bodies import Body, Count, EntryId, KeyPart, read_as, tag_of
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject

Report = Literal["on-complete", "milestones", "stream"]
"""From the quietest to the loudest; a child may ask for less than its host allows."""
Lifetime = Literal["task", "session"]
Mode = Literal["sync", "async"]
OnLost = Literal["takeover", "fail"]
"""What becomes of a delegation whose child lost its lease."""

DELEGATION_KEY: Final = "delegation"
"""Where ``Entry.metadata`` of a child's first entry holds its delegation."""


class ReportPolicy(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """What a child tells its parent."""

    report: Report = "on-complete"
    every_turns: Count | None = None
    """A milestone at each turn whose number it divides."""
    when: tuple[str, ...] = ()
    """Milestones at whatever turn: names of child events, ``type`` or ``type:tool``."""


class Delegation(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """Who asked for this session, and what they want to hear of it.

    It stands in the child's first entry, so milestones fold from the child's log alone.
    """

    parent_session_id: KeyPart
    delegation_id: str
    child_id: str
    policy: ReportPolicy = ReportPolicy()
    depth: Count = 1
    limits: dict[str, Count] = msgspec.field(default_factory=dict)
    """Those of the request."""


class SupervisionEvent(Body, kw_only=True, frozen=True):
    """What every event of a delegation names. Deliveries repeat: the highest place wins."""

    child_id: str
    delegation_id: str
    depth: Count = 1
    resource_id: str | None = None
    thread_id: str | None = None
    child_session_id: KeyPart | None = None
    child_ordinal: Count | None = None
    """Ordinal of the child's entry this event was derived from; absent on the parent's own."""
    n: Count = 0
    """Place among the events of one child entry."""
    epoch: Count = 0
    """Of the lease of the child that speaks; 0 on what the host and the milestones say."""


class DelegationRequested(SupervisionEvent, tag="delegation_requested", kw_only=True, frozen=True):
    """The parent asks; the request's entry makes the delegation's id."""

    input: str
    """Redacted; empty when it is above the host's cap, so that a refusal holds no text."""
    request_entry_id: EntryId
    mode: Mode = "sync"
    lifetime: Lifetime = "task"
    policy: ReportPolicy = ReportPolicy()
    budget_share: float | None = None
    limits: dict[str, Count] = msgspec.field(default_factory=dict)
    """Limits by their name in S23.2 that this request lowers."""
    on_lost: OnLost = "takeover"
    input_bytes: Count | None = None
    """Of the redacted input, also when it is left out."""


class Permission(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """Which tools a child may call. Several are ANDed: the first denial wins (S23.2)."""

    allow: tuple[str, ...] | None = None
    """``None``: every tool that is not denied."""
    deny: tuple[str, ...] = ()


class DelegationAdmitted(SupervisionEvent, tag="delegation_admitted", kw_only=True, frozen=True):
    """The checks and the hook let it pass, and it holds a slot: a child may claim it."""

    lifetime: Lifetime = "task"
    policy: ReportPolicy = ReportPolicy()
    limits: dict[str, Count] = msgspec.field(default_factory=dict)
    """Effective limits by their name in S23.2."""
    input: str | None = None
    """What the hook put in place of the request's input."""
    permissions: tuple[Permission, ...] = ()


class DelegationStarted(SupervisionEvent, tag="delegation_started", kw_only=True, frozen=True):
    """A child claims it, under the lease ``epoch``; the log's order says whether it holds it."""

    holder: str = ""
    """The process, so that of two claims each sees whose came first."""
    lease_ms: Count = 0
    """Without a heartbeat for so long, by append time, the lease is lost."""


class DelegationHeartbeat(SupervisionEvent, tag="delegation_heartbeat", kw_only=True, frozen=True):
    """The holder of the lease ``epoch`` is alive."""


class DelegationRejected(SupervisionEvent, tag="delegation_rejected", kw_only=True, frozen=True):
    """A check or a hook refused it; no child ever ran."""

    reason: str
    """The check's name."""
    detail: str | None = None


class DelegationFinished(SupervisionEvent, tag="delegation_finished", kw_only=True, frozen=True):
    """The child is done."""

    status: str
    total_tokens: Count = 0
    output: str | None = None
    """Redacted and cut."""
    holder: str = ""
    """Who says so: it counts only if the lease is theirs."""


class DelegationError(SupervisionEvent, tag="delegation_error", kw_only=True, frozen=True):
    """The delegation ended with an error."""

    error: str
    holder: str = ""
    """The child's process; empty on what the host says."""


class DelegationCancelled(SupervisionEvent, tag="delegation_cancelled", kw_only=True, frozen=True):
    """The host ended it."""

    reason: str | None = None


class ChildFailed(SupervisionEvent, tag="child_failed", kw_only=True, frozen=True):
    """The child failed; comes before the error. Not for cancels, denials and hook rejections."""

    reason: str
    status: str | None = None
    limit: str | None = None
    stop_reason: str | None = None
    usage: JsonObject | None = None
    holder: str = ""
    """As in ``DelegationError``."""


class ChildEvent(SupervisionEvent, tag="delegation_child_event", kw_only=True, frozen=True):
    """One event of the child, for a parent that listens to the stream."""

    child_event: JsonObject


class ChildMilestone(SupervisionEvent, tag="child_milestone", kw_only=True, frozen=True):
    """Something of the child that its parent wants to know."""

    turn: Count
    child_event: JsonObject


class ChildEventsCapped(
    SupervisionEvent, tag="delegation_child_events_capped", kw_only=True, frozen=True
):
    """The last event of this child: what follows is above the cap."""

    max_child_events: Count


class ChildEventsCoalesced(
    SupervisionEvent, tag="delegation_child_events_coalesced", kw_only=True, frozen=True
):
    """So many events fell to the rate of one second."""

    dropped: Count
    max_per_second: Count


class LineageOpened(SupervisionEvent, tag="lineage_opened", kw_only=True, frozen=True):
    """First record under a child session's own key: what it inherits when it delegates itself."""

    parent_session_id: KeyPart
    path: tuple[str, ...] = ()
    """Child ids from the root to this session."""
    limits: dict[str, Count] = msgspec.field(default_factory=dict)


class LineageClosed(SupervisionEvent, tag="lineage_closed", kw_only=True, frozen=True):
    """The delegation this session works for has ended, under that session's own key."""

    reason: str


class ParentAlive(SupervisionEvent, tag="parent_alive", kw_only=True, frozen=True):
    """Whoever runs the parent session is alive; without another one for ``lease_ms`` it is not.

    A parent that never says so has no lease to lose.
    """

    child_id: str = ""
    delegation_id: str = ""
    holder: str = ""
    lease_ms: Count = 0


class ParentGone(SupervisionEvent, tag="parent_gone", kw_only=True, frozen=True):
    """The parent's run has ended, or its lease has: its task children end."""

    child_id: str = ""
    delegation_id: str = ""
    reason: str = ""
    after_ms: Count | None = None
    """Append time of the last sign of life that was seen; a later one makes this void."""


class ChildEventsClosed(
    SupervisionEvent, tag="delegation_child_events_closed", kw_only=True, frozen=True
):
    """The child's run ended; ``offered`` is the sum of the other three, since its first entry."""

    offered: Count
    delivered: Count
    coalesced: Count
    capped: Count


_TYPES: Final[tuple[type[SupervisionEvent], ...]] = (
    DelegationRequested,
    DelegationAdmitted,
    DelegationStarted,
    DelegationHeartbeat,
    DelegationRejected,
    DelegationFinished,
    DelegationError,
    DelegationCancelled,
    ChildFailed,
    ChildEvent,
    ChildMilestone,
    ChildEventsCapped,
    ChildEventsCoalesced,
    ChildEventsClosed,
    LineageOpened,
    LineageClosed,
    ParentAlive,
    ParentGone,
)
EVENT_TYPE_BY_NAME: Final[Mapping[str, type[SupervisionEvent]]] = MappingProxyType(
    {tag_of(kind): kind for kind in _TYPES}
)


def supervision_event_of(entry: Entry) -> SupervisionEvent | None:
    """Return the supervision event in an entry of that topic, or ``None``."""
    data = entry.data
    if entry.kind != "event" or not isinstance(data, dict):
        return None
    kind = EVENT_TYPE_BY_NAME.get(entry.data_type)
    return read_as(kind, data) if kind is not None else None


def delegation_of(entry: Entry) -> Delegation | None:
    """Return the delegation a child's first entry names, or ``None``."""
    value = (entry.metadata or {}).get(DELEGATION_KEY)
    try:
        return msgspec.convert(value, Delegation)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return None
