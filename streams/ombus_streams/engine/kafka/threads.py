"""Threads for what would stop the event loop: calls of synchronous ports, computing providers."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Final, TypeVar

from ombus_streams.runtime.provider import ModelProvider, ModelRequest, TurnEvent

THREADS: Final = 16
"""Of one worker. Appends of several threads share a record batch."""
_Result = TypeVar("_Result")


class Threads:
    """A bounded pool; whoever made it closes it."""

    def __init__(self, name: str, n_threads: int = THREADS) -> None:
        self._pool = ThreadPoolExecutor(n_threads, name)

    async def run(self, call: Callable[[], _Result]) -> _Result:
        """Return what ``call`` returns, in the caller's context. Given up, it runs to its end."""
        run = partial(copy_context().run, call)
        return await asyncio.get_running_loop().run_in_executor(self._pool, run)

    async def close(self) -> None:
        """Wait for the calls that run."""
        await asyncio.to_thread(self._pool.shutdown)


class Threaded:
    """A provider that computes its turns instead of waiting for them, moved off the loop.

    One turn at a time: such a provider keeps what it worked out, and one core is enough for it.
    """

    def __init__(self, provider: ModelProvider, threads: Threads) -> None:
        self.name, self.model = provider.name, provider.model
        self._provider, self._threads = provider, threads

    async def turn(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        """Yield the turn's events, all computed before the first one."""
        for event in await self._threads.run(lambda: asyncio.run(self._events(request))):
            yield event

    async def _events(self, request: ModelRequest) -> list[TurnEvent]:
        return [event async for event in self._provider.turn(request)]
