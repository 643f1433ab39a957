"""Probes of a process: alive, ready, and nothing else."""

import asyncio
import json

import pytest
from ombus.health import Health, serve_health


async def asked(port: int, request: bytes) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.parametrize(
    ("line", "is_ready", "status"),
    [
        (b"GET /live HTTP/1.1", False, 200),
        (b"GET /ready HTTP/1.1", False, 503),
        (b"GET /ready?verbose HTTP/1.1", True, 200),
        (b"HEAD /ready HTTP/1.1", True, 200),
        (b"POST /ready HTTP/1.1", True, 405),
        (b"GET /metrics HTTP/1.1", True, 404),
        (b"nonsense", True, 404),
    ],
)
def test_a_probe_is_answered(line: bytes, is_ready: bool, status: int) -> None:
    async def test() -> tuple[int, bytes]:
        async with serve_health("127.0.0.1", 0, lambda: Health(is_ready, {"n": 1})) as port:
            return await asked(port, line + b"\r\nhost: x\r\n\r\n")

    found, body = asyncio.run(asyncio.wait_for(test(), 10))
    assert found == status
    if status in (200, 503):
        assert body == b"" or json.loads(body) == {"ready": is_ready, "details": {"n": 1}}
    assert (body == b"") == line.startswith(b"HEAD")


def test_what_is_counted_is_served_where_there_is_something() -> None:
    async def test() -> tuple[int, bytes]:
        health = Health(False, None)
        async with serve_health("127.0.0.1", 0, lambda: health, lambda: b"ombus_x 1\n") as port:
            return await asked(port, b"GET /metrics HTTP/1.1\r\n\r\n")

    assert asyncio.run(asyncio.wait_for(test(), 10)) == (200, b"ombus_x 1\n")


def test_a_request_that_never_ends_is_refused() -> None:
    async def test() -> int:
        async with serve_health("127.0.0.1", 0, lambda: Health(True, None)) as port:
            status, _ = await asked(port, b"GET /live HTTP/1.1\r\n" + b"x: y\r\n" * 5_000)
            return status

    assert asyncio.run(asyncio.wait_for(test(), 10)) == 400
