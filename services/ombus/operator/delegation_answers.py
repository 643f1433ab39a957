"""What is told of delegations: their handles and events as callers of any kind read them."""

from collections.abc import Callable, Iterable

from ombus_schemas.codec import decode
from ombus_schemas.delegating import DelegationAnswer, SupervisionTold, TreeNode
from ombus_schemas.errors import BadRecord
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.redaction import redact
from ombus_streams.runtime.ports import LogRecord, Position
from ombus_streams.supervision.handle import Handle


def answer_of(session: str, handle: Handle) -> DelegationAnswer:
    """Return a delegation of a session as it stands."""
    return DelegationAnswer(
        session=session,
        delegation_id=handle.id,
        child_id=handle.child_id,
        state=handle.state,
        status=handle.status or "completed" if handle.state == "finished" else handle.state,
        is_over=handle.is_over,
        child_session_id=handle.child_session_id,
        depth=handle.depth,
        lifetime=handle.lifetime,
        reason=handle.reason,
        output=handle.output,
        total_tokens=handle.total_tokens,
        usage=handle.usage,
        limits=handle.limits if handle.admitted_ms is not None else {},
    )


def node_of(
    handle: Handle, handles_of: Callable[[str], Iterable[Handle]], secrets: tuple[str, ...]
) -> TreeNode:
    """Return a delegation with all below it; ``handles_of`` lists those of a session."""
    news = handle.news
    return TreeNode(
        delegation_id=handle.id,
        child_id=handle.child_id,
        state=handle.state,
        child_session_id=handle.child_session_id,
        depth=handle.depth,
        lifetime=handle.lifetime,
        reason=handle.reason,
        attempts=0 if handle.lease is None else handle.lease.epoch,
        total_tokens=handle.total_tokens,
        turn=news.turn,
        milestone=None if news.milestone is None else _shown(news.milestone, secrets),
        events=news.n_events,
        coalesced=news.n_coalesced,
        is_capped=news.is_capped,
        requested_ms=handle.requested_ms,
        ended_ms=handle.ended_ms,
        children=tuple(
            node_of(each, handles_of, secrets) for each in handles_of(handle.child_session_id)
        ),
    )


def told_of(
    record: LogRecord, incarnation: str, secrets: tuple[str, ...]
) -> SupervisionTold | None:
    """Return the event that a record carries; ``None``: it carries none."""
    try:
        entry = decode(record.value or b"null")
    except BadRecord:
        return None
    if not isinstance(entry.data, dict):
        return None
    position = Position(incarnation, record.partition, record.offset)
    event = _shown(entry.data, secrets)
    return SupervisionTold(position=str(position), at_ms=record.at_ms, id=entry.id, event=event)


def _shown(said: JsonObject, secrets: tuple[str, ...]) -> JsonObject:
    shown = redact(said, secrets, max_depth=None)
    assert isinstance(shown, dict)
    return shown
