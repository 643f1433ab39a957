"""A server on this machine that plays both model APIs as they are documented, and as they fail.

It speaks HTTP/1.1 with the standard library alone. Each request gets the next reply of a script;
a reply's body is sent in pieces of any size, so a split can fall inside a character or a number.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec
from ombus_schemas.jsontext import JsonValue

End = Literal["whole", "cut", "quiet"]
"""``cut``: the connection dies before the last chunk. ``quiet``: the body ends, unfinished."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a request is answered."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    piece_bytes: int = 65_536
    """How many bytes are sent at once."""
    end: End = "whole"
    content_type: str = "application/json"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: Any
    """Read by name and number in assertions alone."""


class Wire:
    """The server: what it was asked, and where it listens."""

    def __init__(self, replies: Iterable[Reply]) -> None:
        self.asked: list[Asked] = []
        self.url = ""
        self._replies = iter(replies)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (asked := await _read(reader)) is not None:
                self.asked.append(asked)
                reply = next(self._replies, None) or error(500, "the script has ended")
                if not await _answer(writer, reply):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the other side is done; a cancelled server has nobody to tell
        finally:
            writer.close()


@asynccontextmanager
async def wire(*replies: Reply) -> AsyncIterator[Wire]:
    """Lend a server that answers with ``replies``, in order."""
    found = Wire(replies)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    found.url = f"http://{host}:{port}"
    try:
        yield found
    finally:
        server.close()


def whole(body: JsonValue, **fields: Any) -> Reply:
    """Return an answer that is one JSON object."""
    reply = Reply(body=json.dumps(body, ensure_ascii=False).encode())
    return msgspec.structs.replace(reply, **fields)


def error(
    status: int, message: str, *, headers: Sequence[tuple[str, str]] = (), **more: JsonValue
) -> Reply:
    """Return an error as both APIs spell it."""
    body = {"type": "error", "error": {"type": "error", "message": message, **more}}
    return Reply(body=json.dumps(body).encode(), status=status, headers=tuple(headers))


def events(items: Iterable[JsonValue | str], *, named: bool = False, **fields: Any) -> Reply:
    """Return a stream of server-sent events; a text is sent as it stands."""
    parts: list[str] = []
    for item in items:
        if isinstance(item, str):
            parts.append(f"data: {item}\n\n")
            continue
        name = f"event: {item['type']}\n" if named and isinstance(item, dict) else ""
        parts.append(f"{name}data: {json.dumps(item, ensure_ascii=False)}\n\n")
    reply = Reply(body="".join(parts).encode(), content_type="text/event-stream")
    return msgspec.structs.replace(reply, **fields)


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(path=head[0].split(" ")[1], headers=headers, body=json.loads(body or b"{}"))


async def _answer(writer: asyncio.StreamWriter, reply: Reply) -> bool:
    head = [
        f"HTTP/1.1 {reply.status} Scripted",
        f"content-type: {reply.content_type}",
        "transfer-encoding: chunked",
        *(f"{name}: {value}" for name, value in reply.headers),
    ]
    writer.write(("\r\n".join(head) + "\r\n\r\n").encode())
    for start in range(0, len(reply.body), reply.piece_bytes):
        piece = reply.body[start : start + reply.piece_bytes]
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await writer.drain()
    if reply.end == "cut":
        writer.transport.abort()
        return False
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True
