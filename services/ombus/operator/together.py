"""Folding partitions on every core: several processes, each with a share of the partitions.

Partitions share nothing, and neither do the processes: a lock among them would be held for ever by
one that is killed with it. What a process has folded is in the rows of its partitions, whatever
becomes of the process: whoever folds them next goes on from there.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from contextlib import closing
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Final, Protocol

from ombus_streams.runtime.errors import RuntimeFault
from ombus_streams.runtime.pages import pages
from ombus_streams.runtime.ports import EntryLog
from ombus_streams.runtime.processor import Processor

from ombus.operator.progress import Tell, untold
from ombus.wiring_state import open_states

BATCH: Final = 5_000
"""As of a worker that has not caught up: each session's heads are written once a batch."""
TELL_SECONDS: Final = 0.2
WORTH_PROCESSES: Final = 100_000
"""Records: fewer are folded before other processes have started."""


class OpenedLog(EntryLog, Protocol):
    """A log whoever opened it closes."""

    def close(self) -> None: ...


OpenLog = Callable[[], OpenedLog]
"""Opens the log in another process: it is pickled."""


def n_worth(n_records: int) -> int:
    """Return in how many processes so many records are folded soonest: one a core, or one."""
    return (os.cpu_count() or 1) if n_records >= WORTH_PROCESSES else 1


def fold_together(
    folder: Path,
    open_log: OpenLog,
    left: Mapping[int, int],
    n_processes: int,
    *,
    tell: Tell = untold,
    note: Callable[[str], None],
) -> int:
    """Fold what is left of each partition into rows nobody has open; return how many records.

    A process that cannot go on says why on standard error and ends alone, with its share undone:
    ``note`` is told, and whoever folds the rows next goes on and meets what stopped it. They end
    with the process that started them.
    """
    context = get_context("spawn")
    shares = _shares(left, n_processes)
    n_folded: MutableSequence[int] = context.RawArray("Q", len(shares))
    processes = [
        context.Process(target=_fold_share, args=(folder, open_log, share, n_folded, number))
        for number, share in enumerate(shares)
    ]
    total = sum(left.values())
    try:
        for each in processes:
            each.start()
        for each in processes:
            while each.is_alive():
                each.join(TELL_SECONDS)
                tell(sum(n_folded), total)
    finally:
        for each in processes:
            if each.pid is not None:
                each.kill()
                each.join()
    for each, share in zip(processes, shares, strict=True):
        if each.exitcode:
            how = "was killed" if each.exitcode < 0 else "could not go on"
            named = ", ".join(map(str, sorted(share)))
            note(f"a process {how}: what it left of partitions {named} is folded by this one")
    return sum(n_folded)


def _shares(left: Mapping[int, int], n_processes: int) -> list[list[int]]:
    """Deal the partitions, the longest ones first, so that each process gets about as much."""
    longest = sorted((each for each in left if left[each]), key=left.__getitem__, reverse=True)
    return [longest[first::n_processes] for first in range(min(n_processes, len(longest)))]


def _fold_share(
    folder: Path,
    open_log: OpenLog,
    partitions: Sequence[int],
    n_folded: MutableSequence[int],
    number: int,
) -> None:
    """Be one of the processes; the place ``number`` of ``n_folded`` is its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.stdout = sys.stderr  # What the parent prints is data.
    try:
        with closing(open_log()) as log, closing(open_states(folder)) as states:
            for partition in partitions:
                processor = Processor(states.store(partition), log, partition, emits=False)
                end = log.end(partition)
                for page in pages(log, partition, processor.next_offset, end, BATCH):
                    n_folded[number] += processor.fold(page).n_records
    except RuntimeFault as error:
        sys.exit(f"ombus: {error}")


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
