"""The routes of the HTTP API: one table for the server, its OpenAPI document and the tests.

``roles`` are those of which one is needed. A route with ``{session}`` answers ``not_found`` for
a session that is not there and for one the caller may not use: the same bytes.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from ombus_schemas import api, child_api, delegating, grant_api, scope_api
from ombus_schemas.api import ApiRole
from ombus_schemas.jsontext import JsonObject

PREFIX: Final = "/v1"
SESSION: Final = PREFIX + "/sessions/{session}"

MAX_NUMBER: Final = 2**53
"""Of a number in a query, either way: what JSON's readers agree on."""

ParamType = Literal["string", "integer", "number", "boolean"]


class Param(msgspec.Struct, frozen=True):
    """One parameter of the query."""

    name: str
    type: ParamType
    meaning: str
    minimum: int | None = None
    required: bool = False
    one_of: tuple[str, ...] = ()
    """What a string may be; empty: anything."""
    pattern: str | None = None


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One operation."""

    name: str
    method: Literal["GET", "POST"]
    path: str
    meaning: str
    roles: frozenset[ApiRole]
    answer: type[msgspec.Struct]
    body: type[msgspec.Struct] | None = None
    params: tuple[Param, ...] = ()
    creates: bool = False
    """Whether the session may be one that is not there yet."""
    streams: bool = False
    """Whether the answer is a stream of server-sent events, each with an ``answer`` as data."""

    @property
    def of_session(self) -> bool:
        return "{session}" in self.path


_LEAF: Final = Param("leaf", "string", "The entry the branch ends at. Default: the one last come.")
_AS_OF: Final = Param("asOf", "string", "Answer as the log stood below this position.")
_AT_LEAST: Final = Param("atLeast", "string", "Wait until this position is folded.")
_WAIT: Final = Param("waitSeconds", "number", "How long `atLeast` waits at most.", 0)
_READ: Final = (_LEAF, _AS_OF, _AT_LEAST, _WAIT)

_PUBLISH: Final[frozenset[ApiRole]] = frozenset({"publisher", "supervisor", "operator"})
_READERS: Final[frozenset[ApiRole]] = frozenset({"reader", "supervisor", "operator"})
_STEER: Final[frozenset[ApiRole]] = frozenset({"supervisor", "operator"})


def _scoping(command: str, meaning: str, body: type[msgspec.Struct]) -> Route:
    return Route(
        name=f"scope_{command}",
        method="POST",
        path=f"{SESSION}/scopes/{command}",
        meaning=meaning,
        roles=_PUBLISH,
        answer=scope_api.ScopeAnswer,
        body=body,
    )


class TailEvent(api.Api, frozen=True, kw_only=True):
    """The data of one ``entry`` event; its id is the position."""

    position: str
    at_ms: int
    id: str
    kind: str
    entry: JsonObject | None = None
    """The entry; absent when nobody may read it any more."""
    withheld: bool = False


_DELEGATIONS: Final = SESSION + "/delegations"
_DELEGATE: Final[frozenset[ApiRole]] = frozenset({"publisher", "supervisor", "operator"})

SHARING: Final = (
    Route(
        name="scope_grant",
        method="POST",
        path=SESSION + "/scopes/grant",
        meaning="Let other sessions read what is bound to a scope",
        roles=_PUBLISH,
        answer=grant_api.GrantAnswer,
        body=grant_api.GrantRequest,
    ),
    Route(
        name="scope_revoke",
        method="POST",
        path=SESSION + "/scopes/revoke",
        meaning="Let them read it no longer, from the very next read on",
        roles=_PUBLISH,
        answer=grant_api.GrantAnswer,
        body=grant_api.GrantRequest,
    ),
    Route(
        name="scope_grants",
        method="GET",
        path=SESSION + "/scopes/grants",
        meaning="List who may read which scope",
        roles=_READERS,
        answer=grant_api.GrantsAnswer,
    ),
    Route(
        name="scope_access",
        method="GET",
        path=SESSION + "/scopes/access",
        meaning="List this gateway's last decisions over scopes the session owns or reads",
        roles=_READERS,
        answer=grant_api.AccessAnswer,
        params=(
            Param("scope", "string", "Only this one."),
            Param("limit", "integer", "At most so many, 100 if not given.", 1),
        ),
    ),
    Route(
        name="scope_share",
        method="GET",
        path=SESSION + "/scopes/share",
        meaning="Return what the default leaf holds of a scope, for the gateway of a reader",
        roles=_READERS,
        answer=grant_api.ShareAnswer,
        params=(
            Param(
                "scope",
                "string",
                "The scope.",
                required=True,
                pattern=r"^(?!.*\.\.)[A-Za-z0-9._:/-]{1,128}$",
            ),
            Param("memory", "string", "Also the sources of this memory."),
        ),
    ),
)
"""Shared scopes: who may read, and who has."""

DELEGATING: Final = (
    Route(
        name="delegate",
        method="POST",
        path=_DELEGATIONS,
        meaning="Ask a child to do something; `sync` waits for the end",
        roles=_DELEGATE,
        answer=delegating.DelegationAnswer,
        body=delegating.DelegateRequest,
        creates=True,
    ),
    Route(
        name="delegations",
        method="GET",
        path=_DELEGATIONS,
        meaning="Return every delegation below a session, as a tree",
        roles=_READERS | _DELEGATE,
        answer=delegating.TreeAnswer,
        creates=True,
    ),
    Route(
        name="delegation_summary",
        method="GET",
        path=_DELEGATIONS + "/summary",
        meaning="Count attempts, retries and failures of each child, and how the last one ended",
        roles=_READERS | _DELEGATE,
        answer=delegating.SummaryAnswer,
        creates=True,
    ),
    Route(
        name="delegation_events",
        method="GET",
        path=_DELEGATIONS + "/events",
        meaning="Follow what is told of a session's children; `Last-Event-ID` resumes",
        roles=_READERS | _DELEGATE,
        answer=delegating.SupervisionTold,
        params=(
            Param("after", "string", "`start`, or a position. Default: from now on."),
            Param("delegation", "string", "Only this one; the stream ends after its end."),
        ),
        streams=True,
        creates=True,
    ),
    Route(
        name="delegation",
        method="GET",
        path=_DELEGATIONS + "/{delegation}",
        meaning="Wait for the end of a delegation; asking again gives the same answer",
        roles=_READERS | _DELEGATE,
        answer=delegating.DelegationAnswer,
        params=(Param("waitSeconds", "number", "How long to wait at most.", 0),),
        creates=True,
    ),
    Route(
        name="delegation_cancel",
        method="POST",
        path=_DELEGATIONS + "/{delegation}/cancel",
        meaning="End a delegation and everything its child delegated as a task",
        roles=_DELEGATE,
        answer=delegating.CancelAnswer,
        body=delegating.CancelRequest,
        creates=True,
    ),
    Route(
        name="parent_alive",
        method="POST",
        path=SESSION + "/alive",
        meaning="Say that the parent is alive; without another one in time its tasks end",
        roles=_DELEGATE,
        answer=delegating.ParentAnswer,
        body=delegating.AliveRequest,
        creates=True,
    ),
    Route(
        name="parent_gone",
        method="POST",
        path=SESSION + "/gone",
        meaning="Say that the parent's run is over: its tasks end",
        roles=_DELEGATE,
        answer=delegating.ParentAnswer,
        body=delegating.GoneRequest,
        creates=True,
    ),
)
"""A session may delegate before anything was appended to it, so none of these asks for one."""


def _leasing(command: str, meaning: str, body: type[msgspec.Struct]) -> Route:
    return Route(
        name=f"child_{command}",
        method="POST",
        path=f"{SESSION}/lease/{command}",
        meaning=meaning,
        roles=_DELEGATE,
        answer=child_api.StandingAnswer,
        body=body,
        creates=True,
    )


CHILDREN: Final = (
    Route(
        name="child_offers",
        method="GET",
        path=PREFIX + "/children/{child}/offers",
        meaning="List the delegations that wait for a child, oldest first",
        roles=_DELEGATE,
        answer=child_api.OffersAnswer,
        params=(Param("waitSeconds", "number", "How long to wait at most for one.", 0),),
    ),
    _leasing("claim", "Claim a delegation; the session is the child's", child_api.ClaimRequest),
    _leasing("beat", "Keep the lease, or only learn where one stands", child_api.BeatRequest),
    _leasing("finish", "Say that the child is done", child_api.FinishRequest),
    _leasing("fail", "Say that the child failed", child_api.FailRequest),
)
"""The session of a child is opened by its first entry, after the claim."""

ROUTES: Final = (
    *DELEGATING,
    *CHILDREN,
    *SHARING,
    Route(
        name="sessions",
        method="GET",
        path=PREFIX + "/sessions",
        meaning="List the sessions the caller may see",
        roles=_READERS,
        answer=api.SessionsAnswer,
        params=(
            Param("after", "string", "Begin after this session."),
            Param("limit", "integer", "At most so many.", 1),
        ),
    ),
    Route(
        name="append",
        method="POST",
        path=SESSION + "/entries",
        meaning="Append entries, in order; 409 for a lost `expectedLeaf`, 422 for refused ones",
        roles=_PUBLISH,
        answer=api.AppendAnswer,
        body=api.AppendRequest,
        creates=True,
    ),
    Route(
        name="entries",
        method="GET",
        path=SESSION + "/entries",
        meaning="Page through the chain entries of a leaf, oldest first",
        roles=_READERS,
        answer=api.EntriesAnswer,
        params=(
            *_READ,
            Param("after", "string", "Begin after this entry of the chain."),
            Param("limit", "integer", "At most so many.", 1),
        ),
    ),
    Route(
        name="branches",
        method="GET",
        path=SESSION + "/branches",
        meaning="List the leaves",
        roles=_READERS,
        answer=api.BranchesAnswer,
        params=(_AS_OF, _AT_LEAST, _WAIT),
    ),
    Route(
        name="rebuild",
        method="GET",
        path=SESSION + "/rebuild",
        meaning="Return the messages and summaries a model is given again",
        roles=_READERS,
        answer=api.RebuildAnswer,
        params=_READ,
    ),
    Route(
        name="context",
        method="GET",
        path=SESSION + "/context",
        meaning="Return the blocks an agent reads before it answers",
        roles=_READERS,
        answer=api.ContextAnswer,
        params=(
            *_READ,
            Param("maxTokens", "number", "Of the recent messages.", 0),
            Param("recent", "integer", "Recent messages, instead of the setting's.", 0),
        ),
    ),
    Route(
        name="recall",
        method="GET",
        path=SESSION + "/memories/{memory}",
        meaning="Return a memory and the exact words of its sources",
        roles=_READERS,
        answer=api.RecallAnswer,
        params=_READ,
    ),
    Route(
        name="pages",
        method="GET",
        path=SESSION + "/pages",
        meaning="Return raw messages around a cursor",
        roles=_READERS,
        answer=api.PageAnswer,
        params=(
            *_READ,
            Param("cursor", "string", "The id of a message.", required=True),
            Param("limit", "integer", "Messages, 1 to 100.", 1),
            Param("direction", "string", "`forward`, else backward."),
            Param("detail", "string", "`full`: whole entries."),
        ),
    ),
    Route(
        name="status",
        method="GET",
        path=SESSION + "/status",
        meaning="Return what is recorded, what is pending and which workers wait",
        roles=_READERS,
        answer=api.StatusAnswer,
        params=_READ,
    ),
    Route(
        name="view",
        method="GET",
        path=SESSION + "/view",
        meaning="Return the memory as a person reads it",
        roles=_READERS,
        answer=api.ViewAnswer,
        params=(*_READ, Param("mode", "string", "`full`: all that is active.", one_of=("full",))),
    ),
    Route(
        name="tail",
        method="GET",
        path=SESSION + "/tail",
        meaning="Follow the session's records; `Last-Event-ID` resumes",
        roles=_READERS,
        answer=TailEvent,
        params=(Param("after", "string", "`start`, or a position. Default: from now on."),),
        streams=True,
    ),
    Route(
        name="flush",
        method="POST",
        path=SESSION + "/flush",
        meaning="Cover, reflect and drop everything up to the leaf",
        roles=_PUBLISH,
        answer=api.FlushAnswer,
        body=api.FlushRequest,
    ),
    Route(
        name="compact",
        method="POST",
        path=SESSION + "/compact",
        meaning="Compact the leaf, or say what that would fold",
        roles=_PUBLISH,
        answer=api.CompactAnswer,
        body=api.CompactRequestBody,
    ),
    Route(
        name="run_started",
        method="POST",
        path=SESSION + "/runs/{run}/started",
        meaning="Say that the host's agent is at work: no compaction until it ends",
        roles=_PUBLISH,
        answer=api.FactAnswer,
        body=api.RunRequest,
    ),
    Route(
        name="run_finished",
        method="POST",
        path=SESSION + "/runs/{run}/finished",
        meaning="Say that the host's run ended",
        roles=_PUBLISH,
        answer=api.FactAnswer,
        body=api.RunRequest,
    ),
    Route(
        name="invalidate",
        method="POST",
        path=SESSION + "/invalidations",
        meaning="Take sources out of every memory, on every leaf",
        roles=_STEER,
        answer=api.InvalidationAnswer,
        body=api.InvalidationRequest,
    ),
    Route(
        name="invalidations",
        method="GET",
        path=SESSION + "/invalidations",
        meaning="List what was taken out of every memory, and why",
        roles=_STEER,
        answer=api.InvalidationsAnswer,
        params=_READ,
    ),
    Route(
        name="scopes",
        method="GET",
        path=SESSION + "/scopes",
        meaning="List the work scopes of a leaf and say where the work stands",
        roles=_READERS,
        answer=scope_api.ScopesAnswer,
        params=(*_READ, Param("binds", "boolean", "Name what is bound, too.")),
    ),
    Route(
        name="scope_memory",
        method="GET",
        path=SESSION + "/scopes/memory",
        meaning="Return the memory that is visible from a scope",
        roles=_READERS,
        answer=scope_api.ScopeMemoryAnswer,
        params=(
            *_READ,
            Param("from", "string", "The scope to look from. Default: where the work stands."),
            Param(
                "include",
                "string",
                "`self`, `self+ancestors` (default), `self+descendants` or `lineage`.",
            ),
            Param("closed", "string", "`include`: closed scopes, too.", one_of=("include", "hide")),
            Param("kinds", "string", "Only scopes of these kinds, separated by commas."),
        ),
    ),
    _scoping("open", "Open a work scope", scope_api.ScopeOpening),
    _scoping("close", "Close a work scope", scope_api.ScopeChoice),
    _scoping("enter", "Make a work scope the place of the work", scope_api.ScopeChoice),
    _scoping("leave", "Go back one work scope", scope_api.ScopeLeaving),
    _scoping("bind", "Bind memory to a work scope", scope_api.ScopeBinding),
    _scoping("unbind", "Unbind memory from a work scope", scope_api.ScopeBinding),
)

STATUS_BY_CODE: Final[Mapping[str, tuple[int, str]]] = {
    "bad_request": (400, "The request cannot be read"),
    "bad_position": (400, "That is no position of this session"),
    "unauthorized": (401, "A valid token is needed"),
    "not_the_owner": (403, "Somebody else owns the grants of this session"),
    "not_found": (404, "There is nothing here, or nothing for you"),
    "no_leaf": (404, "The session has no such leaf"),
    "method_not_allowed": (405, "This cannot be done here"),
    "body_timeout": (408, "The body did not come in time"),
    "conflict": (409, "The leaf was not the expected one any more"),
    "scope_refused": (409, "The scopes of this leaf do not allow it"),
    "position_gone": (410, "The position belongs to another log"),
    "too_large": (413, "The body is too large"),
    "rejected": (422, "Some entries were not taken"),
    "scope_limit": (422, "That would pass a cap of the work scopes"),
    "too_many_requests": (429, "Too many requests"),
    "internal": (500, "A bug of ours"),
    "behind": (503, "The fold has not come so far yet"),
    "moving": (503, "The session moves to another gateway"),
    "busy": (503, "Too much is under way"),
    "storage": (503, "The log cannot be written or read now"),
}
"""Every problem there is: its status and title."""
