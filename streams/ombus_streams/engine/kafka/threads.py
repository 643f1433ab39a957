"""Threads for what would stop the event loop: calls of synchronous ports."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Final, TypeVar

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
