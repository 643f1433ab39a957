"""What an orchestrator asks a process: is it alive, is it ready, what does it count. Plain HTTP.

``GET /live`` answers 200 while the event loop turns. ``GET /ready`` answers 200 once everything is
caught up, before that 503; both carry the same JSON, which says how far it is. ``GET /metrics`` is
what Prometheus scrapes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from ombus_schemas.jsontext import JsonValue

MAX_REQUEST_BYTES: Final = 8_192
WITHIN_SECONDS: Final = 5.0
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"

_PHRASES: Final = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
    503: "Service Unavailable",
}  # fmt: skip


class Health(msgspec.Struct, frozen=True):
    """An answer: readiness, and the details."""

    is_ready: bool
    details: JsonValue


@asynccontextmanager
async def serve_health(
    host: str, port: int, health: Callable[[], Health], metrics: Callable[[], bytes] | None = None
) -> AsyncIterator[int]:
    """Answer probes while the body runs; yields the port, which 0 lets the system choose."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)[0]
                writer.write(_response(line, health, metrics))
                await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass  # Whoever asked has gone.
        except asyncio.LimitOverrunError:
            writer.write(_bytes(400, b"{}"))
        finally:
            writer.close()

    server = await asyncio.start_server(answer, host, port, limit=MAX_REQUEST_BYTES)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


def _response(
    line: bytes, health: Callable[[], Health], metrics: Callable[[], bytes] | None
) -> bytes:
    method, _, rest = line.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if path not in (b"/live", b"/ready") and (path != b"/metrics" or metrics is None):
        return _bytes(404, b"{}")
    if method not in (b"GET", b"HEAD"):
        return _bytes(405, b"{}")
    if path == b"/metrics" and metrics is not None:
        return _bytes(200, metrics(), head=method == b"HEAD", media=PROMETHEUS)
    now = health()
    status = 200 if now.is_ready or path == b"/live" else 503
    body = msgspec.json.encode({"ready": now.is_ready, "details": now.details})
    return _bytes(status, body, head=method == b"HEAD")


def _bytes(
    status: int, body: bytes, *, head: bool = False, media: str = "application/json"
) -> bytes:
    lines = (
        f"HTTP/1.1 {status} {_PHRASES[status]}\r\n"
        f"content-type: {media}\r\n"
        "cache-control: no-store\r\n"
        f"content-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    return lines.encode() + (b"" if head else body)
