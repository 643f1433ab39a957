"""How far a role is, asked at the moment somebody looks; nothing here is kept or counted."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

import msgspec

from ombus_streams.memory import keys
from ombus_streams.memory.duties import WORKERS
from ombus_streams.memory.rows import Overlay, Rows
from ombus_streams.memory.session import Session
from ombus_streams.runtime import metrics
from ombus_streams.runtime.metrics import Sample
from ombus_streams.runtime.scheduler import Scheduler

MAX_SESSIONS: Final = 500
"""Sessions with work due that are looked at, of a partition; a backlog shows in the lag as well."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One partition."""

    partition: int
    next_offset: int
    end: int | None
    """Where the log ends; ``None``: not known yet."""
    waits_since_ms: int
    """When the oldest record that is not folded was appended, or a little earlier."""


def of_partitions(role: str, standings: Sequence[Standing], now_ms: int) -> list[Sample]:
    """Return the lag of each partition, and how long its oldest record has waited."""
    samples: list[Sample] = []
    for each in standings:
        if each.end is None:
            continue
        lag, labels = max(0, each.end - each.next_offset), (role, str(each.partition))
        age_ms = max(0, now_ms - each.waits_since_ms) if lag else 0
        samples.append(Sample(metrics.LAG, lag, labels))
        samples.append(Sample(metrics.UNFOLDED_AGE, age_ms / 1_000, labels))
    return samples


def of_schedulers(role: str, schedulers: Iterable[Scheduler]) -> list[Sample]:
    """Return what is under way, and how many leaves are parked for each worker."""
    n_under_way, parked = 0, Counter[str]()
    for each in schedulers:
        n_under_way += each.n_under_way
        parked.update(each.parked_leaves())
    samples = [Sample(metrics.PARKED, parked[worker], (role, worker)) for worker in WORKERS]
    return [Sample(metrics.UNDER_WAY, n_under_way, (role,)), *samples]


def waited_ms(rows: Rows, now_ms: int) -> int:
    """Return the age of the newest entry of the session that has waited longest for due work."""
    prefix = keys.due_mark()
    oldest = now_ms
    for key, _ in islice(rows.scan(prefix), MAX_SESSIONS):
        oldest = min(oldest, Session(key[len(prefix) :], Overlay(rows)).head.at_ms)
    return now_ms - oldest


def of_role(role: str, age_ms: int, *, is_ready: bool) -> list[Sample]:
    """Return what stands for the role as a whole."""
    return [
        Sample(metrics.MEMORY_AGE, age_ms / 1_000, (role,)),
        Sample(metrics.READY, float(is_ready), (role,)),
    ]
