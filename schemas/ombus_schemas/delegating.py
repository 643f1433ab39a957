"""Delegating over HTTP, and the tools a model delegates with: what is asked, what is answered."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from ombus_schemas.api import Api, OwnId, Seconds
from ombus_schemas.bodies import Count
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.supervision import Lifetime, Mode, OnLost, Report

DelegationState = Literal[
    "requested", "admitted", "started", "rejected", "failed", "finished", "cancelled"
]


LimitName = Annotated[
    str,
    Meta(
        pattern="^(depth|activeChildren|inputBytes|steps|toolCalls|tokens|timeoutMs|queuedEvents"
        "|childEvents|childEventBytes|childEventsPerSecond)$"
    ),
]


class Milestone(Api, frozen=True, kw_only=True):
    """When a child reports."""

    every_turns: Count | None = None
    """At each turn whose number it divides; else what it starts and finishes."""
    when: tuple[str, ...] = ()
    """Types of events that are milestones as well."""


class DelegateRequest(Api, frozen=True, kw_only=True):
    """Ask a child to do something. The host's settings only ever lower what is asked for."""

    child_id: Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]
    input: str
    id: OwnId | None = None
    """The request's own id; asking again with it asks for the same delegation."""
    thread_id: str | None = None
    mode: Mode = "async"
    lifetime: Lifetime = "task"
    report: Report = "on-complete"
    milestone: Milestone = Milestone()
    budget_share: float | None = None
    """Of what this session may use itself: steps, tool calls, tokens and time."""
    limits: dict[LimitName, Count] = msgspec.field(default_factory=dict)
    """Lower limits, by their names."""
    on_lost: OnLost = "takeover"
    wait_seconds: Seconds = 30.0
    """Of ``sync``: how long to wait for the end."""


class CancelRequest(Api, frozen=True, kw_only=True):
    """Why it is ended."""

    reason: str = "cancelled"


class AliveRequest(Api, frozen=True, kw_only=True):
    """Whoever runs the parent is alive; without another one in time its task children end."""

    holder: str = ""
    lease_ms: Count = 15_000


class GoneRequest(Api, frozen=True, kw_only=True):
    """The parent's run is over: its task children end."""

    reason: str = "parent_gone"


class DelegationAnswer(Api, frozen=True, kw_only=True):
    """A delegation as it stands; one that is over never changes again."""

    session: str
    delegation_id: str
    child_id: str
    state: DelegationState
    status: str
    """One word: the child's own for how it finished, else the state."""
    is_over: bool = False
    child_session_id: str
    depth: int = 1
    lifetime: Lifetime = "task"
    reason: str | None = None
    output: str | None = None
    total_tokens: int = 0
    usage: JsonObject | None = None
    limits: dict[str, int] = msgspec.field(default_factory=dict)


class CancelAnswer(Api, frozen=True, kw_only=True):
    """What came of it."""

    session: str
    delegation_id: str
    status: Literal["cancelling", "terminal"]
    """``terminal``: it was over already."""


class SummaryRow(Api, frozen=True, kw_only=True):
    """One child id, over all its delegations."""

    child_id: str
    attempts: int = 0
    retries: int = 0
    failures: int = 0
    failure_radius: int = 0
    """Delegations below the one that failed last which were alive at that moment."""
    outcome: str


class SummaryAnswer(Api, frozen=True, kw_only=True):
    """What became of a session's children, in the order of admission."""

    session: str
    children: tuple[SummaryRow, ...] = ()


class TreeNode(Api, frozen=True, kw_only=True):
    """A delegation and what its child delegated."""

    delegation_id: str
    child_id: str
    state: DelegationState
    child_session_id: str
    depth: int = 1
    lifetime: Lifetime = "task"
    reason: str | None = None
    attempts: int = 0
    """Children that have worked for it, one after the other."""
    total_tokens: int = 0
    turn: int = 0
    """Of the last milestone."""
    milestone: JsonObject | None = None
    events: int = 0
    coalesced: int = 0
    is_capped: bool = False
    requested_ms: int = 0
    ended_ms: int | None = None
    children: tuple["TreeNode", ...] = ()


class TreeAnswer(Api, frozen=True, kw_only=True):
    """Everything below a session."""

    session: str
    nodes: tuple[TreeNode, ...] = ()
    ignored: dict[str, int] = msgspec.field(default_factory=dict)
    """Events that changed nothing, by why."""


class SupervisionTold(Api, frozen=True, kw_only=True):
    """The data of one ``event``; its id is the position."""

    position: str
    at_ms: int
    id: str
    event: JsonObject


class ParentAnswer(Api, frozen=True, kw_only=True):
    """It is on the log."""

    session: str
    position: str


class Tool(msgspec.Struct, frozen=True):
    """A tool as a model is shown it."""

    name: str
    description: str
    parameters: JsonObject


def _closed(properties: JsonObject, *required: str) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_ID: Final[JsonObject] = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"}

SPAWN_AGENT: Final = Tool(
    "spawn_agent",
    "Give a child agent a task. `async` returns its delegation at once, `sync` waits for the end. "
    "A child with lifetime `session` is always asynchronous.",
    _closed(
        {
            "childId": _ID,
            "input": {"type": "string", "minLength": 1},
            "threadId": {"type": "string", "minLength": 1, "maxLength": 256},
            "mode": {"enum": ["sync", "async"]},
            "lifetime": {"enum": ["task", "session"]},
            "report": {"enum": ["on-complete", "milestones", "stream"]},
            "milestone": _closed({"everyTurns": {"type": "integer", "minimum": 1}}),
            "budgetShare": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        },
        "childId",
        "input",
    ),
)
WAIT_AGENT: Final = Tool(
    "wait_agent",
    "Wait for a child agent and return how it ended; asking again gives the same answer.",
    _closed({"delegationId": _ID}, "delegationId"),
)
CANCEL_AGENT: Final = Tool(
    "cancel_agent",
    "End a child agent. The status is `cancelling`, or `terminal` if it was over already.",
    _closed({"delegationId": _ID}, "delegationId"),
)
TOOLS: Final = (SPAWN_AGENT, WAIT_AGENT, CANCEL_AGENT)


class _SpawnMilestone(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    every_turns: Count | None = None


class SpawnArguments(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a model gives ``spawn_agent``."""

    child_id: str
    input: str
    thread_id: str | None = None
    mode: Mode = "async"
    lifetime: Lifetime = "task"
    report: Report = "on-complete"
    milestone: _SpawnMilestone = msgspec.field(default_factory=_SpawnMilestone)
    budget_share: float | None = None

    def request(self, id: str | None, wait_seconds: float) -> DelegateRequest:
        """Return the request; a child that outlives its task is asked for asynchronously."""
        return DelegateRequest(
            child_id=self.child_id,
            input=self.input,
            id=id,
            thread_id=self.thread_id,
            mode="async" if self.lifetime == "session" else self.mode,
            lifetime=self.lifetime,
            report=self.report,
            milestone=Milestone(every_turns=self.milestone.every_turns),
            budget_share=self.budget_share,
            wait_seconds=wait_seconds,
        )


class HandleArguments(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a model gives ``wait_agent`` and ``cancel_agent``."""

    delegation_id: str


def spawn_arguments(given: JsonObject) -> SpawnArguments:
    """Return the arguments of ``spawn_agent``.

    Raises:
        ValueError: they do not keep to the schema, and how.
    """
    found = msgspec.convert(given, SpawnArguments)
    if not found.input or not found.child_id:
        raise ValueError("childId and input must say something")
    if found.budget_share is not None and not 0 < found.budget_share <= 1:
        raise ValueError("budgetShare is above 0 and at most 1")
    if found.milestone.every_turns == 0:
        raise ValueError("everyTurns is at least 1")
    return found


def handle_arguments(given: JsonObject) -> HandleArguments:
    """Return the arguments of the other two.

    Raises:
        ValueError: they do not keep to the schema, and how.
    """
    return msgspec.convert(given, HandleArguments)
