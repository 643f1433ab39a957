"""One route of the HTTP API, and what several routes share: roles, and parameters of a read.

``roles`` are those of which one is needed. A route with ``{session}`` answers ``not_found`` for
a session that is not there and for one the caller may not use: the same bytes.
"""

from typing import Final, Literal

import msgspec

from ombus_schemas.api import ApiRole

PREFIX: Final = "/v1"
SESSION: Final = PREFIX + "/sessions/{session}"

MAX_NUMBER: Final = 2**53
"""Of a number in a query, either way: what JSON's readers agree on."""

ParamType = Literal["string", "integer", "number", "boolean"]


class Param(msgspec.Struct, frozen=True):
    """One parameter of the query."""

    name: str
    type: ParamType
    meaning: str
    minimum: int | None = None
    required: bool = False
    one_of: tuple[str, ...] = ()
    """What a string may be; empty: anything."""
    pattern: str | None = None


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One operation."""

    name: str
    method: Literal["GET", "POST"]
    path: str
    meaning: str
    roles: frozenset[ApiRole]
    answer: type[msgspec.Struct]
    body: type[msgspec.Struct] | None = None
    params: tuple[Param, ...] = ()
    creates: bool = False
    """Whether the session may be one that is not there yet."""
    streams: bool = False
    """Whether the answer is a stream of server-sent events, each with an ``answer`` as data."""

    @property
    def of_session(self) -> bool:
        return "{session}" in self.path


_LEAF: Final = Param("leaf", "string", "The entry the branch ends at. Default: the one last come.")
AS_OF: Final = Param("asOf", "string", "Answer as the log stood below this position.")
AT_LEAST: Final = Param("atLeast", "string", "Wait until this position is folded.")
WAIT: Final = Param("waitSeconds", "number", "How long `atLeast` waits at most.", 0)
READ: Final = (_LEAF, AS_OF, AT_LEAST, WAIT)

PUBLISHERS: Final[frozenset[ApiRole]] = frozenset({"publisher", "supervisor", "operator"})
READERS: Final[frozenset[ApiRole]] = frozenset({"reader", "supervisor", "operator"})
STEERERS: Final[frozenset[ApiRole]] = frozenset({"supervisor", "operator"})
