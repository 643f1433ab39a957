"""Performing effects: the only place where models and clocks are asked (design.md section 1).

``perform`` turns an effect into the entry that records it. Its id derives from the run, so a result
that is appended twice is folded once.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import structlog
from ombus_schemas.concealment import conceal_entry, conceal_text
from ombus_schemas.entries import Entry
from ombus_schemas.ids import session_key
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.records import (
    OBSERVATIONS_DROPPED,
    OBSERVATIONS_RECORDED,
    REFLECTIONS_RECORDED,
    Observation,
    observation_json,
    reflection_json,
)
from ombus_schemas.settings import MemorySettings, WorkerLimits

from ombus_streams.memory import compactor
from ombus_streams.memory.effects import (
    Effect,
    EndFlush,
    PrepareObserver,
    RefuseCompaction,
    Run,
    RunCompactor,
    RunDropper,
    RunFunnel,
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
from ombus_streams.memory.payload import drop_to_target
from ombus_streams.memory.reading import entries_on
from ombus_streams.memory.session import Session
from ombus_streams.memory.terms import settings_of
from ombus_streams.memory.tokens import branch_tokens, item_tokens
from ombus_streams.runtime import records
from ombus_streams.runtime.ahead import Shelf
from ombus_streams.runtime.errors import Deferred, NotConfigured, ResultHeld
from ombus_streams.runtime.owners import Owners
from ombus_streams.runtime.ports import Clock
from ombus_streams.runtime.provider import Usage
from ombus_streams.runtime.records import iso
from ombus_streams.runtime.report import report
from ombus_streams.runtime.staff import Providers, Staff
from ombus_streams.runtime.workers import (
    Stored,
    WorkerResult,
    run_dropper,
    run_observer,
    run_reflector,
)

MAX_KNOWN_OBSERVATIONS: Final = 200
"""Active observations shown to an observer so that it says nothing twice: the newest."""

_log = structlog.get_logger("ombus.interpreter")


class Interpreter:
    """Performs effects with whoever the staff has for a worker.

    Neither ``secrets`` nor what looks like one gets into a prompt or into what is recorded, also if
    the log holds it.
    """

    def __init__(
        self,
        providers: Providers | Staff,
        clock: Clock,
        limits: WorkerLimits | None = None,
        secrets: Sequence[str] = (),
        owners: Owners | None = None,
    ) -> None:
        """``owners``: whose sessions are, for a funnel; without, nobody's session is owned."""
        self.owners = owners
        self.staff, self._clock = Staff.of(providers), clock
        self._limits, self._secrets = limits or WorkerLimits(), tuple(secrets)
        self._shelf = Shelf()

    async def perform(self, session: Session, effect: Effect) -> Entry:
        """Return the entry that records the effect; nothing is appended here.

        Raises:
            WorkerFailed: the run failed; the same one may work later.
            Refused: the provider will never take this span.
            NotConfigured, Deferred: the run did not start.
            ResultHeld: a prepared run is done and waits until it is owed.
        """
        leaf = session.leaf(effect.segment)
        run = effect.run if isinstance(effect, PrepareObserver) else effect
        if isinstance(run, Run) and run.seen != session.head.last_invalidation:
            # Its result would be void, and nothing invalidated enters a prompt (section 10).
            raise Deferred(f"run {run.run_id} was overtaken", "overtaken", 0)
        match effect:
            case RunObserver():
                prepared = self._shelf.take(effect.run_id)
                return prepared or await self._observe(session, leaf, effect)
            case PrepareObserver(run=ahead, before=before):
                said = self._shelf.items(before)
                self._shelf.put(ahead.run_id, await self._observe(session, leaf, ahead, said))
                raise ResultHeld(f"run {ahead.run_id} is held until it is owed")
            case RunReflector():
                return await self._reflect(session, leaf, effect)
            case RunDropper():
                return await self._drop(session, leaf, effect)
            case RunCompactor():
                return self._compact(session, leaf, effect)
            case RunFunnel():
                return await self._link(session, leaf, effect)
            case EndFlush():
                return records.end_of_flush(session, effect, self._now())
            case RefuseCompaction():
                return records.refusal(session, effect, self._now())

    async def _observe(
        self,
        session: Session,
        leaf: LeafHead,
        run: RunObserver,
        prepared: Sequence[Observation] = (),
    ) -> Entry:
        items: tuple[Observation, ...] = ()
        settings = settings_of(session, leaf)
        produced_by = records.produced_by(settings, run)
        if run.source_ids:
            known = [row.item for row in observations(session, leaf, *ACTIVE)]
            known += prepared
            known = known[-MAX_KNOWN_OBSERVATIONS:]
            sources = [
                conceal_entry(entry, self._secrets)
                for entry in entries_on(session, leaf, run.source_ids)
            ]
            tokens = branch_tokens(sources) + item_tokens(known)
            async with self.staff.engaged(session, leaf, "observer", run.run_id, tokens) as who:
                result = await run_observer(
                    who.provider,
                    sources,
                    self._concealed(known),
                    self._now(),
                    session.session_id,
                    self._limits_for(settings),
                    self._secrets,
                    who.instruction,
                    options=who.options,
                )
            items = self._concealed(result.items)
            produced_by |= records.answered_by(who)
            _tell(run, result)
        body: JsonObject = {
            "type": OBSERVATIONS_RECORDED,
            "observations": [observation_json(item) for item in items],
            "coversUpToId": run.anchor_id,
        }
        if run.reason is not None:
            body["reason"] = run.reason
        return records.record(session, run, body, produced_by, self._now())

    async def _reflect(self, session: Session, leaf: LeafHead, run: RunReflector) -> Entry:
        settings = settings_of(session, leaf)
        produced_by = records.produced_by(settings, run)
        covered = leaf.coverage_id is not None
        pool = self._concealed(_named(session, leaf, run.observation_ids))
        async with self.staff.engaged(
            session, leaf, "reflector", run.run_id, item_tokens(pool)
        ) as who:
            result = await run_reflector(
                who.provider,
                pool,
                session.session_id,
                self._limits_for(settings),
                self._secrets,
                who.instruction,
                options=who.options,
            )
        _tell(run, result)
        body: JsonObject = {
            "type": REFLECTIONS_RECORDED,
            "reflections": [reflection_json(item) for item in self._concealed(result.items)],
        }
        if covered:
            body["coversUpToId"] = run.anchor_id
        if run.through is not None:
            body["through"] = run.through
        produced_by |= records.answered_by(who)
        return records.record(session, run, body, produced_by, self._now())

    async def _drop(self, session: Session, leaf: LeafHead, run: RunDropper) -> Entry:
        settings = settings_of(session, leaf)
        produced_by = records.produced_by(settings, run)
        pool = _named(session, leaf, run.observation_ids)
        if run.uses_model:
            kept = [row.item for row in reflections(session, leaf, "visible")]
            tokens = item_tokens(pool) + item_tokens(kept)
            async with self.staff.engaged(session, leaf, "dropper", run.run_id, tokens) as who:
                result = await run_dropper(
                    who.provider,
                    self._concealed(pool),
                    run.target_tokens,
                    session.session_id,
                    self._limits_for(settings),
                    self._concealed(kept),
                    self._secrets,
                    who.instruction,
                    options=who.options,
                )
            ids: Sequence[str] = result.items
            produced_by |= records.answered_by(who)
            _tell(run, result)
        else:
            ids = drop_to_target(pool, run.target_tokens)
        body: JsonObject = {
            "type": OBSERVATIONS_DROPPED,
            "observationIds": list(ids),
            "coversUpToId": run.anchor_id,
            "reason": "pruned",
        }
        return records.record(session, run, body, produced_by, self._now())

    def _compact(self, session: Session, leaf: LeafHead, run: RunCompactor) -> Entry:
        done = compactor.compact(session, leaf, run, self._secrets)
        produced_by = records.produced_by(settings_of(session, leaf), run)
        entry = records.record(session, run, {**done.data}, produced_by, self._now())
        return msgspec.structs.replace(entry, kind="compaction", summary=done.summary)

    async def _link(self, session: Session, leaf: LeafHead, run: RunFunnel) -> Entry:
        if settings_of(session, leaf).funnel.workspace != run.target_id:
            # The session gives no longer, or to another one: that is judged now, as access is.
            raise Deferred(f"run {run.run_id} was overtaken", "overtaken", 0)
        if self.owners is not None:
            target = session_key(run.tenant_id, run.target_id)
            ours, theirs = await asyncio.to_thread(_both, self.owners, session.key, target)
            if ours != theirs:
                raise NotConfigured(
                    f"session {run.target_id} is not of the owner of {run.session_id}: name a "
                    "workspace of the same owner as funnel.workspace",
                    "other_owner",
                )
        return records.linked(session, run, self._now())

    def _concealed(self, items: Sequence[Stored]) -> tuple[Stored, ...]:
        """Return ``items`` as a model may see and a log may hold them; their ids stay."""
        return tuple(
            msgspec.structs.replace(item, content=conceal_text(item.content, self._secrets))
            for item in items
        )

    def _limits_for(self, settings: MemorySettings) -> WorkerLimits:
        return msgspec.structs.replace(self._limits, max_turns=settings.agent_max_turns)

    def _now(self) -> str:
        return iso(self._clock.now())


def _both(owners: Owners, one: bytes, other: bytes) -> tuple[str | None, str | None]:
    return owners.owner_of(one), owners.owner_of(other)


def _named(session: Session, leaf: LeafHead, ids: Sequence[str]) -> list[Observation]:
    rows = (observation_row(session, leaf, name_of(session, leaf, each)) for each in ids)
    return [row.item for row in rows if row is not None]


def _tell(run: Run, result: WorkerResult[Any]) -> None:
    usage = result.usage or Usage()
    report(n_items=len(result.items), n_rejected=result.n_rejected, n_turns=result.n_turns)
    _log.info(
        "run.judged",
        session_id=run.session_id,
        worker=run.worker,
        run_id=run.run_id,
        n_items=len(result.items),
        n_rejected=result.n_rejected,
        rejections=dict(result.rejections),
        n_turns=result.n_turns,
        n_calls=result.n_calls,
        tokens_in=usage.input_tokens,
        tokens_out=usage.output_tokens,
    )
