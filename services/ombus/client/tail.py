"""Server-sent events of a tail, decoded."""

from collections.abc import AsyncIterator
from typing import Literal

import msgspec
from ombus_schemas.jsontext import JsonObject


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event. Give ``position`` as ``after`` to go on behind it."""

    kind: Literal["open", "entry", "gap"]
    position: str | None
    data: JsonObject
    """Of an entry: ``position``, ``atMs``, ``id``, ``kind``, ``entry`` or ``withheld``. Of a gap:
    ``from``, ``to``, ``records``."""


async def events(lines: AsyncIterator[str]) -> AsyncIterator[Event]:
    """Yield the events in a stream of lines; heartbeats and unknown ones are passed over."""
    async for name, data, position in _frames(lines):
        if name in ("open", "entry", "gap"):
            said = {"kind": name, "position": position, "data": msgspec.json.decode(data)}
            yield msgspec.convert(said, Event)


async def told(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, str]]:
    """Yield position and data of the events named ``event`` in a stream of lines."""
    async for name, data, position in _frames(lines):
        if name == "event":
            yield position or "", data


async def _frames(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, str, str | None]]:
    """Yield name, data and id of each event that has data."""
    name, data, position = "", "", None
    async for line in lines:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "event":
                name = value
            case "data":
                data += value
            case "id":
                position = value
            case "" if not line:
                if data:
                    yield name, data, position
                name, data, position = "", "", None
