"""The MCP server, asked by the SDK's own client over both transports."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client as McpClient
from mcp import StdioServerParameters
from ombus import Client, embedded, message
from ombus.client import Session
from ombus.mcp import answers
from ombus.mcp.server import Guarded, memory_server
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tests.cli.conftest import Cli, cli, folder

__all__ = ["cli", "folder"]

MAX_WAIT_S = 30.0
TOOLS = {"recall", "memory_status", "memory_view", "memory_context"}
OMBUS = (sys.executable, "-m", "ombus.cli")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which one session has a memory, and another one has words of its own."""
    folder = tmp_path_factory.mktemp("mcp") / "data"

    async def main() -> None:
        async with embedded(folder) as client:
            session = client.session("ferry")
            for n in range(3):
                text = f"The ferry {n} leaves at {n}:15."
                await session.append(message("user", text, id=f"m{n}"))
            assert (await session.flush()).status == "completed"
            await client.session("other").append(message("user", "Nothing for you.", id="o1"))

    asyncio.run(main())
    return folder


def command(data: Path, *options: str) -> list[str]:
    return ["--data", str(data), "mcp", "--session", "ferry", *options]


async def use(client: McpClient) -> None:
    """Call every tool as a model would, with good and bad arguments."""
    listed = await client.list_tools()
    assert {tool.name for tool in listed.tools} == TOOLS

    async def value(tool: str, **arguments: Any) -> dict[str, Any]:
        answer = await client.call_tool(tool, arguments)
        assert not answer.is_error, answer
        assert answer.content[0].type == "text"
        found: dict[str, Any] = answer.structured_content
        return found

    view = await value("memory_view")
    memory = view["text"].split("## Observations")[1].split("[")[1].split("]")[0]
    recalled = await value("recall", id=memory)
    assert recalled["found"] is True
    assert recalled["sourceEntries"][0]["id"].startswith("m")
    page = await value("recall", cursor="m1", limit=1)
    assert [each["id"] for each in page["entries"]] == ["m1"]
    assert (await value("memory_status"))["observations"]["recorded"] > 0
    context = await value("memory_context", max_tokens=1_000)
    assert context["blocks"][0]["title"] == "observational-memory"
    for arguments, reason in (
        ({"id": memory, "sessionId": "other"}, "wrong_session"),
        ({}, "invalid_request"),
        ({"id": memory, "cursor": "m1"}, "invalid_request"),
        ({"id": 7}, "invalid_request"),
        ({"id": "nonsense"}, "invalid_id"),
        ({"id": "../../other/x"}, "invalid_id"),
        ({"id": "0123456789ab"}, "not_found"),
        ({"cursor": "o1"}, "cursor_not_found"),
        ({"cursor": "m1", "limit": 1_000}, "limit_exceeded"),
    ):
        refused = await value("recall", **arguments)
        assert (refused["found"], refused["reason"]) == (False, reason)
        assert "Nothing for you" not in str(refused)
    refused = await value("recall", cursor=" m1", limit=1_000, direction="forward")
    assert (refused["cursor"], refused["direction"], refused["limit"]) == ("m1", "forward", 1_000)
    assert refused["entries"] == []
    assert "Usage" in str(await value("memory_view", mode="everything"))


def test_over_standard_input(data: Path) -> None:
    async def main() -> None:
        server = StdioServerParameters(
            command=OMBUS[0], args=[*OMBUS[1:], *command(data)], env=dict(os.environ)
        )
        async with asyncio.timeout(MAX_WAIT_S), McpClient(server) as client:
            await use(client)

    asyncio.run(main())


def test_over_streamable_http(data: Path) -> None:
    async def main(url: str) -> None:
        async with asyncio.timeout(MAX_WAIT_S), McpClient(url) as client:
            await use(client)

    with serving(data) as url:
        asyncio.run(main(url))


@contextmanager
def serving(data: Path, *options: str) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [*OMBUS, *command(data, "--http", "--port", str(port), *options)]
    with subprocess.Popen(arguments, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + MAX_WAIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.05)
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()


def test_over_http_a_bearer_is_asked_for_when_there_is_one() -> None:
    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("inside")(scope, receive, send)

    async def main() -> None:
        transport = httpx.ASGITransport(app=Guarded(inner, "let-me-in"))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            for said in ({}, {"Authorization": "Bearer nonsense"}):
                answer = await http.post("/mcp", headers=said)
                assert (answer.status_code, answer.content) == (401, b"")
            answer = await http.post("/mcp", headers={"Authorization": "Bearer let-me-in"})
            assert answer.text == "inside"

    asyncio.run(main())


def test_other_machines_are_let_in_with_a_bearer_only(cli: Cli) -> None:
    done = cli("mcp", "--session", "ferry", "--http", "--host", "0.0.0.0")
    assert done.code == 2
    assert "--bearer-file" in done.err


def test_a_gateway_that_is_away_or_says_no_comes_to_a_value(tmp_path: Path) -> None:
    async def ask(session: Session) -> list[Any]:
        return [
            await answers.recall(session, {"id": "0123456789ab"}, None),
            await answers.recall(session, {"cursor": "m1"}, None),
            await answers.status(session),
            await answers.view(session, None),
            await answers.context(session, None),
        ]

    async def main() -> None:
        async with Client("http://127.0.0.1:9", retry_seconds=0) as client:
            found = await ask(client.session("s"))
            assert {each["reason"] for each in found} == {"unavailable"}
        async with embedded(tmp_path / "data") as client:
            found = await ask(client.session("s"))
            assert {each["reason"] for each in found} == {"not_found"}

    asyncio.run(main())


def test_what_is_wrong_with_the_arguments_is_told_without_the_secrets_in_them(
    tmp_path: Path,
) -> None:
    async def main() -> list[str]:
        async with embedded(tmp_path / "data") as client:
            server = memory_server(client.session("s"), delegates=True, secrets=["hunter2"])
            async with McpClient(server) as model:
                return [
                    str(await model.call_tool(tool, arguments))
                    for tool, arguments in (
                        ("recall", {"id": "hunter2 please"}),
                        ("recall", {"cursor": "hunter2", "limit": 1_000}),
                        ("spawn_agent", {"childId": "a", "input": "b", "mode": "hunter2"}),
                        ("spawn_agent", {"childId": "a", "input": "b", "hunter2": 1}),
                    )
                ]

    for said in asyncio.run(main()):
        assert "[REDACTED]" in said
        assert "hunter2" not in said


def test_the_command_keeps_out_what_its_settings_name(data: Path, tmp_path: Path) -> None:
    (tmp_path / "secrets.txt").write_text("hunter2\n")

    async def main() -> str:
        server = StdioServerParameters(
            command=OMBUS[0],
            args=[*OMBUS[1:], *command(data)],
            env={**os.environ, "OMBUS_SECRETS_FILE": str(tmp_path / "secrets.txt")},
        )
        async with asyncio.timeout(MAX_WAIT_S), McpClient(server) as client:
            return str(await client.call_tool("recall", {"id": "hunter2 please"}))

    said = asyncio.run(main())

    assert "[REDACTED] please" in said
    assert "hunter2" not in said
