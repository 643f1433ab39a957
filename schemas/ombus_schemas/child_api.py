"""Children over HTTP: what waits for one, and the lease under which it works."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ombus_schemas.api import Api
from ombus_schemas.bodies import MAX_COUNT, Count
from ombus_schemas.supervision import Lifetime, Permission, ReportPolicy

Standing = Literal["held", "lost", "finished", "failed", "cancelled", "rejected"]
"""Where a holder stands: it runs the child, somebody else may, or how the delegation ended."""
Epoch = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
"""Of a lease: no child speaks under 0, which is the host's."""


class Offer(Api, frozen=True, kw_only=True):
    """A delegation that waits for a child."""

    parent: str
    """The parent's session id."""
    delegation_id: str
    child_id: str
    child_session_id: str
    input: str
    epoch: Count
    """The lease a claim would get: above 1 it takes over from a child that was lost."""
    depth: Count = 1
    lifetime: Lifetime = "task"
    policy: ReportPolicy = ReportPolicy()
    limits: dict[str, int] = msgspec.field(default_factory=dict)
    permissions: tuple[Permission, ...] = ()


class OffersAnswer(Api, frozen=True, kw_only=True):
    """What this child id can claim now, oldest first."""

    offers: tuple[Offer, ...]


class ClaimRequest(Api, frozen=True, kw_only=True):
    """Claim an offer; of several claims the first one on the log holds the lease."""

    parent: str
    holder: str
    """A text that no other process uses."""
    epoch: Epoch
    lease_ms: Count


class BeatRequest(Api, frozen=True, kw_only=True):
    """Keep the lease; with ``n`` of 0 only learn where the holder stands."""

    parent: str
    holder: str
    epoch: Epoch
    n: Count = 0
    """Counts the heartbeats of this lease."""


class FinishRequest(Api, frozen=True, kw_only=True):
    """The child is done."""

    parent: str
    holder: str
    epoch: Epoch
    status: str = "completed"
    output: str | None = None
    total_tokens: Count = 0


class FailRequest(Api, frozen=True, kw_only=True):
    """The child failed."""

    parent: str
    holder: str
    epoch: Epoch
    reason: str
    error: str
    limit: str | None = None
    stop_reason: str | None = None
    total_tokens: Count = 0


class StandingAnswer(Api, frozen=True, kw_only=True):
    """Where the holder stands, as the log says."""

    session: str
    standing: Standing
