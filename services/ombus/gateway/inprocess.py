"""A client without a network: the gateway's routes, called in this process.

``embedded(folder)`` folds the folder if nobody does, else it works beside whoever does.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from starlette.types import ASGIApp, Message

from ombus.client.client import Client
from ombus.client.transport import Reply
from ombus.gateway.app import Gateway
from ombus.gateway.limits import Limits
from ombus.gateway.serving import Listening, open_gateway
from ombus.lines import calm
from ombus.operator.errors import Busy
from ombus.settings import ProcessSettings, load_settings

HOST: Final = "localhost"
MAX_CHUNKS: Final = 16
"""Parts of a stream that wait for their reader."""
_N_ANY: Final = 1_000_000
UNMETERED: Final = Limits(
    requests_per_second=_N_ANY,
    burst=_N_ANY,
    tenant_requests_per_second=_N_ANY,
    tenant_burst=_N_ANY,
)
"""Of a gateway whose only caller is the process it is in."""


class InProcess:
    """A transport onto a gateway that runs in this event loop."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._app: ASGIApp = gateway.app()

    async def request(
        self, method: str, path: str, query: Mapping[str, str], body: bytes | None
    ) -> Reply:
        asked = [{"type": "http.request", "body": body or b"", "more_body": False}]
        status, headers, answer = 500, dict[str, str](), bytearray()

        async def receive() -> Message:
            return asked.pop() if asked else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status, headers = message["status"], _headers(message)
            else:
                answer.extend(message.get("body", b""))

        await self._app(_scope(method, path, query, {}), receive, send)
        return Reply(status=status, headers=headers, body=bytes(answer))

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> AsyncIterator["InProcessStream"]:
        stream = InProcessStream()
        scope = _scope("GET", path, query, headers)
        running = asyncio.create_task(stream.run(self._app, scope))
        try:
            await stream.begun(running)
            yield stream
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    async def close(self) -> None:
        await self._gateway.close()


class InProcessStream:
    """Chunks of one response through a bounded queue; a slow reader makes the route wait."""

    def __init__(self) -> None:
        self.status, self.body = 500, b""
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_CHUNKS)
        self._begun = asyncio.Event()
        self._n_asked = 0

    async def run(self, app: ASGIApp, scope: Message) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            self._begun.set()
            with suppress(asyncio.QueueFull):
                self._chunks.put_nowait(None)

    async def begun(self, running: asyncio.Task[None]) -> None:
        """Return once the status is known, and of a refusal the body."""
        await self._begun.wait()
        if self.status != 200:
            await running
            while (chunk := self._chunks.get_nowait()) is not None:
                self.body += chunk

    async def lines(self) -> AsyncIterator[str]:
        text = b""
        while (chunk := await self._chunks.get()) is not None:
            *lines, text = (text + chunk).split(b"\n")
            for line in lines:
                yield line.removesuffix(b"\r").decode()

    async def _receive(self) -> Message:
        self._n_asked += 1
        if self._n_asked > 1:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._begun.set()
        elif message.get("body"):
            await self._chunks.put(message["body"])


@asynccontextmanager
async def embedded(
    folder: Path | str, tenant: str = "local", settings: ProcessSettings | None = None
) -> AsyncIterator[Client]:
    """Lend a client on the data folder, with the engine in this process.

    What it logs goes where the host has configured structlog to; else standard error has warnings.

    Raises:
        StorageError, TerminalError: see their way out.
    """
    calm()
    said = settings or load_settings({"data": str(folder), "tenant": tenant}, {}, [])
    gateway = await asyncio.to_thread(_open, said)
    gateway.callers.trust()
    gateway.host.start()
    async with Client(transport=InProcess(gateway)) as client:
        yield client


def _open(settings: ProcessSettings) -> Gateway:
    try:
        return open_gateway(settings, Listening(), UNMETERED, wait_seconds=0)
    except Busy:
        return open_gateway(settings, Listening(), UNMETERED, folds=False)


def _scope(
    method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> dict[str, object]:
    given = {"host": HOST, **{name.lower(): value for name, value in headers.items()}}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": urlencode(query).encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "server": (HOST, 0),
        "client": (HOST, 0),
    }


def _headers(message: Message) -> dict[str, str]:
    return {name.decode().lower(): value.decode() for name, value in message["headers"]}
