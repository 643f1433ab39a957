"""Errors of the runtime.

* RuntimeFault
  * ResultHeld          no failure: a prepared run is done, and its entry waits until it is owed
  * RetryableError      the same call may work later
    * WorkerFailed        a run that recorded nothing; ``failure`` says of which class
    * NotServed           a partition that cannot be read here now
    * Deferred            a run that did not start: a provider, a place or a budget is lacking
  * TerminalError       the same call never works
    * Refused             the provider, or a limit, will not take this span: halve it
    * NotConfigured       a worker without a model, or without the credentials it names; a funnel
                          into a session of somebody else
    * LimitExceeded       a value above its cap, or no JSON at all
    * LogContradicts      a store and a log that do not belong together: refuse to start
    * StalePosition       a store has moved since this batch was begun
    * Closed              a log or store whose handle was closed

A run that fails leaves no trace: what it collected is discarded (S15).
"""

from typing import Literal

from ombus_streams.runtime.ports import Position, PositionRow

FailureKind = Literal["transient", "provider", "protocol"]
"""``transient``: S23.1 would retry. ``provider``: an error it would not. ``protocol``: the model
broke a bound of the loop (calls, bytes, unknown tool); another answer may well keep it."""


class RuntimeFault(RuntimeError):
    """Something at the edge went wrong; the log is as it was."""


class RetryableError(RuntimeFault):
    """The same call may work later, not before ``retry_after_ms`` if that is known."""

    def __init__(self, message: str, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class TerminalError(RuntimeFault):
    """The same call never works."""


class ResultHeld(RuntimeFault):
    """A run was prepared: there is nothing to append now, and its slot is free.

    It takes the way of a run without a result, which every engine has.
    """


class WorkerFailed(RetryableError):
    """A worker run that ended without a result; the message is redacted and cut to its cap."""

    def __init__(
        self, message: str, failure: FailureKind, retry_after_ms: int | None = None
    ) -> None:
        super().__init__(message, retry_after_ms)
        self.failure = failure

    @property
    def is_transient(self) -> bool:
        """Whether the retry rule of S23.1 would send the same turn again."""
        return self.failure == "transient"


class NotServed(RetryableError):
    """A partition that cannot be read here now: it moves, or its fold has not caught up.

    ``folded`` and ``end`` are the first positions that are not folded, and not on the log, when
    the fold began to catch up; ``None``: this process does not know.
    """

    def __init__(
        self, partition: int, folded: Position | None = None, end: Position | None = None
    ) -> None:
        fact = "moves"
        if folded is not None:
            of_all = "" if end is None else f" of {end.offset:,}"
            fact = f"has folded {folded.offset:,}{of_all} records"
        super().__init__(f"partition {partition} {fact}: ask again", 1_000)
        self.partition, self.folded, self.end = partition, folded, end


DeferralReason = Literal["provider_away", "budget_exhausted", "busy", "overtaken"]
MissingReason = Literal["missing_model", "missing_credentials", "other_owner"]


class Deferred(RetryableError):
    """A run that did not start and counts as no attempt: it is asked for again after the wait.

    ``overtaken``: something was invalidated since it was decided; it is decided again without that.
    ``parks``: the wait is so long that the leaf is shown as parked, for ``reason``.
    """

    def __init__(
        self, message: str, reason: DeferralReason, retry_after_ms: int, *, parks: bool = False
    ) -> None:
        super().__init__(message, retry_after_ms)
        self.reason, self.parks = reason, parks


class NotConfigured(TerminalError):
    """Nobody can do this worker's work: its leaf is parked for ``reason`` until somebody can."""

    def __init__(self, message: str, reason: MissingReason) -> None:
        super().__init__(message)
        self.reason = reason


class Refused(TerminalError):
    """This span will never be taken as it is: by the provider's refusal, or by its size.

    The way out is a smaller span; a single refused source is covered by an empty record that
    carries ``reason`` (design.md section 5).
    """

    def __init__(self, message: str, reason: Literal["provider_refused", "too_large"]) -> None:
        super().__init__(message)
        self.reason = reason


class LimitExceeded(TerminalError):
    """A value above its cap, nested too deep, or not JSON."""

    def __init__(self, label: str, fact: str, limit: int | None = None) -> None:
        super().__init__(f"{label} {fact}")
        self.label, self.limit = label, limit


class StalePosition(TerminalError):
    """The stored position is not the one the batch began at; nothing of the batch was written.

    An old owner, or a batch folded from elsewhere: drop what is cached, read the stored row and
    fold again from there (design.md section 6).
    """

    def __init__(
        self, partition: int, expected: PositionRow | None, stored: PositionRow | None
    ) -> None:
        super().__init__(
            f"partition {partition} is stored up to {_place(stored)}, the batch began at "
            f"{_place(expected)}: drop what is cached and fold again from the stored row"
        )
        self.partition, self.expected, self.stored = partition, expected, stored


class LogContradicts(TerminalError):
    """A store and a log that do not belong together, or a log that lacks what a fold needs."""

    def __init__(self, partition: int, fact: str, way_out: str) -> None:
        super().__init__(f"partition {partition}: {fact}: {way_out}")
        self.partition, self.fact = partition, fact


class Closed(TerminalError):
    """The handle was closed: its assignment, or its process, is over."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed: open it anew")
        self.what = what


def _place(row: PositionRow | None) -> str:
    if row is None:
        return "nothing"
    place = f"{row.incarnation}:{row.partition}:{row.next_offset}"
    return f"{place} (fold {row.fold_version}, hash {row.last_hash or '-'})"
