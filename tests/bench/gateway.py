"""HTTP appends and contexts beside the same calls in process, and beside a bare Starlette route.

``python -m tests.bench.gateway``; ``make bench`` runs it, too. One caller, one connection, one
request after the other, over loopback; everything in one run, so the ratios hold on any machine.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import structlog
import uvicorn
from ombus import Client, embedded, message
from ombus.client.http import HttpTransport
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.gateway.serving import running

TEXT: Final = "The parser drops the last token when a line ends in a comment. " * 4
WARM_UP: Final = 20


async def measured(call: Callable[[], Awaitable[object]], n_calls: int) -> list[float]:
    """Return how long each call took, in milliseconds."""
    for _ in range(WARM_UP):
        await call()
    found: list[float] = []
    for _ in range(n_calls):
        started = time.perf_counter()
        await call()
        found.append((time.perf_counter() - started) * 1_000)
    return found


async def both(client: Client, n_calls: int) -> tuple[list[float], list[float]]:
    """Return the times of appends, and of contexts of what was appended."""
    session = client.session("bench")
    appends = await measured(lambda: session.append(message("user", TEXT)), n_calls)
    contexts = await measured(session.context, n_calls)
    return appends, contexts


async def over_http(url: str, n_calls: int) -> tuple[list[float], list[float]]:
    async with Client(url) as client:
        return await both(client, n_calls)


async def in_process(folder: Path, n_calls: int) -> tuple[list[float], list[float]]:
    async with embedded(folder) as client:
        return await both(client, n_calls)


async def bare(n_calls: int) -> list[float]:
    """Return the times of a route that does nothing, with the same server and client."""

    async def nothing(request: Request) -> Response:
        return Response(b"{}", media_type="application/json")

    app = Starlette(routes=[Route("/nothing", nothing)])
    config = uvicorn.Config(app, port=0, log_config=None, access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    while not server.started:  # noqa: ASYNC110  # another thread starts it
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    transport = HttpTransport(f"http://127.0.0.1:{port}")
    try:
        return await measured(lambda: transport.request("GET", "/nothing", {}, None), n_calls)
    finally:
        await transport.close()
        server.should_exit = True
        await asyncio.to_thread(thread.join)


def percentiles(times: list[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile."""
    return statistics.median(times), statistics.quantiles(times, n=100)[98]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gateway")
    parser.add_argument("--calls", type=int, default=500)
    n_calls = parser.parse_args().calls
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory() as folder:
        with running(Path(folder) / "http") as served:
            appends, contexts = asyncio.run(over_http(served.url, n_calls))
        here = asyncio.run(in_process(Path(folder) / "here", n_calls))
    nothing = asyncio.run(bare(n_calls))
    said: dict[str, float] = {}
    rows = (
        ("append_http", appends),
        ("append_in_process", here[0]),
        ("context_http", contexts),
        ("context_in_process", here[1]),
        ("bare_route_http", nothing),
    )
    for name, times in rows:
        p50, p99 = percentiles(times)
        per_second = 1_000 / statistics.fmean(times)
        said |= {f"{name}_p50_ms": round(p50, 3), f"{name}_p99_ms": round(p99, 3)}
        said[f"{name}_per_second"] = round(per_second)
        print(f"{name:<20} p50 {p50:7.2f} ms  p99 {p99:7.2f} ms  {per_second:7,.0f}/s")
    print(json.dumps(said))


if __name__ == "__main__":
    main()
