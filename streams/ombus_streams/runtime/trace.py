"""What ``debugLog`` writes: every request and answer of a session's runs, one JSON object each.

Unlike logs it holds prompts and answers, because a person asked for them by name; secrets are
concealed here as anywhere. Where the objects go is the engine's.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Protocol

import msgspec
from ombus_schemas.jsontext import JsonObject, JsonValue

from ombus_streams.runtime.provider import ModelProvider, ModelRequest, TurnEvent


class Trace(Protocol):
    """Takes a session's events in order. It never fails a run: what cannot be kept is lost."""

    def write(self, tenant: str, session: str, event: JsonObject) -> None: ...


class Traced:
    """A provider whose requests and answers are told to ``tell``."""

    def __init__(self, provider: ModelProvider, tell: Callable[[JsonObject], None]) -> None:
        self.name, self.model = provider.name, provider.model
        self._provider, self._tell = provider, tell
        self._n_told = 0

    async def turn(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        new: list[JsonValue] = list(request.messages[self._n_told :])
        self._n_told = len(request.messages)
        self._tell({"event": "turn.asked", "messages": new, "options": request.options})
        async with aclosing(self._provider.turn(request)) as events:
            async for event in events:
                body: JsonValue = msgspec.to_builtins(event)
                self._tell({"event": "turn.answered", "kind": type(event).__name__, "body": body})
                yield event
