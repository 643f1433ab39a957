"""Entries that record what was done: worker records and the ends of requests (design.md section 5).

An entry's id derives from its run, so a result that is appended twice is folded once.
"""

import hashlib
from datetime import UTC, datetime

import msgspec
from ombus_schemas.bodies import data_of
from ombus_schemas.control import SourcesLinked
from ombus_schemas.entries import SCHEMA_VERSION, Entry
from ombus_schemas.ids import result_entry_id, run_id
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.settings import MemorySettings, settings_json

from ombus_streams.memory.effects import EndFlush, RefuseCompaction, Run, RunFunnel
from ombus_streams.memory.session import Session
from ombus_streams.memory.tokens import ESTIMATOR
from ombus_streams.runtime.prompts import PROMPT_VERSIONS
from ombus_streams.runtime.roster import Assigned


def record(
    session: Session, run: Run, body: JsonObject, produced_by: JsonObject, timestamp: str
) -> Entry:
    """Return the side record of a run: ``body`` and what acceptance asks of every worker record."""
    data: JsonObject = {**body, "base": run.base, "cause": run.cause}
    if run.seen is not None:
        data["seen"] = run.seen
    if run.scope_id is not None:
        data["scopeId"] = run.scope_id
    data["producedBy"] = produced_by
    entry_id = result_entry_id(run.worker, run.run_id)
    return _entry(session, entry_id, run.anchor_id, data, timestamp)


def linked(session: Session, run: RunFunnel, timestamp: str) -> Entry:
    """Return the record that links messages to their copies, before there is any."""
    body = data_of(SourcesLinked(target_session_id=run.target_id, links=run.links))
    return _entry(session, result_entry_id(run.worker, run.run_id), run.anchor_id, body, timestamp)


def end_of_flush(session: Session, effect: EndFlush, timestamp: str) -> Entry:
    """Return the end of a flush, with what its stages persisted."""
    ended = effect.failure is None
    body: JsonObject = {
        "type": "om.flush.completed" if ended else "om.flush.failed",
        "flushId": effect.flush_id,
    }
    if effect.failure is not None:
        body["reason"] = effect.failure
    body |= {
        "observations": effect.n_observations,
        "reflections": effect.n_reflections,
        "dropped": effect.n_dropped,
    }
    return _answer(session, "dropper", effect.flush_id, body, timestamp)


def refusal(session: Session, effect: RefuseCompaction, timestamp: str) -> Entry:
    """Return the answer to a compaction request that has nothing to do."""
    body: JsonObject = {
        "type": "om.compact.failed",
        "requestId": effect.request_id,
        "reason": effect.reason,
    }
    return _answer(session, "compactor", effect.request_id, body, timestamp)


def produced_by(settings: MemorySettings, run: Run) -> JsonObject:
    """Return under what a run is made, as it stands when the run begins."""
    said = msgspec.json.encode(settings_json(settings))
    return {
        "worker": run.worker,
        "runId": run.run_id,
        "settingsHash": hashlib.sha256(said).hexdigest()[:12],
        "estimator": ESTIMATOR,
    }


def answered_by(who: Assigned) -> JsonObject:
    """Return who did a run's work."""
    return {
        "provider": who.provider.name,
        "model": who.provider.model,
        "promptVersion": PROMPT_VERSIONS["fenced"],
    }


def iso(instant: datetime) -> str:
    """Return an instant as entries carry it: UTC, milliseconds, ``Z``."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _answer(
    session: Session, worker: str, request_id: str, body: JsonObject, timestamp: str
) -> Entry:
    """Return the end of a request: it hangs where the request hangs, so its views see it."""
    asked = session.entry(request_id)
    run = run_id(
        worker, session.tenant_id, session.session_id, request_id, None, None, request_id, ()
    )
    parent = asked.parent if asked is not None else None
    return _entry(session, result_entry_id(worker, run), parent, body, timestamp)


def _entry(
    session: Session, entry_id: str, parent: str | None, data: JsonObject, timestamp: str
) -> Entry:
    return Entry(
        id=entry_id,
        session_id=session.session_id,
        tenant_id=session.tenant_id,
        parent_id=parent,
        timestamp=timestamp,
        kind="custom",
        schema_version=SCHEMA_VERSION,
        data=data,
        origin="worker",
        side=True,
    )
