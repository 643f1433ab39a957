"""The tool an agent recalls with: one memory by id, or a page of messages by cursor (S22).

In two steps, because what cannot be answered must not fetch: ``request_of`` judges the arguments,
``answer`` looks into the entries. Failures are ordinary values, for a model to read.
"""

import json
from collections.abc import Sequence, Set
from typing import Final, Literal

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue, trim
from ombus_schemas.records import is_memory_id

from ombus_streams.memory.pages import DEFAULT_LIMIT, page, page_json
from ombus_streams.memory.recall import recall, recall_json
from ombus_streams.memory.redact import redact_text, redacted_json_text
from ombus_streams.memory.shared import SharedMemory

NAME: Final = "recall"

Reason = Literal["wrong_session", "invalid_request"]
_WORDS: Final[dict[Reason, str]] = {
    "wrong_session": "Recall answers for the session it runs in, and only from its entries.",
    "invalid_request": "Ask for one thing: an id in brackets, or a cursor, not both.",
}


class Answer(msgspec.Struct, kw_only=True, frozen=True):
    """What the tool returns."""

    value: JsonObject
    text: str


class RecallRequest(msgspec.Struct, kw_only=True, frozen=True):
    """Arguments that can be looked up."""

    session_id: str
    memory_id: str | None = None
    """``None``: a page is asked for."""
    cursor: str = ""
    limit: JsonValue = DEFAULT_LIMIT
    direction: JsonValue = None
    detail: JsonValue = None


def request_of(
    arguments: JsonObject,
    session_id: str,
    page_limit: JsonValue = None,
    secrets: Sequence[str] = (),
) -> RecallRequest | Answer:
    """Return what is asked for, or why nothing is looked up at all, redacted like any answer.

    ``page_limit`` is the host's; it holds where the model gave no number.
    """
    asked = arguments.get("sessionId")
    if isinstance(asked, str) and asked and asked != session_id:
        return _refused("wrong_session")
    memory_id, cursor = arguments.get("id"), arguments.get("cursor")
    has_id = isinstance(memory_id, str) and memory_id != ""
    has_cursor = isinstance(cursor, str) and trim(cursor) != ""
    if has_id == has_cursor:
        return _refused("invalid_request")
    if has_id and isinstance(memory_id, str):
        if not is_memory_id(memory_id):
            return _answer(recall_json(recall((), memory_id)), secrets)
        return RecallRequest(session_id=session_id, memory_id=memory_id)
    limit = arguments.get("limit")
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        limit = DEFAULT_LIMIT if page_limit is None else page_limit
    return RecallRequest(
        session_id=session_id,
        cursor=str(cursor),
        limit=limit,
        direction=arguments.get("direction"),
        detail=arguments.get("detail"),
    )


def answer(
    request: RecallRequest,
    entries: Sequence[Entry],
    secrets: Sequence[str] = (),
    invalidated_ids: Set[str] = frozenset(),
    shared: SharedMemory | None = None,
) -> Answer:
    """Return the answer to ``request`` from the entries of its session, redacted whole."""
    if any(entry.session_id != request.session_id for entry in entries):
        return _refused("wrong_session")
    if request.memory_id is not None:
        found = recall(entries, request.memory_id, secrets, invalidated_ids, shared)
        return _answer(recall_json(found), secrets)
    messages = page(
        entries, request.cursor, request.limit, request.direction, request.detail, secrets
    )
    return _answer(page_json(messages), secrets)


def _answer(value: JsonObject, secrets: Sequence[str]) -> Answer:
    redacted = json.loads(redacted_json_text(value, secrets))
    assert isinstance(redacted, dict)
    return Answer(value=redacted, text=redact_text(str(value["text"]), secrets))


def _refused(reason: Reason) -> Answer:
    text = _WORDS[reason]
    return Answer(value={"found": False, "reason": reason, "text": text}, text=text)
