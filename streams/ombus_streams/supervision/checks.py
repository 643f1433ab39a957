"""Whether a request may become a child: the checks of S23.2, in its order, and what they grant.

The host's words are ceilings: a request, a share and a hook only lower them. What a child session
may pass on is what it was given itself, whatever the host would grant a root.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from ombus_schemas.supervision import Permission, Report, ReportPolicy

from ombus_streams.supervision.handle import LOUDNESS, Handle
from ombus_streams.supervision.limits import DEFAULT, Limits, lowered, shared
from ombus_streams.supervision.parent import HOOK, Lineage

Denied = Literal[
    "allow_list", "cycle", "policy", "mode", "depth", "identity", "input_bytes", "hook", "slots"
]  # fmt: skip
"""Reasons of ``delegation_rejected``, in the order of the checks."""

DEFAULT_LIMITS: Final[dict[str, int]] = dict(DEFAULT)


class ChildPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What the host says of one child id."""

    limits: dict[str, int] = msgspec.field(default_factory=dict)
    report: Report = "on-complete"
    """The loudest report it may give."""
    every_turns: int | None = None
    session: bool = False
    """Whether it may outlive the task it was asked for."""
    budget_share: float | None = None
    children: tuple[str, ...] = ()
    """Whom it may ask itself."""
    permissions: tuple[Permission, ...] = ()


class HostPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What the host says of all of them."""

    children: Mapping[str, ChildPolicy] = msgspec.field(default_factory=dict)
    """Who may be asked at all."""
    limits: dict[str, int] = msgspec.field(default_factory=lambda: dict(DEFAULT_LIMITS))
    has_hook: bool = False
    """Whether a function of the host is asked before a child may start."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a delegation may use and tell."""

    depth: int
    path: tuple[str, ...]
    """Child ids from the root down to this one."""
    limits: dict[str, int]
    policy: ReportPolicy
    permissions: tuple[Permission, ...]
    input: str | None = None
    """What the hook put in place of the request's."""


class Denial(msgspec.Struct, frozen=True):
    """Why it may not."""

    reason: Denied
    detail: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """What the host's function said."""

    is_allowed: bool
    detail: str = ""
    input: str | None = None
    limits: dict[str, int] = msgspec.field(default_factory=dict)
    permissions: tuple[Permission, ...] = ()


def checked(handle: Handle, lineage: Lineage | None, host: HostPolicy) -> Grant | Denial:
    """Return what the request would be granted, by every check that comes before the hook."""
    child_id = handle.child_id
    child = host.children.get(child_id)
    if child is None or not _may_ask(lineage, child_id, host):
        return Denial("allow_list", f"{child_id} is no child this session may ask")
    path = () if lineage is None else lineage.path
    if child_id in path:
        return Denial("cycle", f"{child_id} is already at work above: {' / '.join(path)}")
    if handle.lifetime == "session" and not child.session:
        return Denial("policy", f"{child_id} may not outlive its task")
    if not _is_share(handle.budget_share):
        return Denial("policy", "a budget share is above 0 and at most 1")
    if handle.lifetime == "session" and handle.mode != "async":
        return Denial("mode", "a child that outlives its task is asked for asynchronously")
    depth = 1 if lineage is None else lineage.depth + 1
    grant = Grant(
        depth=depth,
        path=(*path, child_id),
        limits=_limits(handle, lineage, host, child),
        policy=_clamped(handle.policy, child),
        permissions=child.permissions,
    )
    if depth > grant.limits["depth"]:
        return Denial("depth", f"it would run {depth} deep, the limit is {grant.limits['depth']}")
    if not handle.has_owner:
        return Denial("identity", "the request names neither account nor user")
    if handle.input_bytes > grant.limits["inputBytes"]:
        fact = f"the input holds {handle.input_bytes:,} bytes, the limit is"
        return Denial("input_bytes", f"{fact} {grant.limits['inputBytes']:,}")
    return grant


def approved(handle: Handle, grant: Grant, said: Approval) -> Grant | Denial:
    """Return the grant as the host's function lowered it, or its denial."""
    if not said.is_allowed:
        return Denial(HOOK, said.detail or "the host's hook said no")
    limits = lowered(grant.limits, said.limits)
    if said.input is not None and len(said.input.encode()) > limits["inputBytes"]:
        return Denial("input_bytes", "the hook's input is above the limit")
    return msgspec.structs.replace(
        grant,
        limits=limits,
        input=said.input,
        permissions=(*grant.permissions, *said.permissions),
    )


def slotted(grant: Grant, n_live: int) -> Grant | Denial:
    """Return the grant if the parent has a slot left beside ``n_live`` children."""
    if n_live >= grant.limits["activeChildren"]:
        return Denial("slots", f"{n_live} children are at work, which is the limit")
    return grant


def _may_ask(lineage: Lineage | None, child_id: str, host: HostPolicy) -> bool:
    if lineage is None:
        return True
    asking = host.children.get(lineage.child_id)
    return asking is not None and child_id in asking.children


def _is_share(share: float | None) -> bool:
    return share is None or 0 < share <= 1


def _limits(
    handle: Handle, lineage: Lineage | None, host: HostPolicy, child: ChildPolicy
) -> dict[str, int]:
    inherited: Limits = host.limits
    if lineage is not None:
        inherited = lowered(host.limits, lineage.limits)
    shares = [share for share in (child.budget_share, handle.budget_share) if share is not None]
    share = min(shares, default=None)
    return lowered(inherited, child.limits, shared(inherited, share), handle.limits)


def _clamped(asked: ReportPolicy, child: ChildPolicy) -> ReportPolicy:
    """Return the quieter report and the wider cadence of the two."""
    report = min(asked.report, child.report, key=LOUDNESS.index)
    cadences = [each for each in (asked.every_turns, child.every_turns) if each]
    every_turns = max(cadences, default=None)
    return msgspec.structs.replace(asked, report=report, every_turns=every_turns)
