"""Delegating as MCP tools: ``spawn_agent``, ``wait_agent``, ``cancel_agent`` with closed schemas.

Arguments go to ``Delegations.call_tool`` as they came: what the schemas refuse it refuses, as a
value a model can read, before anything is delegated.
"""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from ombus_schemas.delegating import WAIT_AGENT
from ombus_schemas.redaction import redact
from pydantic import ConfigDict

from ombus.client.delegations import Delegations

WAIT_SECONDS = 25.0
"""A model's call waits no longer; it asks again."""


class Given(ArgModelBase):
    """Any arguments, handed on as they came."""

    model_config = ConfigDict(extra="allow")

    def model_dump_one_level(self) -> dict[str, Any]:
        return {"given": dict(self.model_extra or {})}


def child_tools(children: Delegations, secrets: Sequence[str] = ()) -> list[Tool]:
    """Return the tools over one session's children; ``secrets`` are not told back by a refusal."""
    return [
        Tool(
            fn=partial(_call, children, secrets, tool.name),
            name=tool.name,
            title=None,
            description=tool.description,
            parameters=tool.parameters,
            fn_metadata=FuncMetadata(arg_model=Given),
            is_async=True,
            context_kwarg=None,
            annotations=ToolAnnotations(
                read_only_hint=tool is WAIT_AGENT,
                idempotent_hint=tool is WAIT_AGENT,
                open_world_hint=True,
            ),
        )
        for tool in children.tools
    ]


async def _call(
    children: Delegations, secrets: Sequence[str], name: str, given: dict[str, Any]
) -> CallToolResult:
    value = await children.call_tool(name, given, wait_seconds=WAIT_SECONDS)
    is_error = "error" in value
    shown = redact(value, secrets, max_depth=None) if is_error else value
    assert isinstance(shown, dict)
    text = TextContent(type="text", text=json.dumps(shown, ensure_ascii=False))
    return CallToolResult(content=[text], structured_content=shown, is_error=is_error)
