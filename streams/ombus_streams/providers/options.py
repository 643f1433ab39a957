"""Options of a model request: ours by name, the rest as the provider spells it."""

from collections.abc import Mapping, Set
from typing import Final, Literal

import msgspec
from ombus_schemas.jsontext import JsonObject, JsonValue

Thinking = Literal["off", "minimal", "low", "medium", "high", "xhigh"]
LEVELS: Final[tuple[Thinking, ...]] = ("off", "minimal", "low", "medium", "high", "xhigh")

ToolChoice = Literal["auto", "required", "named"]
"""``auto``: the model decides. ``required``: some tool. ``named``: the worker's own tool."""


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says beside its messages and tools."""

    correlation_id: str = ""
    """``om:<session>`` unless the host set another (S15)."""
    thinking: Thinking | None = None
    max_tokens: int | None = None
    body: JsonObject = {}
    """Passed on verbatim, as ``temperature``."""


def request_options(options: Mapping[str, JsonValue], fixed: Set[str]) -> RequestOptions:
    """Return what ``options`` mean; a name in ``fixed`` is the adapter's own and passed over."""
    session, level, most = (options.get(k) for k in ("sessionId", "thinkingLevel", "maxTokens"))
    ours = {"sessionId", "thinkingLevel", "maxTokens"}
    return RequestOptions(
        correlation_id=session if isinstance(session, str) else "",
        thinking=next((each for each in LEVELS if each == level), None),
        max_tokens=most if type(most) is int and most > 0 else None,
        body={key: value for key, value in options.items() if key not in ours and key not in fixed},
    )


def correlation_headers(correlation_id: str) -> dict[str, str]:
    """Return the header a gateway finds all requests of one session's memory by."""
    is_plain = correlation_id.isascii() and correlation_id.isprintable()
    return {"x-session-id": correlation_id} if correlation_id and is_plain else {}
