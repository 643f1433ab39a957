"""Proving the store of a data folder, also while another process folds it: one snapshot each."""

import tempfile
from pathlib import Path
from typing import Final

import msgspec
from ombus_streams.runtime.verify import Difference, Verified, verify

from ombus.operator.progress import Tell, untold
from ombus.wiring import Engine, StateFile

MAX_DIFFERENCES: Final = 20


class Verification(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was compared over all partitions, and the first differences."""

    partitions: int
    records: int
    """Of the log, folded afresh."""
    rows: int
    sessions: int
    leaves: int
    sources: int
    lag: int
    """Records after the position of the store: not folded yet, hence not compared."""
    n_differences: int
    differences: tuple[Difference, ...]

    @property
    def is_equal(self) -> bool:
        return not self.n_differences


def verify_folder(engine: Engine, tell: Tell = untold) -> Verification:
    """Fold the log afresh up to where the store is and compare the two row by row."""
    log = engine.log
    total = sum(log.end(partition) for partition in range(log.partitions))
    found: list[Verified] = []
    n_records = 0
    with tempfile.TemporaryDirectory(prefix="ombus-verify-") as scratch:
        fresh = StateFile(Path(scratch))
        try:
            for partition in range(log.partitions):
                before = n_records

                def progress(n_folded: int, before: int = before) -> None:
                    tell(before + n_folded, total)

                with engine.state.snapshot(partition) as live:
                    position = live.position()
                    store = fresh.store(partition)
                    found.append(verify(live, position, log, partition, store, progress))
                n_records += position.next_offset if position else 0
        finally:
            fresh.close()
    differences = [each for one in found for each in one.differences]
    return Verification(
        partitions=log.partitions,
        records=n_records,
        rows=sum(one.n_rows for one in found),
        sessions=sum(one.n_sessions for one in found),
        leaves=sum(one.n_leaves for one in found),
        sources=sum(one.n_sources for one in found),
        lag=engine.lag(),
        n_differences=len(differences),
        differences=tuple(differences[:MAX_DIFFERENCES]),
    )
