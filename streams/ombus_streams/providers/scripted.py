"""A model that says what it was told to: for tests and recorded conversations.

It answers turn by turn from a script; after the script every turn is empty. What it was asked is
kept, so that a test can read the prompt.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

from ombus_schemas.jsontext import JsonValue

from ombus_streams.runtime.provider import ModelRequest, ToolCall, TurnEvent

Turn = Sequence[TurnEvent | Exception]
"""The events of one turn; an exception is raised where it stands in the stream."""


class Scripted:
    """A provider over a fixed script, or over a function of the request."""

    def __init__(
        self,
        turns: Iterable[Turn] | Callable[[ModelRequest], Turn] = (),
        *,
        name: str = "scripted",
        model: str = "scripted",
    ) -> None:
        self.name, self.model = name, model
        self.requests: list[ModelRequest] = []
        """Every request, in order."""
        self._answer = turns if callable(turns) else _in_order(turns)

    async def turn(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        """Yield the next scripted turn, or the function's answer."""
        self.requests.append(request)
        for event in self._answer(request):
            if isinstance(event, Exception):
                raise event
            yield event


def call(tool: str, call_id: str = "c1", /, **arguments: JsonValue) -> ToolCall:
    """Return a tool call as a model would make it."""
    return ToolCall(id=call_id, name=tool, arguments=arguments)


def _in_order(turns: Iterable[Turn]) -> Callable[[ModelRequest], Turn]:
    left = iter(turns)
    return lambda _request: next(left, ())
