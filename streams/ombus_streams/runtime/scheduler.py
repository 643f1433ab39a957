"""Which effects are due, which are under way, and which must wait (design.md section 5).

Runs are derived from state, one at a time for each session, leaf and worker. What is remembered
beside the log (attempts, next times, refused runs) is operational: losing it costs attempts, never
memory.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import msgspec
import structlog

from ombus_streams.memory import duties, observer
from ombus_streams.memory.effects import Effect, EndFlush, PrepareObserver, Run, RunObserver
from ombus_streams.memory.session import Session
from ombus_streams.runtime.ahead import Ahead, AheadPolicy
from ombus_streams.runtime.errors import (
    Deferred,
    NotConfigured,
    Refused,
    ResultHeld,
    RetryableError,
)
from ombus_streams.runtime.ports import Position
from ombus_streams.runtime.processor import Processor

MAX_ATTEMPTS: Final = 5
"""Failures in a row after which a leaf is parked for a worker."""
FIRST_DELAY_MS: Final = 1_000
MAX_DELAY_MS: Final = 60_000
PARKED_FOR_MS: Final = 600_000
"""A parked leaf is tried again after this long."""
MAX_REFUSED: Final = 256

_log = structlog.get_logger("ombus.scheduler")
Slot = tuple[bytes, int, str]
"""Session key, segment, worker."""


class Attempts(msgspec.Struct, array_like=True):
    """What happened to the runs of one slot since the last success."""

    run_id: str = ""
    n_failures: int = 0
    next_at_ms: int = 0
    reason: str = ""
    refused: list[str] = []

    @property
    def is_parked(self) -> bool:
        return self.n_failures >= MAX_ATTEMPTS


class OperationalRows(Protocol):
    """What a snapshot lets one read beside the rows."""

    def get_operational(self, key: bytes) -> bytes | None: ...


class Task(msgspec.Struct, frozen=True):
    """An effect that is to be performed now."""

    slot: Slot
    effect: Effect


class Scheduler:
    """The duties of one partition. ``now_ms`` is passed in: nothing here asks a clock.

    A process that performs the effects of some ``workers`` only decides for those.
    """

    def __init__(
        self,
        processor: Processor,
        workers: Sequence[duties.Worker] = duties.WORKERS,
        ahead: AheadPolicy | None = None,
    ) -> None:
        self._processor, self._workers = processor, tuple(workers)
        self._ahead = None if ahead is None else Ahead(ahead)
        self._waiting: dict[bytes, None] = dict.fromkeys(processor.due_sessions())
        self._under_way: dict[Slot, int | None] = {}
        """Slots in use; a number is the offset whose folding frees the slot."""
        self._run_ids: dict[Slot, str] = {}
        """Runs of the slots in use: leaves of one prefix ask for the same one, done once."""
        self._attempts: dict[Slot, Attempts] = {}
        self._deferred: dict[Slot, int] = {}
        """When slots whose run did not start are asked again: no attempt, so it is not kept."""

    def touch(self, keys: Iterable[bytes]) -> None:
        """Look at these sessions again: something was folded for them."""
        self._waiting.update(dict.fromkeys(keys))

    @property
    def n_under_way(self) -> int:
        return len(self._under_way)

    def due(
        self, now_ms: int, limit: int, admits: Callable[[Slot], bool] = lambda _: True
    ) -> list[Task]:
        """Return up to ``limit`` effects that are due, and hold their slots.

        A slot that ``admits`` turns away, because its tenant has enough under way, stays due.
        """
        folded = self._processor.next_offset
        for slot, offset in list(self._under_way.items()):
            if offset is not None and offset < folded:
                self._free(slot)
        tasks: list[Task] = []
        for key in list(self._waiting):
            if len(tasks) >= limit:
                break
            held = self._of_session(key, now_ms, tasks, limit, admits)
            if not held:
                del self._waiting[key]
        return tasks

    def next_at_ms(self) -> int | None:
        """Return when the earliest delayed slot may be tried again."""
        times = [each.next_at_ms for each in self._attempts.values() if each.n_failures]
        times += self._deferred.values()
        return min(times, default=None)

    def parked(self, session: Session, segment: int) -> dict[str, str]:
        """Return why each parked worker of a leaf is not asked."""
        found: dict[str, str] = {}
        for worker in self._workers:
            attempts = self._known((session.key, segment, worker))
            if attempts.is_parked:
                found[worker] = attempts.reason
        return found

    def parked_leaves(self) -> dict[str, int]:
        """Return how many leaves are parked for each worker. May be called from any thread."""
        return Counter(slot[2] for slot, each in [*self._attempts.items()] if each.is_parked)

    def appended(self, slot: Slot, position: Position) -> None:
        """The result is on the log: the slot is free once it is folded."""
        self._under_way[slot] = position.offset
        if self._known(slot).n_failures:
            self._remember(slot, msgspec.structs.replace(self._known(slot), n_failures=0))

    def failed(self, slot: Slot, effect: Effect, error: Exception, now_ms: int) -> None:
        """The run recorded nothing: try again later, halve the span, or park the leaf."""
        self._free(slot)
        known = self._known(slot)
        if isinstance(effect, PrepareObserver):
            self._prepared(slot, effect, error, now_ms)
            return
        if isinstance(error, Deferred | NotConfigured):
            self._put_off(slot, known, error, now_ms)
            return
        run_id = effect.run_id if isinstance(effect, Run) else ""
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, Refused) and run_id and slot[2] == "observer":
            refused = [*known.refused, run_id][-MAX_REFUSED:]
            self._remember(slot, Attempts(run_id, 0, 0, reason, refused))
            _log.warning("run.refused", worker=slot[2], run_id=run_id, reason=error.reason)
            return
        n_failures = known.n_failures + 1
        delay = min(FIRST_DELAY_MS * 2 ** (n_failures - 1), MAX_DELAY_MS)
        if isinstance(error, RetryableError) and error.retry_after_ms is not None:
            delay = max(delay, error.retry_after_ms)
        if n_failures >= MAX_ATTEMPTS:
            delay = PARKED_FOR_MS
        self._remember(slot, Attempts(run_id, n_failures, now_ms + delay, reason, known.refused))
        _log.warning(
            "leaf.parked" if n_failures >= MAX_ATTEMPTS else "run.failed",
            worker=slot[2],
            run_id=run_id,
            n_failures=n_failures,
            retry_in_ms=delay,
            failure=type(error).__name__,
        )

    def _prepared(self, slot: Slot, effect: PrepareObserver, error: Exception, now_ms: int) -> None:
        """Hold what was prepared; a preparation that failed is left to the obligation's own run."""
        place = (slot[0], slot[1])
        if self._ahead is None:
            return
        if isinstance(error, ResultHeld):
            self._ahead.keep(place, effect)
        elif isinstance(error, Deferred):
            self._deferred[slot] = now_ms + (error.retry_after_ms or 0)
        else:
            self._ahead.give_up(place, self._processor.session(slot[0]).leaf(slot[1]).coverage_id)
            _log.info("preparation.failed", run_id=effect.run.run_id, failure=type(error).__name__)

    def _put_off(
        self, slot: Slot, known: Attempts, error: Deferred | NotConfigured, now_ms: int
    ) -> None:
        """Ask again later; a wait that is no mere pause parks the leaf under its reason."""
        waits_ms = MAX_DELAY_MS if isinstance(error, NotConfigured) else error.retry_after_ms or 0
        if isinstance(error, Deferred) and not error.parks:
            self._deferred[slot] = now_ms + waits_ms
            return
        at_ms = now_ms + waits_ms
        self._remember(slot, Attempts("", MAX_ATTEMPTS, at_ms, error.reason, known.refused))
        if known.reason != error.reason:
            _log.warning("leaf.parked", worker=slot[2], reason=error.reason, retry_in_ms=waits_ms)

    def cancelled(self, slot: Slot) -> None:
        """The run was given up without a result: whoever owns the session decides it again."""
        self._free(slot)

    def _free(self, slot: Slot) -> None:
        self._under_way.pop(slot, None)
        self._run_ids.pop(slot, None)
        self._waiting[slot[0]] = None

    def _of_session(
        self,
        key: bytes,
        now_ms: int,
        tasks: list[Task],
        limit: int,
        admits: Callable[[Slot], bool],
    ) -> bool:
        """Add the session's tasks; return whether it must be looked at again by itself."""
        session = self._processor.session(key)
        again = self._look_ahead(session, now_ms, tasks, limit, admits)
        if not session.head.n_due:
            return again
        for segment in session.segments():
            leaf = session.leaf(segment)
            if not leaf.is_due:
                continue
            parked = self.parked(session, segment)
            parked.pop("funnel", None)  # It is in no flush.
            refused = frozenset(self._known((key, segment, "observer")).refused)
            standing = duties.Standing(refused, parked)
            for worker in self._asked(standing):
                slot = (key, segment, worker)
                if slot in self._under_way:
                    continue
                ends_flush = worker == "dropper" and bool(standing.parked)
                if self._deferred.get(slot, 0) > now_ms:
                    again = True
                    continue
                self._deferred.pop(slot, None)
                if self._known(slot).next_at_ms > now_ms and not ends_flush:
                    again = True
                    continue
                if len(tasks) >= limit:
                    return True
                effect = duties.decide(session, leaf, worker, standing)
                if isinstance(effect, RunObserver) and self._ahead is not None:
                    effect = self._ahead.ready(session, leaf) or effect
                if effect is not None and worker not in self._workers:
                    effect = effect if isinstance(effect, EndFlush) else None
                if isinstance(effect, Run) and effect.run_id in self._run_ids.values():
                    continue
                if effect is not None and not admits(slot):
                    again = True
                elif effect is not None:
                    self._under_way[slot] = None
                    if isinstance(effect, Run):
                        self._run_ids[slot] = effect.run_id
                    tasks.append(Task(slot, effect))
        return again

    def _look_ahead(
        self,
        session: Session,
        now_ms: int,
        tasks: list[Task],
        limit: int,
        admits: Callable[[Slot], bool],
    ) -> bool:
        """Prepare for the default leaf, or use what is prepared because the session rests.

        Returns whether something is held, so that a rest is noticed though nothing is folded.
        """
        segment = session.head.default_segment
        if self._ahead is None or not segment or "observer" not in self._workers:
            return False
        leaf, slot = session.leaf(segment), (session.key, segment, "observer")
        if slot in self._under_way or leaf.conflict or observer.is_obliged(leaf):
            return False
        known = self._known(slot)
        waits = max(self._deferred.get(slot, 0), known.next_at_ms) > now_ms
        effect: Effect | None = self._ahead.ready(session, leaf)
        is_held = effect is not None
        if not (is_held and self._ahead.rests(session, now_ms)):
            effect = None if waits else self._ahead.wanted(session, leaf)
        if effect is not None and len(tasks) < limit and admits(slot):
            self._under_way[slot] = None
            tasks.append(Task(slot, effect))
        return is_held or effect is not None

    def _asked(self, standing: duties.Standing) -> tuple[duties.Worker, ...]:
        """Return whom to ask; a parked worker ends the flush that waits for it by itself.

        What is parked is operational: the dropper, elsewhere, does not know of it.
        """
        if standing.parked and "dropper" not in self._workers:
            return (*self._workers, "dropper")
        return self._workers

    def _known(self, slot: Slot) -> Attempts:
        known = self._attempts.get(slot)
        if known is None:
            stored = attempts_in(self._processor.store, slot)
            if not (stored.n_failures or stored.refused):
                return stored
            known = self._attempts[slot] = stored
        return known

    def _remember(self, slot: Slot, attempts: Attempts) -> None:
        empty = not attempts.n_failures and not attempts.refused
        if empty:
            self._attempts.pop(slot, None)
        else:
            self._attempts[slot] = attempts
        value = None if empty else msgspec.msgpack.encode(attempts)
        self._processor.store.put_operational(_row_key(slot), value)


def attempts_in(rows: OperationalRows, slot: Slot) -> Attempts:
    """Return what is remembered of a slot, for whoever reads while another process works."""
    stored = rows.get_operational(_row_key(slot))
    return Attempts() if stored is None else msgspec.msgpack.decode(stored, type=Attempts)


def _row_key(slot: Slot) -> bytes:
    key, segment, worker = slot
    return b"attempts\x00" + key + b"\x00" + segment.to_bytes(4, "big") + worker.encode()
