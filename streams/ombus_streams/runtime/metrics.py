"""What a process counts. Every name is declared here, once; dashboards are tested against it.

A tally needs no library and no registry: who serves ``/metrics`` puts it into words. No label is a
session, a tenant, a token or a model, so the number of series is bounded by this file.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import msgspec

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]
"""Values, in the order of the metric's label names."""

FAST: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
"""Seconds of what a caller waits for."""
SLOW: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds of what a model or a backlog takes."""


class Metric(msgspec.Struct, frozen=True):
    """One declaration; ``name`` is the exposed one, that of a counter ends in ``_total``."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, ascending; the infinite one is left out."""


LAG: Final = Metric(
    "ombus_lag_records", "gauge", "Records of the log that are not folded yet.",
    ("role", "partition"),
)  # fmt: skip
UNFOLDED_AGE: Final = Metric(
    "ombus_unfolded_age_seconds", "gauge",
    "Age of the oldest record that is not folded; 0 while none waits. On Kafka an upper bound.",
    ("role", "partition"),
)  # fmt: skip
MEMORY_AGE: Final = Metric(
    "ombus_memory_age_seconds", "gauge",
    "Age of the newest entry not yet in memory, of the session that has waited longest for work "
    "it is owed; 0 while no work is owed.", ("role",),
)  # fmt: skip
READY: Final = Metric(
    "ombus_ready", "gauge", "1 once everything that was on the log at the start is folded.",
    ("role",),
)  # fmt: skip
UNDER_WAY: Final = Metric(
    "ombus_runs_under_way", "gauge", "Runs that were started and are not folded yet.", ("role",)
)
PARKED: Final = Metric(
    "ombus_parked_leaves", "gauge", "Leaves whose worker failed too often to be asked.",
    ("role", "worker"),
)  # fmt: skip
RECORDS: Final = Metric(
    "ombus_folded_records_total", "counter", "Records folded, redelivered ones not counted.",
    ("role",),
)  # fmt: skip
FOLD_SECONDS: Final = Metric(
    "ombus_fold_seconds", "histogram", "What folding and committing one batch took.", ("role",),
    FAST,
)  # fmt: skip
FOLD_DELAY: Final = Metric(
    "ombus_append_to_fold_seconds", "histogram",
    "From the append of a batch's first record to its commit; catching up is left out.",
    ("role",), SLOW,
)  # fmt: skip
STALE_BATCHES: Final = Metric(
    "ombus_stale_batches_total", "counter", "Batches refused: another owner has moved the store.",
    ("role",),
)  # fmt: skip
DEAD_LETTERS: Final = Metric(
    "ombus_dead_letters_total", "counter", "Records that could not be folded.", ("role",)
)
RUNS: Final = Metric(
    "ombus_runs_total", "counter", "Runs by what became of them.", ("worker", "outcome")
)
RUN_SECONDS: Final = Metric(
    "ombus_run_seconds", "histogram", "From the start of a run to its result on the log.",
    ("worker",), SLOW,
)  # fmt: skip
TOKENS: Final = Metric(
    "ombus_tokens_total", "counter",
    "Tokens that models took and gave; `cached` is a part of `input`.", ("worker", "direction"),
)  # fmt: skip
GRANT_DENIALS: Final = Metric(
    "ombus_grant_denials_total", "counter", "Reads of shared memory that were denied.",
    ("reason",),
)  # fmt: skip
REQUESTS: Final = Metric(
    "ombus_gateway_requests_total", "counter", "Requests answered.", ("route", "status")
)
REQUEST_SECONDS: Final = Metric(
    "ombus_gateway_request_seconds", "histogram", "From the request to its answer.", ("route",),
    FAST,
)  # fmt: skip
ENTRIES: Final = Metric(
    "ombus_gateway_entries_total", "counter", "Entries offered, by what became of them.",
    ("status",),
)  # fmt: skip
TAILS: Final = Metric("ombus_gateway_tails", "gauge", "Tails open now.")

METRICS: Final = (
    LAG, UNFOLDED_AGE, MEMORY_AGE, READY, UNDER_WAY, PARKED, RECORDS, FOLD_SECONDS, FOLD_DELAY,
    STALE_BATCHES, DEAD_LETTERS, RUNS, RUN_SECONDS, TOKENS, GRANT_DENIALS, REQUESTS,
    REQUEST_SECONDS, ENTRIES, TAILS,
)  # fmt: skip


class Sample(msgspec.Struct, frozen=True):
    """What a gauge shows at one instant."""

    metric: Metric
    value: float
    labels: Labels = ()


Gauges = Callable[[], Sequence[Sample]]


class Observed(msgspec.Struct):
    """A histogram: how many values fell into each bucket, the last one the infinite one."""

    counts: list[int]
    total: float = 0.0


class Tally:
    """Counters and histograms of one process. May be used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: dict[tuple[Metric, Labels], float] = {}
        self._observed: dict[tuple[Metric, Labels], Observed] = {}

    def add(self, metric: Metric, *labels: str, amount: float = 1) -> None:
        """Count ``amount`` more; 0 makes the series visible."""
        with self._lock:
            key = (metric, labels)
            self._counted[key] = self._counted.get(key, 0) + amount

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Put a value into its bucket."""
        with self._lock:
            found = self._observed.get((metric, labels))
            if found is None:
                found = Observed([0] * (len(metric.buckets) + 1))
                self._observed[(metric, labels)] = found
            found.counts[bisect_left(metric.buckets, value)] += 1
            found.total += value

    def counted(self, metric: Metric) -> Mapping[Labels, float]:
        """Return the counter's series."""
        with self._lock:
            return {key[1]: value for key, value in self._counted.items() if key[0] is metric}

    def observed(self, metric: Metric) -> Mapping[Labels, Observed]:
        """Return the histogram's series, as they are now."""
        with self._lock:
            return {
                key[1]: Observed([*value.counts], value.total)
                for key, value in self._observed.items()
                if key[0] is metric
            }
