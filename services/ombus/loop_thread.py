"""An event loop in a thread of its own, for one piece of work beside what the process does."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress


class LoopThread:
    """Runs ``work`` from ``start`` until ``stop``; it is given the event that ends it."""

    def __init__(self, name: str, work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
        self._work = work
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._started, self.ended = threading.Event(), threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self.failure: BaseException | None = None
        """Why the work ended by itself, or has to."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let the work end in order and wait until it has. Idempotent; nothing before ``start``."""
        if self._thread.ident is None:
            return
        self._started.wait()
        with suppress(RuntimeError):  # Its loop is closed: it has ended by itself.
            if self._loop is not None and self._stop is not None:
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def fail(self, error: BaseException) -> None:
        """Say why there is no going on; the first one to say so is kept."""
        if self.failure is None:
            self.failure = error

    def _run(self) -> None:
        async def run() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            self._started.set()
            await self._work(self._stop)

        try:
            asyncio.run(run())
        except BaseException as error:
            self.fail(error)
        finally:
            self._started.set()
            self.ended.set()
