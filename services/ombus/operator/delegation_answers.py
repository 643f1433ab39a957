"""What is told of delegations: their handles and events as callers of any kind read them."""

from collections.abc import Callable, Iterable, Sequence

from ombus_schemas.codec import decode
from ombus_schemas.delegating import DelegationAnswer, SupervisionTold, TreeNode
from ombus_schemas.entries import Entry
from ombus_schemas.errors import BadRecord
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.redaction import redact
from ombus_schemas.supervision import supervision_event_of
from ombus_streams.runtime.ports import LogRecord, Position
from ombus_streams.supervision.handle import Handle, Heard, is_granted
from ombus_streams.supervision.parent import handle_of

from ombus.wiring_supervision import View


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
    records: Sequence[LogRecord],
    key: bytes,
    rows: View,
    incarnation: str,
    secrets: tuple[str, ...],
) -> tuple[list[SupervisionTold], int | None]:
    """Return the events of a session that records carry, but for news that was not granted.

    With the offset of the first one that cannot be judged: ``rows`` have not come so far.
    """
    row = rows.position()
    next_offset = 0 if row is None else row.next_offset
    found: list[SupervisionTold] = []
    for record in records:
        entry = _entry_of(record) if record.key == key else None
        if entry is None or not isinstance(entry.data, dict):
            continue
        is_heard = _is_heard(entry, key, rows)
        if is_heard is None and record.offset >= next_offset:
            return found, record.offset
        if is_heard:
            position = str(Position(incarnation, record.partition, record.offset))
            event = _shown(entry.data, secrets)
            told = SupervisionTold(position=position, at_ms=record.at_ms, id=entry.id, event=event)
            found.append(told)
    return found, None


def _entry_of(record: LogRecord) -> Entry | None:
    try:
        return decode(record.value or b"null")
    except BadRecord:
        return None


def _is_heard(entry: Entry, key: bytes, rows: View) -> bool | None:
    """Say whether an event is told; ``None``: it is of a child that nobody claimed, as rows say.

    What was granted stands from the admission on, so rows ahead of the event judge it, too.
    """
    event = supervision_event_of(entry)
    if not isinstance(event, Heard):
        return True
    handle = handle_of(rows, key, event.delegation_id)
    if handle is None or handle.lease is None:
        return None
    return is_granted(handle.policy, event)


def _shown(said: JsonObject, secrets: tuple[str, ...]) -> JsonObject:
    shown = redact(said, secrets, max_depth=None)
    assert isinstance(shown, dict)
    return shown
