"""Time that passes when it is told to, for many runs at once on one asyncio loop."""

import asyncio
import heapq
from itertools import count

from tests.support.engine import ManualClock

SETTLING = 12
"""Rounds of the loop in which whatever can go on without time goes on."""


class VirtualTime:
    """Sleepers wake when the manual clock has come to them."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        at_ms = self.clock.at_ms + round(seconds * 1_000)
        heapq.heappush(self._sleepers, (at_ms, next(self._numbers), future))
        await future

    async def pass_ms(self, milliseconds: int) -> None:
        """Let time pass, and let those who waited for it go on."""
        self.clock.at_ms += milliseconds
        while self._sleepers and self._sleepers[0][0] <= self.clock.at_ms:
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)
        for _ in range(SETTLING):
            await asyncio.sleep(0)
