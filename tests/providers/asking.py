"""A request as the loop makes it, and the events of its turn."""

import asyncio
from collections.abc import Callable

from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.runtime.prompts import system_text, tool_of
from ombus_streams.runtime.provider import Material, ModelProvider, ModelRequest, TurnEvent

from tests.providers.wire import Reply, Wire, wire

Opened = Callable[[str], ModelProvider]
"""A provider of an address."""

FOLLOW_UP: tuple[JsonObject, ...] = (
    {
        "role": "assistant",
        "content": [
            {
                "type": "tool_call",
                "id": "c1",
                "name": "record_observation",
                "arguments": {"content": "ä"},
            },
            {"type": "tool_call", "id": "c2", "name": "record_observation", "arguments": {}},
        ],
    },
    {
        "role": "tool",
        "content": [
            {
                "type": "tool_result",
                "toolCallId": "c1",
                "name": "record_observation",
                "result": {"ok": True},
            }
        ],
    },
    {
        "role": "tool",
        "content": [
            {
                "type": "tool_result",
                "toolCallId": "c2",
                "name": "record_observation",
                "result": {"ok": True, "rejected": {"content_missing": []}},
            }
        ],
    },
)
"""The transcript after a first turn of two calls."""


def request(*more: JsonObject, **options: JsonValue) -> ModelRequest:
    """Return an observer's request whose transcript goes on with ``more``."""
    first: tuple[JsonObject, ...] = (
        {
            "role": "system",
            "content": [{"type": "text", "text": system_text("observer", "fenced")}],
        },
        {"role": "user", "content": [{"type": "text", "text": "=== source e1\n| use tabs 🙂"}]},
    )
    return ModelRequest(
        worker="observer",
        messages=(*first, *more),
        tools=(tool_of("observer", "fenced"),),
        options={"sessionId": "om:s1", **options},
        max_calls=32,
        max_run_calls=128,
        n_calls=0,
        material=Material(),
    )


def ask(opened: Opened, *replies: Reply, asked: ModelRequest | None = None) -> list[TurnEvent]:
    """Return the events of one turn against a server with ``replies``."""
    return asked_of(opened, *replies, asked=asked)[0]


def asked_of(
    opened: Opened, *replies: Reply, asked: ModelRequest | None = None
) -> tuple[list[TurnEvent], Wire]:
    """Return the events of one turn, and the server as it was asked."""

    async def turn() -> tuple[list[TurnEvent], Wire]:
        async with wire(*replies) as server:
            provider = opened(server.url)
            return [event async for event in provider.turn(asked or request())], server

    return asyncio.run(turn())
