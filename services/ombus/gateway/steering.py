"""Requests and facts that steer a session: side records on its leaf, answered from the log."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from ombus_schemas import api
from ombus_schemas.codec import decode
from ombus_schemas.entries import Entry
from ombus_schemas.errors import BadRecord
from ombus_schemas.ids import WORKER_ID_PREFIX, is_entry_id
from ombus_schemas.jsontext import JsonObject, JsonValue, utf8_length
from ombus_schemas.records import compaction_of
from ombus_streams.memory import compactor
from ombus_streams.memory.effects import RunCompactor
from ombus_streams.memory.errors import MemoryFault
from ombus_streams.memory.head import CompactRequest
from ombus_streams.memory.terms import is_run_active
from ombus_streams.runtime.ports import LogRecord, Position

from ombus.gateway.calls import Call
from ombus.gateway.hosting import MAX_PAUSE_S, Host
from ombus.gateway.limits import Limits
from ombus.gateway.problems import ApiError
from ombus.gateway.reads import leaf_id
from ombus.operator import invalidating
from ombus.operator.control import control_entry, open_session
from ombus.operator.desk import Desk
from ombus.operator.invalidating import MAX_IDS
from ombus.operator.lookup import looking

PAGE: Final = 200

IsEnd = Callable[[Entry], bool]


class Asked(msgspec.Struct, frozen=True):
    """A control entry that is on the log."""

    id: str
    leaf: str
    position: Position
    """From here on its answer may come; of one asked again, from the beginning."""


async def flush(host: Host, call: Call, limits: Limits) -> api.FlushAnswer:
    """Ask for a flush and say how it ended, or that it goes on."""
    said = call.decoded(api.FlushRequest)
    asked = await _ask(host, call, {"type": "om.flush.requested"}, said.id, said.leaf)

    def is_end(entry: Entry) -> bool:
        ends = ("om.flush.completed", "om.flush.failed")
        return entry.data_type in ends and _field(entry.data, "flushId") == asked.id

    answer, position = await _answer(host, call, asked, is_end, said.wait_seconds, limits)
    if answer is None:
        return api.FlushAnswer(
            session=_name(call), leaf=asked.leaf, id=asked.id, status="pending",
            position=str(position),
        )  # fmt: skip
    failed = answer.data_type == "om.flush.failed"
    return api.FlushAnswer(
        session=_name(call),
        leaf=asked.leaf,
        id=asked.id,
        status="failed" if failed else "completed",
        position=str(position),
        reason=str(_field(answer.data, "reason")) if failed else None,
        observations=_count(answer.data, "observations"),
        reflections=_count(answer.data, "reflections"),
        dropped=_count(answer.data, "dropped"),
    )


async def compact(host: Host, call: Call, limits: Limits) -> api.CompactAnswer:
    """Ask for a compaction and say what came of it; with ``dryRun`` what would."""
    said = call.decoded(api.CompactRequestBody)
    if said.dry_run:
        return await host.call(lambda: _tried(host.desk, call, said.leaf))
    asked = await _ask(host, call, {"type": "om.compact.requested"}, said.id, said.leaf)

    def is_end(entry: Entry) -> bool:
        if entry.kind == "compaction":
            return _field(entry.data, "cause") == asked.id
        ends = ("om.compact.failed", "om.compact.completed")
        return entry.data_type in ends and _field(entry.data, "requestId") == asked.id

    answer, position = await _answer(host, call, asked, is_end, said.wait_seconds, limits)
    status: api.CompactAnswer = api.CompactAnswer(
        session=_name(call), leaf=asked.leaf, id=asked.id, status="pending", position=str(position)
    )
    if answer is None:
        return status
    compaction = compaction_of(answer)
    if answer.data_type == "om.compact.failed":
        reason = str(_field(answer.data, "reason"))
        return msgspec.structs.replace(status, status="refused", reason=reason)
    if compaction is None or compaction.memory is None:
        return msgspec.structs.replace(status, status="completed")
    return msgspec.structs.replace(
        status,
        status="completed",
        through=compaction.through_entry_id,
        observations=len(compaction.memory.observations),
        reflections=len(compaction.memory.reflections),
        summary_bytes=utf8_length(answer.summary or ""),
    )


async def run_fact(host: Host, call: Call, name: str) -> api.FactAnswer:
    """Say that a run of the host began or ended; folded once this returns."""
    said = call.decoded(api.RunRequest)
    body: JsonObject = {"type": name, "runId": call.path["run"]}
    return await _fact(host, call, body, said.id, said.leaf)


async def invalidate(host: Host, call: Call) -> api.InvalidationAnswer:
    """Take sources out of every memory; once this returns no read shows them (section 10)."""
    said = call.decoded(api.InvalidationRequest)
    if not 0 < len(said.ids) <= MAX_IDS:
        raise ApiError("bad_request", f"ids holds 1 to {MAX_IDS:,} ids")
    body = invalidating.body_of(said.ids, said.reason, hold=said.hold)
    asked = await _ask(host, call, body, said.id, None)
    await host.until_folded(asked.position)
    return await host.call(
        lambda: invalidating.settle(host.desk, call.key, asked.id, asked.position)
    )


async def _fact(
    host: Host, call: Call, body: JsonObject, entry_id: str | None, leaf: str | None
) -> api.FactAnswer:
    asked = await _ask(host, call, body, entry_id, leaf)
    await host.until_folded(asked.position)
    return api.FactAnswer(session=_name(call), id=asked.id, position=str(asked.position))


async def _ask(
    host: Host, call: Call, body: JsonObject, entry_id: str | None, leaf: str | None
) -> Asked:
    """Append a control entry, once for one id."""
    if entry_id is not None and (
        not is_entry_id(entry_id) or entry_id.startswith(WORKER_ID_PREFIX)
    ):
        raise ApiError("bad_request", "id is no entry id")
    await host.caught_up(call.key)
    return await host.call(lambda: _asked(host.desk, call, body, entry_id, leaf))


def _asked(
    desk: Desk, call: Call, body: JsonObject, entry_id: str | None, leaf: str | None
) -> Asked:
    tip = leaf_id(desk, call.key, leaf)
    if entry_id is not None:
        with desk.engine.reading(call.key) as live:
            known, folded = live.session.entry(entry_id), live.position
        if known is not None:
            if known.data != body:
                raise ApiError("conflict", "the session has another entry of this id")
            start = Position(folded.incarnation, folded.partition, 0)
            return Asked(entry_id, known.parent or tip, start)
    open_session(desk, call.key, leaf)
    entry = control_entry(desk, call.key, tip, body)
    if entry_id is not None:
        entry = msgspec.structs.replace(entry, id=entry_id)
    (position,) = desk.append([entry])
    return Asked(entry.id, tip, position)


async def _answer(
    host: Host, call: Call, asked: Asked, is_end: IsEnd, wait_seconds: float, limits: Limits
) -> tuple[Entry | None, Position]:
    """Return the entry that ends the request, folded, or nothing when the time is over."""
    loop, log = asyncio.get_running_loop(), host.engine.log
    deadline = loop.time() + max(0.0, min(wait_seconds, limits.max_wait_seconds))
    partition, offset = asked.position.partition, asked.position.offset
    pause = 0.002
    while True:
        page = await host.call(partial(log.read, partition, offset, PAGE))
        for record in page:
            offset = record.offset + 1
            entry = _entry(record) if record.key == call.key else None
            if entry is not None and is_end(entry):
                position = Position(log.incarnation, partition, record.offset)
                await host.until_folded(position)
                return entry, position
        if page:
            continue
        if loop.time() >= deadline:
            return None, asked.position
        await asyncio.sleep(pause)
        pause = min(2 * pause, 2 * MAX_PAUSE_S)


def _tried(desk: Desk, call: Call, leaf: str | None) -> api.CompactAnswer:
    """Say what a compaction would come to now; the scratch session is thrown away."""
    with looking(desk, call.key, leaf) as lens:
        session, head = lens.session, lens.leaf
        would = api.CompactAnswer(
            session=_name(call),
            leaf=head.tip_id,
            id=None,
            status="would_refuse",
            position=str(lens.position),
        )
        if head.flushes or is_run_active(session, head):
            reason = "flush_pending" if head.flushes else "run_active"
            return msgspec.structs.replace(would, reason=reason)
        head.compact_requests = [CompactRequest("dry-run", "dry-run")]
        effect = compactor.decide(session, head)
        if not isinstance(effect, RunCompactor):
            reason = effect.reason if effect is not None else "no_progress"
            return msgspec.structs.replace(would, reason=reason)
        try:
            done = compactor.compact(session, head, effect, desk.settings.secrets)
        except MemoryFault:
            return msgspec.structs.replace(would, reason="payload_too_large")
        return msgspec.structs.replace(
            would,
            status="would_compact",
            through=effect.through_id,
            observations=done.n_observations,
            reflections=done.n_reflections,
            trimmed=done.n_trimmed,
            summary_bytes=utf8_length(done.summary),
        )


def _entry(record: LogRecord) -> Entry | None:
    try:
        return decode(record.value or b"null")
    except BadRecord:
        return None


def _name(call: Call) -> str:
    return call.path["session"]


def _field(data: JsonValue, name: str) -> JsonValue:
    return data.get(name) if isinstance(data, dict) else None


def _count(data: JsonValue, name: str) -> int:
    value = _field(data, name)
    return value if isinstance(value, int) else 0
