"""An event loop in a thread of its own: asynchronous clients behind a port that is not.

The thread owns the clients: they are made, used and closed on its loop alone.
"""

import asyncio
import threading
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from ombus_streams.runtime.errors import Closed

Result = TypeVar("Result")


class Background:
    """A loop that runs until ``close``; any thread but its own may call in."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._closing = threading.Lock()
        self._closed = False
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def run(self, work: Coroutine[Any, Any, Result], timeout: timedelta | None = None) -> Result:
        """Return what ``work`` returns; it is cancelled after ``timeout``.

        Raises:
            TimeoutError: it took too long.
            Closed: after ``close``.
        """
        if self._closed:
            work.close()
            raise Closed(self._name)
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(f"{self._name} waits for itself: call from another thread")
        seconds = timeout.total_seconds() if timeout else None
        return asyncio.run_coroutine_threadsafe(
            asyncio.wait_for(work, seconds), self._loop
        ).result()

    def close(self) -> None:
        """End what still runs on the loop, then the thread. Idempotent."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            running = asyncio.all_tasks(self._loop)
            for each in running:
                each.cancel()
            self._loop.run_until_complete(asyncio.gather(*running, return_exceptions=True))
        finally:
            self._loop.close()
