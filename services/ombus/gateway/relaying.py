"""A stream that another gateway sends, passed on as it comes; a slow reader is let go here, too."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress

import httpx
from starlette.responses import StreamingResponse
from starlette.types import Message, Send


class Relay(StreamingResponse):
    """``may_go_on`` is asked at each piece, heartbeats included."""

    def __init__(
        self,
        answer: httpx.Response,
        headers: Mapping[str, str],
        may_go_on: Callable[[], bool],
        send_seconds: float,
    ) -> None:
        self._answer, self._may_go_on, self._send_seconds = answer, may_go_on, send_seconds
        super().__init__(self._pieces(), answer.status_code, headers)

    async def stream_response(self, send: Send) -> None:
        async def timed(message: Message) -> None:
            async with asyncio.timeout(self._send_seconds):
                await send(message)

        try:
            with suppress(TimeoutError):
                await super().stream_response(timed)
        finally:
            await self._answer.aclose()

    async def _pieces(self) -> AsyncIterator[bytes]:
        # A stream that breaks ends: its reader comes back with the last id it has seen.
        with suppress(httpx.TransportError):
            async for piece in self._answer.aiter_raw():
                if not self._may_go_on():
                    return
                yield piece
