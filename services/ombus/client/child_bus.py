"""Children behind a gateway: claims, leases and transcripts over a client's transport."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec
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
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.route import PREFIX

from ombus.client.child import ChildFailure, Done
from ombus.client.errors import EntryRejected, NotFound, Retryable

if TYPE_CHECKING:
    from ombus.client.client import Client

WAIT_SECONDS: Final = 10.0
"""How long the gateway waits at most for something to offer."""
PAUSE_S: Final = 0.5
RETRY_SECONDS: Final = 1.0
"""Of one call; a lease that is shorter is lost rather than waited for."""


class GatewayBus:
    """A ``ChildBus`` over a client, which stays its owner's to close."""

    pause = PAUSE_S
    unreachable: tuple[type[Exception], ...] = (Retryable,)

    def __init__(self, client: "Client") -> None:
        self._client = client

    async def offers(self, child_id: str) -> Sequence[Offer]:
        query = {"waitSeconds": f"{WAIT_SECONDS:g}"}
        reply = await self._client.call("GET", f"{PREFIX}/children/{child_id}/offers", query, None)
        return msgspec.json.decode(reply.body, type=OffersAnswer).offers

    async def claim(self, offer: Offer, holder: str, lease_ms: int) -> bool:
        said = ClaimRequest(
            parent=offer.parent, holder=holder, epoch=offer.epoch, lease_ms=lease_ms
        )
        return await self._ask(offer, "claim", said) == "held"

    async def beat(self, offer: Offer, holder: str, n: int) -> Standing:
        said = BeatRequest(parent=offer.parent, holder=holder, epoch=offer.epoch, n=n)
        return await self._ask(offer, "beat", said)

    async def standing(self, offer: Offer, holder: str) -> Standing:
        return await self.beat(offer, holder, 0)

    async def publish(self, offer: Offer, entries: Sequence[JsonObject]) -> None:
        session = self._client.session(offer.child_session_id)
        sent = [await session.send(entry) for entry in entries]
        answers = await asyncio.gather(*sent, return_exceptions=True)
        failures = [each for each in answers if isinstance(each, BaseException)]
        for error in sorted(failures, key=lambda each: not isinstance(each, Retryable)):
            if isinstance(error, EntryRejected):
                raise ChildFailure(str(error), reason="rejected") from error
            raise error

    async def finish(self, offer: Offer, holder: str, done: Done) -> Standing:
        said = FinishRequest(
            parent=offer.parent,
            holder=holder,
            epoch=offer.epoch,
            status=done.status,
            output=done.output,
            total_tokens=done.total_tokens,
        )
        return await self._ask(offer, "finish", said)

    async def fail(self, offer: Offer, holder: str, failure: ChildFailure) -> Standing:
        said = FailRequest(
            parent=offer.parent,
            holder=holder,
            epoch=offer.epoch,
            reason=failure.reason,
            error=failure.error,
            limit=failure.limit,
            stop_reason=failure.stop_reason,
            total_tokens=failure.total_tokens,
        )
        return await self._ask(offer, "fail", said)

    async def _ask(self, offer: Offer, name: str, said: msgspec.Struct) -> Standing:
        path = f"{PREFIX}/sessions/{offer.child_session_id}/lease/{name}"
        try:
            reply = await self._client.call("POST", path, {}, msgspec.json.encode(said))
        except NotFound:
            return "lost"
        return msgspec.json.decode(reply.body, type=StandingAnswer).standing


@asynccontextmanager
async def gateway_bus(url: str, token: str | None = None) -> AsyncIterator[GatewayBus]:
    """Lend a bus over a client of its own. It gives up soon: whoever works asks again."""
    from ombus.client.client import Client

    async with Client(url, token, retry_seconds=RETRY_SECONDS) as client:
        yield GatewayBus(client)
