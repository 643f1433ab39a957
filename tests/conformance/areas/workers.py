"""``workers``: one bounded run of a worker over a scripted model (S15).

Asks for ``prompt="reference"`` and ``report_rejections=False`` (design.md section 12, row 20).
"""

import asyncio
from collections.abc import Sequence
from typing import cast

from msgspec import UNSET
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import observation_json, reflection_json
from ombus_schemas.resolution import resolve_worker_limits
from ombus_streams.providers.scripted import Scripted, Turn
from ombus_streams.runtime.provider import Text, ToolCall, TurnEvent, TurnFailed
from ombus_streams.runtime.workers import run_dropper, run_observer, run_reflector

from tests.conformance.cases import (
    OWN_SYSTEM_TEXT,
    Result,
    UnknownOp,
    entries_of,
    failure,
    number_of,
    observations_in,
    secrets_of,
)

_NOW = "<now>"


def run(case: JsonObject) -> Result:
    """Run one worker and say what it asked for and returned."""
    provider = Scripted(script(case["turns"]))
    result: JsonObject
    try:
        items = asyncio.run(_items(str(case["op"]), cast(JsonObject, case["params"]), provider))
        result = {"ok": items}
    except UnknownOp:
        raise
    except Exception as raised:
        result = failure(raised)
    asked = provider.requests[-1].messages if provider.requests else None
    shown = OWN_SYSTEM_TEXT if asked else None
    return {
        "result": result,
        "providerTurns": len(provider.requests),
        "lastRequestMessages": None if asked is None else _messages(asked),
        "systemUtf8Bytes": shown,
        "systemSha256": shown,
    }


def script(turns: JsonValue) -> list[Turn]:
    """Return the turns of a vector's script."""
    return [[_event(event) for event in turn] for turn in cast("list[list[JsonObject]]", turns)]


async def _items(op: str, params: JsonObject, provider: Scripted) -> list[JsonValue]:
    limits = resolve_worker_limits(params)
    secrets = secrets_of(params.get("secrets"))
    instruction = cast("str | None", params.get("instruction"))
    observations = observations_in(params.get("observations", []))
    match op:
        case "observer":
            observed = await run_observer(
                provider,
                entries_of(params["entries"]),
                observations,
                _NOW,
                "s1",
                limits,
                secrets,
                instruction,
                prompt="reference",
                report_rejections=False,
            )
            return [observation_json(item) for item in observed.items]
        case "reflector":
            reflected = await run_reflector(
                provider,
                observations,
                "s1",
                limits,
                secrets,
                instruction,
                prompt="reference",
                report_rejections=False,
            )
            return [reflection_json(item) for item in reflected.items]
        case "dropper":
            dropped = await run_dropper(
                provider,
                observations,
                number_of(params["targetTokens"]),
                "s1",
                limits,
                (),
                secrets,
                instruction,
                prompt="reference",
                report_rejections=False,
            )
            return list(dropped.items)
        case _:
            raise UnknownOp(op)


def _event(event: JsonObject) -> TurnEvent | Exception:
    if "throw" in event:
        return Exception(str(event["throw"]))
    match event.get("type"):
        case "tool_call":
            called = cast(JsonObject, event["call"])
            return ToolCall(
                id=str(called.get("id")),
                name=str(called.get("name")),
                arguments=called.get("arguments", UNSET),
            )
        case "error":
            error = cast(JsonObject, event["error"])
            return TurnFailed(
                message=str(error.get("message")), code=cast("str | int | None", error.get("code"))
            )
        case _:
            return Text("")


def _messages(messages: Sequence[JsonObject]) -> list[JsonValue]:
    """Return the messages of a request with the system text, which is ours, left out."""
    system: JsonObject = {"role": "system", "content": [{"type": "text", "text": "<system>"}]}
    return [system if item["role"] == "system" else item for item in messages]
