"""Proving rows folded from Kafka while their worker goes on: each partition as it stands now."""

import tempfile
from pathlib import Path

from ombus_streams.runtime.ports import EntryLog
from ombus_streams.runtime.verify import Difference, Verified, verify

from ombus.operator.errors import Misaddressed
from ombus.operator.progress import Tell, untold
from ombus.operator.verification import MAX_DIFFERENCES, Verification
from ombus.wiring_state import StoreError, open_states, partitions_in, still_rows


class NoRows(Misaddressed):
    """The folder holds nothing that was folded from Kafka."""

    code = "no_rows"

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder} holds no rows: name the instance and role of a worker")


def verify_rows(folder: Path, log: EntryLog, tell: Tell = untold) -> Verification:
    """Fold the log afresh up to where each partition of ``folder`` is, and compare row by row.

    A damaged file is a difference, too: its partition is named with what is wrong.

    Raises:
        NoRows: there is nothing to prove.
        LogContradicts, BrokerError: see their way out.
    """
    partitions = partitions_in(folder)
    if not partitions:
        raise NoRows(folder)
    total = sum(log.end(partition) for partition in partitions)
    found: list[Verified] = []
    n_records = lag = 0
    with tempfile.TemporaryDirectory(prefix="ombus-verify-") as scratch:
        fresh = open_states(Path(scratch) / "fresh")
        try:
            for partition in partitions:

                def progress(n_folded: int, before: int = n_records) -> None:
                    tell(before + n_folded, total)

                try:
                    with still_rows(folder, partition) as live:
                        position = live.position()
                        store = fresh.store(partition)
                        found.append(verify(live, position, log, partition, store, progress))
                except StoreError as error:
                    found.append(_damaged(partition, error))
                    continue
                next_offset = position.next_offset if position else 0
                n_records += next_offset
                lag += max(0, log.end(partition) - next_offset)
        finally:
            fresh.close()
    differences = [each for one in found for each in one.differences]
    return Verification(
        partitions=len(partitions),
        records=n_records,
        rows=sum(one.n_rows for one in found),
        sessions=sum(one.n_sessions for one in found),
        leaves=sum(one.n_leaves for one in found),
        sources=sum(one.n_sources for one in found),
        lag=lag,
        n_differences=len(differences),
        differences=tuple(differences[:MAX_DIFFERENCES]),
    )


def _damaged(partition: int, error: StoreError) -> Verified:
    fact = Difference("", f"partition {partition}", str(error))
    return Verified(partition=partition, position=None, differences=(fact,))
