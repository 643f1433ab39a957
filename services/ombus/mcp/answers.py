"""What the tools answer: values a model can read, also when there is nothing to be had (S22).

Everything fails closed: another session, an id that is none, a gateway that is away or says no
comes to a value that says so and holds nothing else. Arguments are never logged.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import structlog
from ombus_schemas.api import Read
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory.commands import USAGE
from ombus_streams.memory.pages import NoPage, page
from ombus_streams.memory.recall_tool import Answer, answer, request_of

from ombus.client import OmbusError, Session
from ombus.client.errors import NotFound

UNAVAILABLE: Final = "The memory cannot be read now: go on without it, or ask again later."
ABSENT: Final = "This session has no memory yet."

Found = TypeVar("Found", bound=Read)

_log = structlog.get_logger("ombus.mcp")


async def recall(
    session: Session, arguments: JsonObject, page_limit: JsonValue, secrets: Sequence[str] = ()
) -> JsonObject:
    """Return a memory with its sources, or a page of messages, or why not.

    ``secrets`` are kept out of what is answered here; a gateway keeps out its own.
    """
    asked = request_of(arguments, session.id, page_limit, secrets)
    if isinstance(asked, Answer):
        return asked.value
    if asked.memory_id is not None:
        memory_id = asked.memory_id
        found = await _answered("recall", session, lambda: session.recall(memory_id))
        return found if isinstance(found, dict) else found.recalled
    judged = page((), asked.cursor, asked.limit, asked.direction, asked.detail)
    if isinstance(judged, NoPage) and judged.reason == "limit_exceeded":
        return answer(asked, (), secrets).value
    limit = judged.limit
    assert isinstance(limit, int)
    messages = await _answered(
        "recall",
        session,
        lambda: session.page(
            asked.cursor,
            limit=limit,
            direction="forward" if asked.direction == "forward" else None,
            detail="full" if asked.detail == "full" else None,
        ),
    )
    return messages if isinstance(messages, dict) else messages.page


async def status(session: Session) -> JsonObject:
    """Return the counts of the memory."""
    found = await _answered("memory_status", session, session.status)
    return found if isinstance(found, dict) else found.status


async def view(session: Session, mode: JsonValue) -> JsonObject:
    """Return the memory as a person reads it; ``mode`` is ``full`` or nothing."""
    if isinstance(mode, str) and mode not in ("", "full"):
        return {"error": {"message": USAGE}}
    asked = "full" if mode == "full" else None
    found = await _answered("memory_view", session, lambda: session.view(mode=asked))
    return found if isinstance(found, dict) else found.view


async def context(session: Session, max_tokens: JsonValue) -> JsonObject:
    """Return the blocks a model reads before it answers."""
    tokens = None
    if isinstance(max_tokens, int | float) and not isinstance(max_tokens, bool):
        tokens = float(max_tokens) if max_tokens >= 0 else None
    found = await _answered("memory_context", session, lambda: session.context(max_tokens=tokens))
    if isinstance(found, dict):
        return found
    blocks: list[JsonValue] = [
        {"title": block.title, "content": block.content, "priority": block.priority}
        for block in found.blocks
    ]
    text = "\n\n".join(
        f"<{block.title}>\n{block.content}\n</{block.title}>" for block in found.blocks
    )
    return {"blocks": blocks, "leaf": found.leaf, "position": found.position, "text": text}


async def _answered(
    tool: str, session: Session, ask: Callable[[], Awaitable[Found]]
) -> Found | JsonObject:
    """Return the answer if it is one of this session, else a value that says there is none."""
    try:
        found = await ask()
    except OmbusError as error:
        _log.warning("tool.refused", tool=tool, error=type(error).__name__)
        if isinstance(error, NotFound):
            return {"found": False, "reason": "not_found", "text": ABSENT}
        return {"found": False, "reason": "unavailable", "text": UNAVAILABLE}
    if found.session != session.id:
        _log.error("tool.refused", tool=tool, error="wrong_session")
        return {"found": False, "reason": "wrong_session", "text": UNAVAILABLE}
    _log.info("tool.answered", tool=tool, position=found.position)
    return found
