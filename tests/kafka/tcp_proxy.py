"""A TCP proxy on loopback that stops forwarding, or takes nobody in, for as long as it is told.

It stands where brokers send the clients of their second listener (`ombus dev kafka`).
"""

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Literal, Self

from ombus.dev.processes import HOST

Mode = Literal["open", "silent", "refused"]
"""``silent``: connections stand and nothing comes through, as behind a broken switch."""
_CHUNK: Final = 65_536


class FaultProxy:
    """Forwards ports to ports while it is open; all of them share one mode."""

    def __init__(self, target_by_port: Mapping[int, int]) -> None:
        self._targets = dict(target_by_port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._listens, self._passing = threading.Event(), asyncio.Event()
        self._passing.set()
        self._mode: Mode = "open"
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listens.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def turn(self, mode: Mode) -> None:
        """Treat connections that there are, and new ones, like this from now on."""
        done = asyncio.run_coroutine_threadsafe(self._turn(mode), self._loop)
        done.result(10)

    def _run(self) -> None:
        loop = self._loop
        servers = [
            loop.run_until_complete(self._listen(port, target))
            for port, target in self._targets.items()
        ]
        self._listens.set()
        loop.run_forever()
        for server in servers:
            server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    async def _listen(self, port: int, target: int) -> asyncio.Server:
        async def taken_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._connect(reader, writer, target)

        return await asyncio.start_server(taken_in, HOST, port)

    async def _turn(self, mode: Mode) -> None:
        self._mode = mode
        if mode == "silent":
            self._passing.clear()
            return
        self._passing.set()
        if mode == "refused":
            for writer in [*self._writers]:
                writer.transport.abort()

    async def _connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int
    ) -> None:
        if self._mode == "refused":
            writer.transport.abort()
            return
        await self._passing.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, target)
        except OSError:
            writer.transport.abort()
            return
        flows = (self._flow(reader, far_writer), self._flow(far_reader, writer))
        with suppress(OSError):
            await asyncio.gather(*flows)

    async def _flow(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        self._writers.add(target)
        try:
            while part := await source.read(_CHUNK):
                await self._passing.wait()
                target.write(part)
                await target.drain()
        except OSError:
            pass  # One of the two has ended.
        finally:
            self._writers.discard(target)
            target.close()
