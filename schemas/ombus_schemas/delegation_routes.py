"""The routes by which a parent delegates, and those by which a child works."""

from typing import Final

import msgspec

from ombus_schemas import child_api, delegating
from ombus_schemas.route import PREFIX, PUBLISHERS, READERS, SESSION, Param, Route

_DELEGATIONS: Final = SESSION + "/delegations"

DELEGATING: Final = (
    Route(
        name="delegate",
        method="POST",
        path=_DELEGATIONS,
        meaning="Ask a child to do something; `sync` waits for the end",
        roles=PUBLISHERS,
        answer=delegating.DelegationAnswer,
        body=delegating.DelegateRequest,
        creates=True,
    ),
    Route(
        name="delegations",
        method="GET",
        path=_DELEGATIONS,
        meaning="Return every delegation below a session, as a tree",
        roles=READERS | PUBLISHERS,
        answer=delegating.TreeAnswer,
        creates=True,
    ),
    Route(
        name="delegation_summary",
        method="GET",
        path=_DELEGATIONS + "/summary",
        meaning="Count attempts, retries and failures of each child, and how the last one ended",
        roles=READERS | PUBLISHERS,
        answer=delegating.SummaryAnswer,
        creates=True,
    ),
    Route(
        name="delegation_events",
        method="GET",
        path=_DELEGATIONS + "/events",
        meaning="Follow what is told of a session's children; `Last-Event-ID` resumes",
        roles=READERS | PUBLISHERS,
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
        roles=READERS | PUBLISHERS,
        answer=delegating.DelegationAnswer,
        params=(Param("waitSeconds", "number", "How long to wait at most.", 0),),
        creates=True,
    ),
    Route(
        name="delegation_cancel",
        method="POST",
        path=_DELEGATIONS + "/{delegation}/cancel",
        meaning="End a delegation and everything its child delegated as a task",
        roles=PUBLISHERS,
        answer=delegating.CancelAnswer,
        body=delegating.CancelRequest,
        creates=True,
    ),
    Route(
        name="parent_alive",
        method="POST",
        path=SESSION + "/alive",
        meaning="Say that the parent is alive; without another one in time its tasks end",
        roles=PUBLISHERS,
        answer=delegating.ParentAnswer,
        body=delegating.AliveRequest,
        creates=True,
    ),
    Route(
        name="parent_gone",
        method="POST",
        path=SESSION + "/gone",
        meaning="Say that the parent's run is over: its tasks end",
        roles=PUBLISHERS,
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
        roles=PUBLISHERS,
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
        roles=PUBLISHERS,
        answer=child_api.OffersAnswer,
        params=(Param("waitSeconds", "number", "How long to wait at most for one.", 0),),
    ),
    _leasing("claim", "Claim a delegation; the session is the child's", child_api.ClaimRequest),
    _leasing("beat", "Keep the lease, or only learn where one stands", child_api.BeatRequest),
    _leasing("finish", "Say that the child is done", child_api.FinishRequest),
    _leasing("fail", "Say that the child failed", child_api.FailRequest),
)
"""The session of a child is opened by its first entry, after the claim."""
