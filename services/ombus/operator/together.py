"""Folding partitions on every core: several processes, each takes the next partition there is.

Partitions share nothing. What a process has folded is in the rows of its partition, whatever
becomes of the process: whoever folds them next goes on from there.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from ombus_streams.runtime.errors import RuntimeFault
from ombus_streams.runtime.ports import EntryLog
from ombus_streams.runtime.processor import Processor

from ombus.wiring_state import open_states

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

BATCH: Final = 1_000
TELL_SECONDS: Final = 0.2

Tell = Callable[[int, int], None]
"""Told how many records of how many have been folded."""


class OpenedLog(EntryLog, Protocol):
    """A log whoever opened it closes."""

    def close(self) -> None: ...


OpenLog = Callable[[], OpenedLog]
"""Opens the log in another process: it is pickled."""


def fold_together(
    folder: Path,
    log: EntryLog,
    open_log: OpenLog,
    partitions: Sequence[int],
    n_processes: int,
    tell: Tell = lambda done, total: None,
) -> int:
    """Fold what the log has by now into rows nobody has open; return how many records that were.

    A process that cannot go on ends alone and leaves the rest of its partition undone: whoever
    folds the rows next meets what stopped it. They end with the process that started them.
    """
    context = get_context("spawn")
    n_taken, n_folded = context.Value("Q"), context.Value("Q")
    processes = [
        context.Process(
            target=_take_turns, args=(folder, open_log, tuple(partitions), n_taken, n_folded)
        )
        for _ in range(min(n_processes, len(partitions)))
    ]
    total = sum(log.end(each) for each in partitions)
    for each in processes:
        each.start()
    try:
        for each in processes:
            while each.is_alive():
                each.join(TELL_SECONDS)
                tell(n_folded.value, total)
    finally:
        for each in processes:
            each.kill()
            each.join()
    return int(n_folded.value)


def _take_turns(
    folder: Path,
    open_log: OpenLog,
    partitions: Sequence[int],
    n_taken: "Synchronized[int]",
    n_folded: "Synchronized[int]",
) -> None:
    """Be one of the processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.stdout = sys.stderr  # What the parent prints is data.
    try:
        with closing(open_log()) as log, closing(open_states(folder)) as states:
            while True:
                with n_taken.get_lock():
                    turn = n_taken.value
                    n_taken.value += 1
                if turn >= len(partitions):
                    return
                partition = partitions[turn]
                processor = Processor(states.store(partition), log, partition, emits=False)
                end = log.end(partition)
                while processor.next_offset < end:
                    batch = processor.step(BATCH)
                    if not batch.n_records:
                        break  # What is left are markers: offsets without a record.
                    with n_folded.get_lock():
                        n_folded.value += batch.n_records
    except RuntimeFault:
        return


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
