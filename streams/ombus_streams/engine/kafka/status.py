"""How far a worker is: what a probe asks for, and what an operator reads."""

import statistics
from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

LAGS: Final = 1_000
"""Batches whose lag is remembered."""


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One assigned partition."""

    partition: int
    is_ready: bool
    """It has folded everything that was on the log when it was assigned."""
    next_offset: int
    catch_up_to: int | None
    """Where the log ended when the partition was opened; ``None``: it is not open yet."""
    end: int | None
    """Where the log ends, as the last fetch saw it."""

    @property
    def lag(self) -> int | None:
        """How many records are not folded yet."""
        return None if self.end is None else max(0, self.end - self.next_offset)


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker process."""

    role: str
    instance: str
    is_ready: bool
    """All its partitions are; a worker without any is not."""
    progress: float
    """From 0 to 1: how much of what it catches up with is folded."""
    partitions: tuple[PartitionStatus, ...]
    n_runs_under_way: int
    n_records: int
    """Folded by this process, redelivered ones not counted."""
    n_dead_letters: int
    n_runs: int
    """Whose result was appended."""
    n_runs_failed: int
    n_stale_batches: int
    """Refused because somebody else had moved the store."""
    lag_ms_median: int | None
    """From the append of a batch's first record to its commit, over the last batches."""
    lag_ms_max: int | None


class Counts:
    """What a worker has done since it was started."""

    def __init__(self) -> None:
        self.n_records = 0
        self.n_dead_letters = 0
        self.n_runs = 0
        self.n_runs_failed = 0
        self.n_stale_batches = 0
        self.lags_ms: deque[int] = deque(maxlen=LAGS)

    def status(
        self,
        role: str,
        instance: str,
        partitions: tuple[PartitionStatus, ...],
        n_runs_under_way: int,
    ) -> WorkerStatus:
        return WorkerStatus(
            role=role,
            instance=instance,
            is_ready=bool(partitions) and all(each.is_ready for each in partitions),
            progress=_progress(partitions),
            partitions=partitions,
            n_runs_under_way=n_runs_under_way,
            n_records=self.n_records,
            n_dead_letters=self.n_dead_letters,
            n_runs=self.n_runs,
            n_runs_failed=self.n_runs_failed,
            n_stale_batches=self.n_stale_batches,
            lag_ms_median=round(statistics.median(self.lags_ms)) if self.lags_ms else None,
            lag_ms_max=max(self.lags_ms, default=None),
        )


def _progress(partitions: Sequence[PartitionStatus]) -> float:
    wanted = sum(each.catch_up_to or 0 for each in partitions)
    if not wanted or any(each.catch_up_to is None for each in partitions):
        return 1.0 if partitions and all(each.is_ready for each in partitions) else 0.0
    done = sum(min(each.next_offset, each.catch_up_to or 0) for each in partitions)
    return done / wanted
