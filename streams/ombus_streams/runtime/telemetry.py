"""What the work of a process looks like from outside: one canonical line a batch and one a run,
counters, and spans if somebody listens. Both engines tell it the same things.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec
import structlog
from ombus_schemas.headers import TraceContext, trace_of
from ombus_schemas.ids import result_entry_id

from ombus_streams.memory.effects import Effect, PrepareObserver, Run
from ombus_streams.memory.errors import MemoryFault
from ombus_streams.memory.session import Session
from ombus_streams.memory.terms import settings_of
from ombus_streams.runtime import metrics
from ombus_streams.runtime.errors import (
    Closed,
    Deferred,
    NotConfigured,
    Refused,
    ResultHeld,
    RuntimeFault,
)
from ombus_streams.runtime.metrics import Tally
from ombus_streams.runtime.ports import LogRecord
from ombus_streams.runtime.processor import Batch
from ombus_streams.runtime.report import Fact, reporting
from ombus_streams.runtime.tracing import MAX_LINKS, UNTRACED, Tracer

MAX_LINKED_SESSIONS: Final = 1_000
"""Sessions whose latest appends are remembered for the links of their runs."""
FAILURES: Final = frozenset({"failed", "refused", "crashed"})
"""Outcomes of a run that ought to have been another; the others are `recorded`, `prepared`,
`deferred` (it did not start) and `given_up` (another owner decides it again)."""
ALL: Final = "all"
"""The role of a process that does everything."""

_log = structlog.get_logger("ombus.work")


class Folded(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that is committed."""

    partition: int
    records: Sequence[LogRecord]
    batch: Batch
    next_offset: int
    began: float
    """``time.perf_counter()`` before the fold."""
    now_ms: int
    live_from: int
    """The first offset that was not on the log when the partition was opened."""


class Telemetry:
    """Tells of one role of a process. Neither a counter nor a span is ever read by the work."""

    def __init__(
        self, role: str = ALL, tally: Tally | None = None, tracer: Tracer = UNTRACED
    ) -> None:
        self.role, self.tally, self.tracer = role, tally or Tally(), tracer
        self._contexts: OrderedDict[bytes, deque[TraceContext]] = OrderedDict()
        for metric in (metrics.RECORDS, metrics.DEAD_LETTERS, metrics.STALE_BATCHES):
            self.tally.add(metric, role, amount=0)

    def of(self, role: str) -> "Telemetry":
        """Return that of another role of the same process."""
        return Telemetry(role, self.tally, self.tracer)

    def folded(self, done: Folded) -> None:
        """Tell of a batch; what the partition only catches up on leaves no span."""
        seconds = time.perf_counter() - done.began
        batch, role = done.batch, self.role
        is_live = done.records[-1].offset >= done.live_from
        lag_ms = done.now_ms - done.records[0].at_ms
        self.tally.add(metrics.RECORDS, role, amount=batch.n_records)
        self.tally.observe(metrics.FOLD_SECONDS, seconds, role)
        if is_live:
            self.tally.observe(metrics.FOLD_DELAY, max(0, lag_ms) / 1_000, role)
        facts: dict[str, str | int | float | bool] = {
            "role": role,
            "partition": done.partition,
            "n_records": batch.n_records,
            "n_sessions": len(batch.sessions),
            "n_dead_letters": batch.n_dead_letters,
            "next_offset": done.next_offset,
            "is_live": is_live,
            "lag_ms": lag_ms,
            "took_ms": round(seconds * 1_000),
        }
        _log.info("batch.folded", **facts)
        if batch.n_dead_letters:
            self.tally.add(metrics.DEAD_LETTERS, role, amount=batch.n_dead_letters)
            _log.warning(
                "records.dead_lettered",
                role=role,
                partition=done.partition,
                n_records=batch.n_dead_letters,
            )
        if self.tracer.is_on and is_live:
            began_ns = time.time_ns() - round(seconds * 1e9)
            self.tracer.folded(self._linked(done), began_ns, facts)

    @contextmanager
    def run(self, partition: int, session: Session, effect: Effect) -> Iterator[dict[str, Fact]]:
        """Tell of an effect once it has ended, however it does; lends its report."""
        began = time.perf_counter()
        worker, kind = effect.worker, type(effect).__name__
        run = effect.run if isinstance(effect, PrepareObserver) else effect
        settings = settings_of(session, session.leaf(effect.segment))
        outcome = "given_up"
        known: dict[str, Fact] = {
            "role": self.role,
            "worker": worker,
            "partition": partition,
            "session": session.key.decode(),
            "effect": kind,
        }
        if isinstance(run, Run):
            known["run_id"] = run.run_id
            known["entry_id"] = result_entry_id(worker, run.run_id)
        links = tuple(self._contexts.get(session.key, ()))
        with (
            reporting() as facts,
            self.tracer.running(links, f"run {worker}", _spoken(known)) as span,
        ):
            try:
                yield facts
                outcome = "recorded"
            except Exception as error:
                outcome, failure = _outcome_of(error), type(error).__name__
                facts["failure"] = failure
                if outcome in FAILURES:
                    span.fail(failure)
                raise
            finally:
                seconds = time.perf_counter() - began
                facts["outcome"] = outcome
                span.tell(_spoken(facts))
                tell = _log.info if settings.show_worker_notifications else _log.debug
                tell = _log.debug if outcome == "deferred" else tell
                tell("run.finished", **known | facts, took_ms=round(seconds * 1_000))
                if isinstance(run, Run):
                    self._count(worker, outcome, seconds, facts)

    def _count(self, worker: str, outcome: str, seconds: float, facts: dict[str, Fact]) -> None:
        self.tally.add(metrics.RUNS, worker, outcome)
        if outcome == "recorded":
            self.tally.observe(metrics.RUN_SECONDS, seconds, worker)
        for direction in ("input", "output", "cached"):
            spent = facts.get(f"tokens_{direction}")
            if isinstance(spent, int) and spent:
                self.tally.add(metrics.TOKENS, worker, direction, amount=spent)

    def _linked(self, done: Folded) -> list[TraceContext]:
        """Return the contexts of a batch's live records, and keep them for the runs that follow."""
        found: list[TraceContext] = []
        for record in done.records:
            context = trace_of(record.headers) if record.offset >= done.live_from else None
            if context is None or record.key is None:
                continue
            if not found or found[-1] != context:
                found.append(context)
            kept = self._contexts.setdefault(record.key, deque(maxlen=MAX_LINKS))
            self._contexts.move_to_end(record.key)
            if not kept or kept[-1] != context:
                kept.append(context)
        while len(self._contexts) > MAX_LINKED_SESSIONS:
            self._contexts.popitem(last=False)
        return found[-MAX_LINKS:]


def _outcome_of(error: Exception) -> str:
    match error:
        case ResultHeld():
            return "prepared"
        case Deferred() | NotConfigured():
            return "deferred"
        case Refused():
            return "refused"
        case Closed():
            return "given_up"
        case RuntimeFault() | MemoryFault():
            return "failed"
        case _:
            return "crashed"


def _spoken(facts: dict[str, Fact]) -> dict[str, str | int | float | bool]:
    """Return what fits an attribute of a span."""
    return {
        name: value for name, value in facts.items() if isinstance(value, str | int | float | bool)
    }
