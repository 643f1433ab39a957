"""The folded state of a folder's delegations against a fresh fold of its log."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ombus_schemas.codec import decode_record
from ombus_schemas.errors import BadRecord
from ombus_schemas.ids import SYSTEM_TENANT, session_key
from ombus_schemas.topics import SUPERVISION
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.engine.embedded.store import StateFile
from ombus_streams.memory.rows import MemoryRows
from ombus_streams.runtime.ports import EntryLog
from ombus_streams.supervision.handle import Handle
from ombus_streams.supervision.parent import (
    FOLD_VERSION,
    ReadRows,
    fold,
    handles_of,
    open_parents,
    parent_of,
)
from ombus_streams.supervision.summary import ChildSummary, summary

from tests.supervision.office import ManualClock


def check_fold(folder: Path) -> Counter[str]:
    """Return how many delegations ended how, if the folder keeps what it promises.

    Every row equals that of a fresh fold; every delegation has ended, by exactly one event; no slot
    is held, nothing can be claimed.
    """
    log = SqliteLog(folder / "supervision", ManualClock(), topic=SUPERVISION)
    state = StateFile(folder / "supervision" / f"state-v{FOLD_VERSION}")
    try:
        ends: Counter[str] = Counter()
        fresh = {each: MemoryRows() for each in range(log.partitions)}
        for partition, rows in fresh.items():
            ends += fold_all(log, partition, rows)
        for partition, rows in fresh.items():
            with state.snapshot(partition) as stored:
                kept = dict(stored.scan(b""))
                assert kept == dict(rows.rows), f"partition {partition} differs"
                assert not open_parents(stored)
                assert not [*stored.scan(b"c")], "something may be claimed"
                for key in _parents(stored):
                    assert parent_of(stored, key).open_ids == ()
        return ends
    finally:
        state.close()
        log.close()


def summed(folder: Path, key: bytes) -> tuple[ChildSummary, ...]:
    """Return the summary of a parent from nothing but the log."""
    return all_summed(folder, [key])[key]


def all_summed(folder: Path, keys: Sequence[bytes]) -> dict[bytes, tuple[ChildSummary, ...]]:
    """Return the summaries of parents from nothing but the log, which is folded once."""
    log = SqliteLog(folder / "supervision", ManualClock(), topic=SUPERVISION)
    fresh = {each: MemoryRows() for each in range(log.partitions)}

    def rows_of(key: bytes) -> MemoryRows:
        return fresh[log.partition_of(key)]

    def below(tenant: str, session: str) -> list[Handle]:
        child = session_key(tenant, session)
        return [*handles_of(rows_of(child), child)]

    try:
        for partition, rows in fresh.items():
            fold_all(log, partition, rows, all_over=False)
        return {
            key: summary(parent_of(rows_of(key), key), partial(below, key.decode().split("/")[0]))
            for key in keys
        }
    finally:
        log.close()


def fold_all(
    log: EntryLog, partition: int, rows: MemoryRows, *, all_over: bool = True
) -> Counter[str]:
    """Fold a partition into ``rows``; return how its delegations ended, each by one event."""
    ends: Counter[str] = Counter()
    offset = 0
    while page := log.read(partition, offset, 500):
        for record in page:
            offset = record.offset + 1
            try:
                entry = decode_record(record.key, record.value)
            except BadRecord:
                continue
            if entry.tenant_id == SYSTEM_TENANT:
                continue
            assert record.key is not None
            before = _states(rows, record.key)
            fold(rows, entry, record.at_ms)
            for id, handle in _states(rows, record.key).items():
                was = before.get(id)
                if handle.is_over and (was is None or not was.is_over):
                    ends[handle.state] += 1
                if was is not None and was.is_over:
                    assert handle.state == was.state, f"{id} ended twice"
    n_handles = sum(len(_states(rows, key)) for key in _parents(rows))
    assert not all_over or sum(ends.values()) == n_handles, "a delegation is not over"
    return ends


def _states(rows: ReadRows, key: bytes) -> dict[str, Handle]:
    return {handle.id: handle for handle in handles_of(rows, key)}


def _parents(rows: ReadRows) -> list[bytes]:
    return [key[1:] for key, _ in rows.scan(b"p")]
