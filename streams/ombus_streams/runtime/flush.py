"""The reference's flush over one session: observe, reflect, drop, one stage after the other (S16).

Engines reach the same memory through obligations and runs of their own (design.md section 5); this
is the whole in one call, for a host without an engine and for the vectors. Every stage appends as
soon as its worker has succeeded, so a later failure leaves it in place and the counts say so
(design.md section 12, row 13).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.ids import observation_ref, reflection_ref
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import (
    OBSERVATIONS_DROPPED,
    OBSERVATIONS_RECORDED,
    REFLECTIONS_RECORDED,
    Observation,
    observation_json,
    reflection_json,
)
from ombus_schemas.settings import (
    MemorySettings,
    WorkerLimits,
    WorkerSettings,
)

from ombus_streams.memory.coverage import is_eligible, uncovered_observations, unscanned
from ombus_streams.memory.ledger import Ledger, active
from ombus_streams.memory.ledger import fold as fold_ledger
from ombus_streams.memory.payload import drop_to_target
from ombus_streams.memory.projection import project
from ombus_streams.memory.scopes import SCOPE_BOUND
from ombus_streams.memory.scopes import fold as fold_scopes
from ombus_streams.memory.tokens import branch_tokens, item_tokens
from ombus_streams.runtime.flush_port import (
    FlushResult,
    FlushSession,
    FlushStatus,
    Skipped,
    Stage,
    Worker,
)
from ombus_streams.runtime.limits import error_text
from ombus_streams.runtime.prompts import Prompt
from ombus_streams.runtime.provider import ModelProvider
from ombus_streams.runtime.workers import redacted, run_dropper, run_observer, run_reflector

UNNAMED_FAILURE: Final = "Observational memory flush failed without a message"


class _Missing(Exception):
    """A stage has no one to do its work."""

    def __init__(self, what: Skipped) -> None:
        super().__init__(what)
        self.what = what


class MemoryFlush:
    """Flushes one session, one flush at a time."""

    def __init__(
        self,
        session: FlushSession,
        workers: Mapping[Stage, Worker],
        settings: Callable[[], MemorySettings],
        *,
        now: Callable[[], str],
        limits: WorkerLimits | None = None,
        bounds_turns: bool = True,
        secrets: Sequence[str] = (),
        session_model: JsonValue = None,
        prompt: Prompt = "fenced",
        report_rejections: bool = True,
        respect_thresholds: bool = False,
    ) -> None:
        """``bounds_turns``: ``limits``, if any, bound a run's turns too; else ``agentMaxTurns``."""
        self._session, self._workers, self._settings = session, workers, settings
        self._now, self._limits, self._secrets = now, limits or WorkerLimits(), tuple(secrets)
        self._bounds_turns = bounds_turns and limits is not None
        self._session_model = session_model
        self._prompt: Prompt = prompt
        self._report_rejections = report_rejections
        self._respect_thresholds = respect_thresholds
        self._is_in_flight = False
        self._last_error: str | None = None

    def status(self) -> FlushStatus:
        """Return whether a flush is under way, and the last one's failure."""
        return FlushStatus(is_in_flight=self._is_in_flight, last_error=self._last_error)

    async def flush(self, full_reflection_rebuild: bool = False) -> FlushResult:
        """Run every stage that has input; with ``respect_thresholds`` every one that reached its.

        Never raises for a failure of a stage: it is in the result and in ``status()``. With host
        scopes open, what was recorded is bound to the current one, also after a failure.
        """
        if self._is_in_flight:
            return FlushResult(skipped="in_flight")
        if self._session.has_active_run():
            return FlushResult(skipped="run_active")
        self._is_in_flight = True
        try:
            return await self._flush(full_reflection_rebuild)
        finally:
            self._is_in_flight = False

    async def _flush(self, full_reflection_rebuild: bool) -> FlushResult:
        done = _Counts()
        skipped: Skipped | None = None
        try:
            settings = self._settings()
            if settings.passive:
                return FlushResult(skipped="passive")
            start = self._session.entries()
            known, is_scoped = fold_ledger(start), fold_scopes(start).is_scoped
            try:
                await self._observe(settings, done)
                await self._reflect(settings, done, full_reflection_rebuild)
            except _Missing as missing:
                skipped = missing.what
            finally:
                if is_scoped:
                    self._bind(known)
            if skipped is None:
                self._last_error = None
        except Exception as error:  # a failed flush is a result, by policy (S16)
            message = str(error) or UNNAMED_FAILURE
            self._last_error = error_text(message, self._secrets, self._limits.max_error_bytes)
            skipped = "error"
        return FlushResult(
            observations=done.observations,
            reflections=done.reflections,
            dropped=done.dropped,
            skipped=skipped,
        )

    async def _observe(self, settings: MemorySettings, done: "_Counts") -> None:
        entries = self._session.entries()
        ledger = fold_ledger(entries)
        pending = unscanned(entries, ledger.observation_coverage_id)
        chain = [entry for entry in pending if not entry.side]
        if not chain:
            # Nothing but what workers wrote: an empty record would only cover the one before it
            # (design.md section 12, row 3).
            return
        last, sources = chain[-1].id, [entry for entry in pending if is_eligible(entry)]
        if sources:
            if self._respect_thresholds and (
                branch_tokens(sources) < settings.observation.message_tokens
            ):
                return
            result = await run_observer(
                self._provider("observation", settings.observation),
                sources,
                active(ledger),
                self._now(),
                self._session.session_id,
                self._limits_for(settings),
                self._secrets,
                _instruction(settings.observation),
                prompt=self._prompt,
                report_rejections=self._report_rejections,
                options=_options(settings.observation),
            )
            observations = redacted(result.items, self._secrets)
        else:
            observations = ()
        self._append(
            {
                "type": OBSERVATIONS_RECORDED,
                "observations": [observation_json(item) for item in observations],
            },
            last,
        )
        done.observations += len(observations)

    async def _reflect(
        self, settings: MemorySettings, done: "_Counts", full_reflection_rebuild: bool
    ) -> None:
        entries = self._session.entries()
        ledger = fold_ledger(entries)
        uncovered = uncovered_observations(entries, full_reflection_rebuild)
        if not uncovered or (
            self._respect_thresholds
            and item_tokens(uncovered) < settings.reflection.observation_tokens
        ):
            return
        result = await run_reflector(
            self._provider("reflection", settings.reflection),
            uncovered,
            self._session.session_id,
            self._limits_for(settings),
            self._secrets,
            _instruction(settings.reflection),
            prompt=self._prompt,
            report_rejections=self._report_rejections,
            options=_options(settings.reflection),
        )
        reflections = redacted(result.items, self._secrets)
        covered = ledger.observation_coverage_id
        self._append(
            {
                "type": REFLECTIONS_RECORDED,
                "reflections": [reflection_json(item) for item in reflections],
            },
            covered,
        )
        done.reflections += len(reflections)
        if reflections and not fold_scopes(entries).is_scoped:
            await self._drop(settings, done, active(ledger), covered)

    async def _drop(
        self,
        settings: MemorySettings,
        done: "_Counts",
        pool: Sequence[Observation],
        covered: str | None,
    ) -> None:
        target = settings.dropper.target_tokens
        if item_tokens(pool) <= target:
            return
        if settings.dropper.policy == "lowest-relevance":
            gone = drop_to_target(pool, target)
        else:
            result = await run_dropper(
                self._provider("dropper", settings.dropper),
                pool,
                target,
                self._session.session_id,
                self._limits_for(settings),
                project(self._session.entries()).reflections,
                self._secrets,
                _instruction(settings.dropper),
                prompt=self._prompt,
                report_rejections=self._report_rejections,
                options=_options(settings.dropper),
            )
            gone = result.items
        if gone:
            self._append({"type": OBSERVATIONS_DROPPED, "observationIds": list(gone)}, covered)
            done.dropped += len(gone)

    def _append(self, data: JsonObject, covered: str | None) -> None:
        if covered is not None:
            data = {**data, "coversUpToId": covered}
        self._session.append(data, _anchor(self._session.entries(), covered))

    def _bind(self, known: Ledger) -> None:
        """Bind what is new since ``known`` to the current scope, once."""
        entries = self._session.entries()
        before, now = _refs(known), _refs(fold_ledger(entries))
        fresh: list[JsonValue] = [ref for ref in now if ref not in before]
        if fresh:
            data: JsonObject = {
                "type": SCOPE_BOUND,
                "scopeId": fold_scopes(entries).leaf,
                "refs": fresh,
            }
            self._session.append(data, _anchor(entries))

    def _limits_for(self, settings: MemorySettings) -> WorkerLimits:
        """Return the limits of a run: ``agentMaxTurns`` holds where the host bounds no turns."""
        if self._bounds_turns:
            return self._limits
        return msgspec.structs.replace(self._limits, max_turns=settings.agent_max_turns)

    def _provider(self, stage: Stage, settings: WorkerSettings) -> ModelProvider:
        worker = self._workers.get(stage, Worker())
        model = worker.model or settings.model
        if not model and not (worker.require_explicit_model or settings.require_explicit_model):
            model = self._session_model
        if worker.provider is None or not model:
            raise _Missing("missing_model")
        if not worker.has_credentials:
            raise _Missing("missing_credentials")
        return worker.provider


class _Counts(msgspec.Struct):
    """What has been persisted so far."""

    observations: int = 0
    reflections: int = 0
    dropped: int = 0


def _anchor(entries: Sequence[Entry], wanted: str | None = None) -> str | None:
    """Return the chain entry a side record hangs on: the wanted one, else the last."""
    chain = [entry.id for entry in entries if not entry.side]
    return wanted if wanted in chain else chain[-1] if chain else None


def _refs(ledger: Ledger) -> dict[str, None]:
    return dict.fromkeys(
        (
            *(observation_ref(item.id) for item in ledger.observations),
            *(reflection_ref(item.id) for item in ledger.reflections),
        )
    )


def _instruction(settings: WorkerSettings) -> str | None:
    return settings.instruction if isinstance(settings.instruction, str) else None


def _options(settings: WorkerSettings) -> JsonObject | None:
    return settings.provider_options if isinstance(settings.provider_options, dict) else None
