"""Performing effects: the only place where models and clocks are asked (design.md section 1).

``perform`` turns an effect into the entry that records it. Its id derives from the run, so a result
that is appended twice is folded once.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from ombus_schemas.concealment import conceal_entry, conceal_text
from ombus_schemas.entries import SCHEMA_VERSION, Entry
from ombus_schemas.ids import result_entry_id, run_id
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import (
    OBSERVATIONS_DROPPED,
    OBSERVATIONS_RECORDED,
    REFLECTIONS_RECORDED,
    Observation,
    observation_json,
    reflection_json,
)
from ombus_schemas.settings import MemorySettings, WorkerLimits, WorkerSettings, settings_json

from ombus_streams.memory import compactor
from ombus_streams.memory.effects import (
    Effect,
    EndFlush,
    RefuseCompaction,
    Run,
    RunCompactor,
    RunDropper,
    RunObserver,
    RunReflector,
)
from ombus_streams.memory.head import LeafHead
from ombus_streams.memory.items import (
    ACTIVE,
    name_of,
    observation_row,
    observations,
    reflections,
)
from ombus_streams.memory.leaf import settings_of
from ombus_streams.memory.payload import drop_to_target
from ombus_streams.memory.reading import entries_on
from ombus_streams.memory.session import Session
from ombus_streams.memory.tokens import ESTIMATOR
from ombus_streams.runtime.ports import Clock
from ombus_streams.runtime.prompts import PROMPT_VERSIONS
from ombus_streams.runtime.provider import ModelProvider, WorkerName
from ombus_streams.runtime.workers import Stored, run_dropper, run_observer, run_reflector

MAX_KNOWN_OBSERVATIONS: Final = 200
"""Active observations shown to an observer so that it says nothing twice: the newest."""


class Interpreter:
    """Performs effects with one provider a worker.

    Neither ``secrets`` nor what looks like one gets into a prompt or into what is recorded, also if
    the log holds it.
    """

    def __init__(
        self,
        providers: Mapping[WorkerName, ModelProvider],
        clock: Clock,
        limits: WorkerLimits | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        self._providers, self._clock = providers, clock
        self._limits, self._secrets = limits or WorkerLimits(), tuple(secrets)

    async def perform(self, session: Session, effect: Effect) -> Entry:
        """Return the entry that records the effect; nothing is appended here.

        Raises:
            WorkerFailed: the run failed; the same one may work later.
            Refused: the provider will never take this span.
        """
        leaf = session.leaf(effect.segment)
        match effect:
            case RunObserver():
                return await self._observe(session, leaf, effect)
            case RunReflector():
                return await self._reflect(session, leaf, effect)
            case RunDropper():
                return await self._drop(session, leaf, effect)
            case RunCompactor():
                return self._compact(session, leaf, effect)
            case EndFlush():
                return self._end_flush(session, effect)
            case RefuseCompaction():
                return self._refuse(session, effect)

    async def _observe(self, session: Session, leaf: LeafHead, run: RunObserver) -> Entry:
        items: tuple[Observation, ...] = ()
        settings = settings_of(session, leaf)
        if run.source_ids:
            known = [row.item for row in observations(session, leaf, *ACTIVE)]
            result = await run_observer(
                self._providers["observer"],
                [
                    conceal_entry(entry, self._secrets)
                    for entry in entries_on(session, leaf, run.source_ids)
                ],
                self._concealed(known[-MAX_KNOWN_OBSERVATIONS:]),
                self._now(),
                session.session_id,
                self._limits_for(settings),
                self._secrets,
                _instruction(settings.observation),
            )
            items = self._concealed(result.items)
        body: JsonObject = {
            "type": OBSERVATIONS_RECORDED,
            "observations": [observation_json(item) for item in items],
            "coversUpToId": run.anchor_id,
        }
        if run.reason is not None:
            body["reason"] = run.reason
        return self._record(session, leaf, run, body)

    async def _reflect(self, session: Session, leaf: LeafHead, run: RunReflector) -> Entry:
        settings = settings_of(session, leaf)
        covered = leaf.coverage_id is not None
        result = await run_reflector(
            self._providers["reflector"],
            self._concealed(_named(session, leaf, run.observation_ids)),
            session.session_id,
            self._limits_for(settings),
            self._secrets,
            _instruction(settings.reflection),
        )
        body: JsonObject = {
            "type": REFLECTIONS_RECORDED,
            "reflections": [reflection_json(item) for item in self._concealed(result.items)],
        }
        if covered:
            body["coversUpToId"] = run.anchor_id
        if run.through is not None:
            body["through"] = run.through
        return self._record(session, leaf, run, body)

    async def _drop(self, session: Session, leaf: LeafHead, run: RunDropper) -> Entry:
        settings = settings_of(session, leaf)
        pool = _named(session, leaf, run.observation_ids)
        if run.uses_model:
            result = await run_dropper(
                self._providers["dropper"],
                self._concealed(pool),
                run.target_tokens,
                session.session_id,
                self._limits_for(settings),
                self._concealed([row.item for row in reflections(session, leaf, "visible")]),
                self._secrets,
                _instruction(settings.dropper),
            )
            ids: Sequence[str] = result.items
        else:
            ids = drop_to_target(pool, run.target_tokens)
        body: JsonObject = {
            "type": OBSERVATIONS_DROPPED,
            "observationIds": list(ids),
            "coversUpToId": run.anchor_id,
            "reason": "pruned",
        }
        return self._record(session, leaf, run, body)

    def _compact(self, session: Session, leaf: LeafHead, run: RunCompactor) -> Entry:
        done = compactor.compact(session, leaf, run, self._secrets)
        entry = self._record(session, leaf, run, {**done.data})
        return msgspec.structs.replace(entry, kind="compaction", summary=done.summary)

    def _concealed(self, items: Sequence[Stored]) -> tuple[Stored, ...]:
        """Return ``items`` as a model may see and a log may hold them; their ids stay."""
        return tuple(
            msgspec.structs.replace(item, content=conceal_text(item.content, self._secrets))
            for item in items
        )

    def _end_flush(self, session: Session, effect: EndFlush) -> Entry:
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
        return self._answer(session, "dropper", effect.flush_id, body)

    def _refuse(self, session: Session, effect: RefuseCompaction) -> Entry:
        body: JsonObject = {
            "type": "om.compact.failed",
            "requestId": effect.request_id,
            "reason": effect.reason,
        }
        return self._answer(session, "compactor", effect.request_id, body)

    def _record(self, session: Session, leaf: LeafHead, run: Run, body: JsonObject) -> Entry:
        data: JsonObject = {**body, "base": run.base, "cause": run.cause}
        if run.seen is not None:
            data["seen"] = run.seen
        if run.scope_id is not None:
            data["scopeId"] = run.scope_id
        data["producedBy"] = self._produced_by(session, leaf, run)
        return self._entry(session, result_entry_id(run.worker, run.run_id), run.anchor_id, data)

    def _answer(self, session: Session, worker: str, request_id: str, body: JsonObject) -> Entry:
        """Return the end of a request: it hangs where the request hangs, so its views see it."""
        asked = session.entry(request_id)
        run = run_id(
            worker, session.tenant_id, session.session_id, request_id, None, None, request_id, ()
        )
        parent = asked.parent if asked is not None else None
        return self._entry(session, result_entry_id(worker, run), parent, body)

    def _entry(
        self, session: Session, entry_id: str, parent: str | None, data: JsonObject
    ) -> Entry:
        return Entry(
            id=entry_id,
            session_id=session.session_id,
            tenant_id=session.tenant_id,
            parent_id=parent,
            timestamp=self._now(),
            kind="custom",
            schema_version=SCHEMA_VERSION,
            data=data,
            origin="worker",
            side=True,
        )

    def _produced_by(self, session: Session, leaf: LeafHead, run: Run) -> JsonObject:
        said = msgspec.json.encode(settings_json(settings_of(session, leaf)))
        produced: JsonObject = {"worker": run.worker, "runId": run.run_id}
        provider = self._provider(run.worker)
        if provider is not None:
            produced |= {
                "provider": provider.name,
                "model": provider.model,
                "promptVersion": PROMPT_VERSIONS["fenced"],
            }
        return {
            **produced,
            "settingsHash": hashlib.sha256(said).hexdigest()[:12],
            "estimator": ESTIMATOR,
        }

    def _provider(self, worker: str) -> ModelProvider | None:
        return next((each for name, each in self._providers.items() if name == worker), None)

    def _limits_for(self, settings: MemorySettings) -> WorkerLimits:
        return msgspec.structs.replace(self._limits, max_turns=settings.agent_max_turns)

    def _now(self) -> str:
        return iso(self._clock.now())


def iso(instant: datetime) -> str:
    """Return an instant as entries carry it: UTC, milliseconds, ``Z``."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _named(session: Session, leaf: LeafHead, ids: Sequence[str]) -> list[Observation]:
    rows = (observation_row(session, leaf, name_of(session, leaf, each)) for each in ids)
    return [row.item for row in rows if row is not None]


def _instruction(group: WorkerSettings) -> str | None:
    said: JsonValue | msgspec.UnsetType = group.instruction
    return said if isinstance(said, str) else None
