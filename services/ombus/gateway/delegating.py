"""Delegations over HTTP: asked, waited for, ended, followed; each handle is a fact on the log.

Everything a caller asks may be asked again, of any gateway and after any restart: a request under
its own id is one delegation, a wait has one answer, a stream goes on behind its last event.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final, TypeVar

import msgspec
from ombus_schemas.delegating import (
    AliveRequest,
    CancelAnswer,
    CancelRequest,
    DelegateRequest,
    DelegationAnswer,
    GoneRequest,
    ParentAnswer,
    SupervisionTold,
)
from ombus_schemas.delegation_routes import DELEGATING
from ombus_schemas.entries import Ownership
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.responses import Response

from ombus.gateway.answers import answered
from ombus.gateway.calls import Call, Claim
from ombus.gateway.limits import Limits
from ombus.gateway.problems import ApiError, not_found
from ombus.gateway.tokens import Principal
from ombus.operator.delegations import Delegations
from ombus.operator.errors import BadDelegation, NoDelegation, OtherRequest
from ombus.settings import ProcessSettings
from ombus.wiring_supervision import has_delegations

START: Final = "start"
LINGER_S: Final = 1.0
"""How long a stream of one delegation goes on after its end: milestones trail it."""
FIRST_PAUSE_S: Final = 0.02
MAX_PAUSE_S: Final = 0.25
NAMES: Final = frozenset(route.name for route in DELEGATING)
_ENDS: Final = frozenset(
    {"delegation_rejected", "delegation_finished", "delegation_error", "delegation_cancelled"}
)

Result = TypeVar("Result")


class Delegating:
    """Opens the folder's delegations with the first call, or at once if there are some."""

    def __init__(
        self,
        settings: ProcessSettings,
        limits: Limits,
        identify: Callable[[Claim], Principal | None],
        opens: Callable[[], Delegations] | None = None,
    ) -> None:
        """``opens``: where delegations are kept, if not in the data folder."""
        self._settings, self._limits, self._opens = settings, limits, opens
        self._identify = identify
        self._lock = threading.Lock()
        self._delegations: Delegations | None = None
        self._n_streams = 0
        self._is_closed = False
        if opens is None and has_delegations(settings):
            self.delegations()

    async def answer(self, call: Call) -> Response:
        """Answer a route of ``DELEGATING``.

        Raises:
            ApiError: ``not_found`` for a delegation that is not there.
        """
        try:
            return await self._answer(call)
        except NoDelegation as error:
            raise not_found() from error
        except OtherRequest as error:
            raise ApiError("conflict", str(error)) from error
        except BadDelegation as error:
            raise ApiError("bad_request", str(error)) from error

    async def close(self) -> None:
        """End the streams and close the files. Idempotent."""
        with self._lock:
            self._is_closed = True
            delegations, self._delegations = self._delegations, None
        if delegations is not None:
            await asyncio.to_thread(delegations.close)

    async def _answer(self, call: Call) -> Response:
        key, delegation = call.key, str(call.path.get("delegation", ""))
        match call.route.name:
            case "delegate":
                return answered(await self._delegate(call))
            case "delegation":
                seconds = call.number("waitSeconds") or 0.0
                return answered(await self._wait(key, delegation, seconds))
            case "delegation_cancel":
                reason = call.decoded(CancelRequest).reason
                done = await _aside(lambda: self.delegations().cancel(key, delegation, reason))
                return answered(
                    CancelAnswer(
                        session=call.path["session"],
                        delegation_id=delegation,
                        status="cancelling" if done else "terminal",
                    )
                )
            case "delegation_summary":
                return answered(await _aside(lambda: self.delegations().summary(key)))
            case "delegation_events":
                return await self._events(call)
            case "parent_alive":
                said = call.decoded(AliveRequest)
                at = await _aside(lambda: self.delegations().alive(key, said.holder, said.lease_ms))
                return answered(ParentAnswer(session=call.path["session"], position=str(at)))
            case "parent_gone":
                why = call.decoded(GoneRequest).reason
                at = await _aside(lambda: self.delegations().gone(key, why))
                return answered(ParentAnswer(session=call.path["session"], position=str(at)))
            case _:
                return answered(await _aside(lambda: self.delegations().tree(key)))

    async def _delegate(self, call: Call) -> DelegationAnswer:
        asked = call.decoded(DelegateRequest)
        owner = Ownership(account_id=call.principal.id)
        key = call.key
        found = await _aside(lambda: self.delegations().delegate(key, asked, owner))
        if asked.mode == "async" or found.is_over:
            return found
        return await self._wait(key, found.delegation_id, asked.wait_seconds)

    async def _wait(self, key: bytes, delegation: str, seconds: float) -> DelegationAnswer:
        """Return the delegation once it is over, or as it stands when the time is."""
        deadline = time.monotonic() + min(max(0.0, seconds), self._limits.max_wait_seconds)
        pause = FIRST_PAUSE_S
        while True:
            found = await _aside(lambda: self.delegations().get(key, delegation))
            if found.is_over or time.monotonic() >= deadline:
                return found
            await asyncio.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(2 * pause, MAX_PAUSE_S)

    async def _events(self, call: Call) -> Response:
        if self._n_streams >= self._limits.max_tails:
            raise ApiError("busy", "too many streams are open", retry_after=5)
        key, delegation = call.key, call.text("delegation")
        if delegation is not None:
            wanted = delegation
            await _aside(lambda: self.delegations().get(key, wanted))
        said = call.last_event_id or call.text("after")
        end = await _aside(lambda: self.delegations().end(key))
        offset = end.offset if said is None else 0
        if said is not None and said != START:
            offset = _offset(said, end.incarnation, end.partition)
            if offset > end.offset:
                raise ApiError("bad_position", "it lies past the end of the log")
        return EventSourceResponse(
            self._stream(call, offset, delegation),
            ping=max(1, round(self._limits.heartbeat_seconds)),
            send_timeout=self._limits.send_seconds,
            headers={"Cache-Control": "no-store"},
        )

    async def _stream(
        self, call: Call, offset: int, delegation: str | None
    ) -> AsyncIterator[ServerSentEvent]:
        self._n_streams += 1
        pause, over_at = FIRST_PAUSE_S, None
        try:
            while not self._is_closed and self._is_allowed(call):
                page, after = await _aside(partial(self._page, call.key, offset))
                for told in page:
                    if delegation is not None and told.event.get("delegationId") != delegation:
                        continue
                    data = msgspec.json.encode(told).decode()
                    yield ServerSentEvent(data, event="event", id=told.position)
                    if delegation is not None and told.event.get("type") in _ENDS:
                        over_at = time.monotonic()
                if after > offset:
                    offset, pause = after, FIRST_PAUSE_S
                    continue
                if over_at is not None and time.monotonic() - over_at >= LINGER_S:
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE_S)
        finally:
            self._n_streams -= 1

    def _is_allowed(self, call: Call) -> bool:
        """Say whether the token still holds: a revoked one reads no further."""
        principal = self._identify(call.claim)
        return principal is not None and principal.id == call.principal.id

    def _page(self, key: bytes, offset: int) -> tuple[list[SupervisionTold], int]:
        opened = self.delegations()
        return opened.told(key, offset, opened.end(key).offset)

    def delegations(self) -> Delegations:
        """Return the folder's delegations, opened.

        Raises:
            ApiError: ``busy`` once the gateway ends.
        """
        with self._lock:
            if self._is_closed:
                raise ApiError("busy", "the gateway ends", retry_after=1)
            if self._delegations is None:
                opens = self._opens or (lambda: Delegations(self._settings))
                self._delegations = opens()
            return self._delegations


async def _aside(ask: Callable[[], Result]) -> Result:
    return await asyncio.to_thread(ask)


def _offset(said: str, incarnation: str, partition: int) -> int:
    parts = said.rsplit(":", 2)
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() for part in parts[1:]):
        raise ApiError("bad_position", "that is no <incarnation>:<partition>:<offset>")
    if parts[0] != incarnation:
        raise ApiError("position_gone", "read without it for a position of this log")
    if len(parts[2]) > 18 or parts[1] != str(partition):
        raise ApiError("bad_position", "it is of another partition")
    return int(parts[2]) + 1
