"""Children over HTTP: what waits for them, and their leases; transcripts are appended as any other.

Nothing is remembered between requests: who holds a lease is read from the log each time, so a child
may speak to another gateway, or to this one after a restart.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from ombus_schemas.child_api import (
    BeatRequest,
    ClaimRequest,
    FailRequest,
    FinishRequest,
    Offer,
    OffersAnswer,
    Standing,
    StandingAnswer,
)
from ombus_schemas.delegation_routes import CHILDREN
from ombus_schemas.ids import is_child_id
from ombus_streams.runtime.leases import Lease
from ombus_streams.supervision.milestones import SESSION_SUFFIX
from starlette.responses import Response

from ombus.client.child import ChildFailure, Done
from ombus.gateway.answers import answered
from ombus.gateway.calls import Call
from ombus.gateway.delegating import Delegating
from ombus.gateway.limits import Limits
from ombus.gateway.problems import ApiError, not_found
from ombus.operator.children import Children, standing_of
from ombus.operator.errors import NoDelegation
from ombus.settings import ProcessSettings
from ombus.wiring import SystemClock

NAMES: Final = frozenset(route.name for route in CHILDREN)
MAX_HOLDER_CHARS: Final = 200


class Leasing:
    """Answers the routes of ``CHILDREN``."""

    def __init__(self, settings: ProcessSettings, limits: Limits, delegating: Delegating) -> None:
        self._settings, self._limits, self._delegating = settings, limits, delegating

    async def answer(self, call: Call) -> Response:
        """Answer one of the routes.

        Raises:
            ApiError: ``not_found`` for a delegation that is not there.
        """
        if call.route.name == "child_offers":
            return answered(OffersAnswer(offers=await self._offers(call)))
        act = self._act(call)
        try:
            standing = await asyncio.to_thread(act)
        except NoDelegation as error:
            raise not_found() from error
        return answered(StandingAnswer(session=call.path["session"], standing=standing))

    async def _offers(self, call: Call) -> tuple[Offer, ...]:
        child_id, tenant = call.path["child"], call.principal.tenant
        if not is_child_id(child_id):
            raise ApiError("bad_request", "that is no child id")
        seconds = min(call.number("waitSeconds") or 0.0, self._limits.max_wait_seconds)
        deadline = time.monotonic() + seconds
        while True:
            children = self._children()
            found = await asyncio.to_thread(children.offers, tenant, child_id)
            # What its session is not for, this caller does not learn of.
            mine = tuple(each for each in found if call.principal.may_use(each.child_session_id))
            if mine or time.monotonic() >= deadline:
                return mine
            await asyncio.to_thread(children.wait)

    def _act(self, call: Call) -> Callable[[], Standing]:
        children = self._children()
        match call.route.name:
            case "child_claim":
                claim = call.decoded(ClaimRequest)
                return lambda: _claimed(self._lease(children, call, claim, 0), claim)
            case "child_beat":
                beat = call.decoded(BeatRequest)
                return lambda: _beaten(self._lease(children, call, beat, beat.epoch), beat.n)
            case "child_finish":
                said = call.decoded(FinishRequest)
                done = Done(output=said.output, status=said.status, total_tokens=said.total_tokens)
                return lambda: children.finish(self._lease(children, call, said, said.epoch), done)
            case _:
                failed = call.decoded(FailRequest)
                failure = ChildFailure(
                    failed.error,
                    reason=failed.reason,
                    limit=failed.limit,
                    stop_reason=failed.stop_reason,
                    total_tokens=failed.total_tokens,
                )
                return lambda: children.fail(
                    self._lease(children, call, failed, failed.epoch), failure
                )

    def _lease(
        self,
        children: Children,
        call: Call,
        said: ClaimRequest | BeatRequest | FinishRequest | FailRequest,
        epoch: int,
    ) -> Lease:
        """Return the delegation whose child writes the call's session.

        Raises:
            NoDelegation: there is none under that parent.
        """
        session = call.path["session"]
        if not session.endswith(SESSION_SUFFIX):
            raise NoDelegation(session)
        delegation = session.removesuffix(SESSION_SUFFIX)
        holder = f"{call.principal.id}:{said.holder[:MAX_HOLDER_CHARS]}"
        return children.lease(call.principal.tenant, said.parent, delegation, holder, epoch)

    def _children(self) -> Children:
        supervision = self._delegating.delegations().supervision
        return Children(self._settings, supervision, SystemClock())


def _claimed(lease: Lease, said: ClaimRequest) -> Standing:
    # A claim whose answer was lost is asked again.
    lease.epoch = said.epoch
    if not lease.is_held:
        lease.claim(said.epoch, said.lease_ms)
    return standing_of(lease)


def _beaten(lease: Lease, n: int) -> Standing:
    if n:
        lease.beat(n)
    return standing_of(lease)
