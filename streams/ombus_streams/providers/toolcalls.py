"""Tool calls as they arrive in pieces: whole ones are handed on, broken ones end the turn."""

import json
from collections.abc import Iterable
from typing import Final

from ombus_schemas.jsontext import JsonValue

from ombus_streams.runtime.provider import ToolCall, TurnFailed

MAX_PIECES_BYTES: Final = 8_388_608
"""What the arguments of one call may weigh while they are gathered; the loop's cap is lower."""


class CallBuilder:
    """One call under construction."""

    def __init__(self, call_id: str = "", name: str = "") -> None:
        self.call_id, self.name = call_id, name
        self._pieces: list[str] = []
        self._size = 0

    def add(self, piece: str) -> bool:
        """Take a piece of the arguments; false when they have become too large to go on."""
        self._pieces.append(piece)
        self._size += len(piece)
        return self._size <= MAX_PIECES_BYTES

    def finish(self, taken: Iterable[str], number: int) -> ToolCall | TurnFailed:
        """Return the call under an id of its own, or why its arguments are no JSON.

        Arguments that break off would be sanitised into another call than the model meant to make,
        so they end the turn. None at all are an empty object: some servers leave them out.
        """
        text = "".join(self._pieces)
        try:
            arguments: JsonValue = json.loads(text) if text.strip() else {}
        except (ValueError, RecursionError):
            return TurnFailed(
                message=f"the arguments of a call of {self.name[:64]} are no JSON, or break off "
                f"after {len(text):,} characters",
                code="bad_arguments",
            )
        return ToolCall(
            id=unique_id(self.call_id, taken, number), name=self.name, arguments=arguments
        )


def unique_id(call_id: str, taken: Iterable[str], number: int) -> str:
    """Return the server's id of a call, or one that no other call of the turn has."""
    names = frozenset(taken)
    found = call_id or f"call_{number}"
    while found in names:
        found = f"{found}_{number}"
    return found
