"""The three tools over MCP, asked by the SDK's own client in this process."""

import asyncio
from pathlib import Path
from typing import Any

from mcp import Client as McpClient
from ombus.client import Client
from ombus.mcp.server import memory_server
from ombus_schemas.delegating import TOOLS
from ombus_schemas.supervision import DelegationFinished, DelegationStarted

from tests.gateway.serving import Running, running
from tests.supervision.telling import entry_of

TOML = "[supervision.children.scout]\n"


def test_a_model_spawns_waits_and_is_refused_over_mcp(tmp_path: Path) -> None:
    async def run(gateway: Running) -> None:
        async with Client(gateway.url) as client:
            server = memory_server(client.session("boss"), delegates=True)
            async with McpClient(server) as model:
                listed = {tool.name: tool for tool in (await model.list_tools()).tools}
                for tool in TOOLS:
                    assert listed[tool.name].input_schema == tool.parameters

                async def call(name: str, **given: Any) -> dict[str, Any]:
                    answer = await model.call_tool(name, given)
                    found: dict[str, Any] = answer.structured_content
                    assert answer.is_error == ("error" in found)
                    return found

                spawned = await call("spawn_agent", childId="scout", input="look")
                id = spawned["delegationId"]
                children = gateway.gateway.delegating.delegations()
                about: dict[str, Any] = {"child_id": "scout", "delegation_id": id, "epoch": 1}
                children.wait(b"local/boss", id, 0.2)
                for body in (
                    DelegationStarted(**about, holder="test", lease_ms=60_000),
                    DelegationFinished(**about, status="completed", output="found"),
                ):
                    children.append([entry_of(body, "boss", "local")])
                assert (await call("wait_agent", delegationId=id))["output"] == "found"
                assert (await call("cancel_agent", delegationId=id))["status"] == "terminal"
                assert "error" in await call("spawn_agent", childId="scout", input="x", extra=1)
                assert "error" in await call("wait_agent", delegationId="unknown")

    with running(tmp_path, toml=TOML) as gateway:
        asyncio.run(run(gateway))
