"""Flush and compact: a request goes onto the log, and its answer comes from there."""

import time

import msgspec
from ombus_schemas.codec import encode
from ombus_schemas.jsontext import JsonValue, utf8_length
from ombus_schemas.records import compaction_of

from ombus.operator.control import control_entry, first_after, open_session
from ombus.operator.desk import Desk
from ombus.operator.errors import NoLeaf
from ombus.operator.lookup import looking


class Flushed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a flush ended; the counts say what was persisted even if it failed."""

    session: str
    leaf: str
    flush_id: str
    failure: str | None
    """``None``: complete."""
    observations: int
    reflections: int
    dropped: int
    seconds: float


class Compacted(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a compaction ended."""

    session: str
    leaf: str
    request_id: str
    failure: str | None
    """Why it was refused: ``nothing_folded``, ``no_progress``, ``passive``. ``None``: done."""
    compaction_id: str | None = None
    through: str | None = None
    """The last entry the summary stands for."""
    observations: int = 0
    reflections: int = 0
    trimmed: int = 0
    """Active observations that the payload's caps left out; recall still finds them."""
    summary_bytes: int = 0
    entry_bytes: int = 0
    milliseconds: float = 0.0
    """From the request to its answer on the log."""


def flush(desk: Desk, key: bytes, leaf_id: str | None = None) -> Flushed:
    """Cover, reflect and drop everything up to the leaf, and wait for the end of it.

    Raises:
        NoLeaf: the session has none, or not this one.
        Unanswered: whoever folds did not get on.
    """
    desk.catch_up()
    tip = _tip(desk, key, leaf_id)
    started = time.monotonic()
    request = control_entry(desk, key, tip, {"type": "om.flush.requested"})
    (position,) = desk.append([request])
    ends = ("om.flush.completed", "om.flush.failed")
    answer = first_after(
        desk,
        position,
        lambda entry: entry.data_type in ends and _field(entry.data, "flushId") == request.id,
        f"the end of flush {request.id}",
    )
    desk.catch_up()
    failed = answer.data_type == ends[1]
    return Flushed(
        session=key.decode(),
        leaf=tip,
        flush_id=request.id,
        failure=str(_field(answer.data, "reason")) if failed else None,
        observations=_count(answer.data, "observations"),
        reflections=_count(answer.data, "reflections"),
        dropped=_count(answer.data, "dropped"),
        seconds=time.monotonic() - started,
    )


def compact(desk: Desk, key: bytes, leaf_id: str | None = None) -> Compacted:
    """Compact the leaf as it stands, and wait for the compaction or its refusal. No model call.

    Raises: as ``flush``.
    """
    desk.catch_up()
    tip = _tip(desk, key, leaf_id)
    with looking(desk, key, leaf_id) as lens:
        n_active = lens.leaf.n_active
    started = time.monotonic()
    request = control_entry(desk, key, tip, {"type": "om.compact.requested"})
    (position,) = desk.append([request])
    answer = first_after(
        desk,
        position,
        lambda entry: (
            (entry.kind == "compaction" and _field(entry.data, "cause") == request.id)
            or (
                entry.data_type in ("om.compact.failed", "om.compact.completed")
                and _field(entry.data, "requestId") == request.id
            )
        ),
        f"the end of compaction {request.id}",
    )
    milliseconds = (time.monotonic() - started) * 1_000
    desk.catch_up()
    compaction = compaction_of(answer)
    if compaction is None:
        failed = answer.data_type == "om.compact.failed"
        named = _field(answer.data, "compactionId")
        return Compacted(
            session=key.decode(),
            leaf=tip,
            request_id=request.id,
            failure=str(_field(answer.data, "reason")) if failed else None,
            compaction_id=named if isinstance(named, str) else None,
            milliseconds=milliseconds,
        )
    memory = compaction.memory
    assert memory is not None
    return Compacted(
        session=key.decode(),
        leaf=tip,
        request_id=request.id,
        failure=None,
        compaction_id=answer.id,
        through=compaction.through_entry_id,
        observations=len(memory.observations),
        reflections=len(memory.reflections),
        trimmed=max(0, n_active - len(memory.observations)),
        summary_bytes=utf8_length(answer.summary or ""),
        entry_bytes=len(encode(answer)),
        milliseconds=milliseconds,
    )


def _tip(desk: Desk, key: bytes, leaf_id: str | None) -> str:
    tip = open_session(desk, key, leaf_id)
    if tip is None:
        raise NoLeaf(key.decode(), None)
    return tip


def _field(data: JsonValue, name: str) -> JsonValue:
    return data.get(name) if isinstance(data, dict) else None


def _count(data: JsonValue, name: str) -> int:
    value = _field(data, name)
    return value if isinstance(value, int) else 0
