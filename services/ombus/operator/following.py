"""Rows folded from Kafka without being a member of any group: warm replicas, and rebuilt rows.

A follower folds the partitions it is told and emits nothing. What it has folded is what a worker
of that instance and role would have; the worker opens the same folder and goes on.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from ombus_streams.runtime.errors import RetryableError
from ombus_streams.runtime.pages import pages
from ombus_streams.runtime.ports import EntryLog
from ombus_streams.runtime.processor import Processor
from ombus_streams.runtime.usage import carry_over

from ombus.operator.checkpoints import newest, restore
from ombus.operator.depot import Depot
from ombus.operator.errors import Busy, Misaddressed
from ombus.operator.progress import Tell, untold
from ombus.wiring_state import (
    StoreError,
    StoreOwned,
    is_in_use,
    older_folders,
    open_states,
    partitions_in,
    state_folder,
    still_rows,
    switch_folders,
    taken,
)

BATCH: Final = 1_000
CLOSE_ENOUGH: Final = 1_000
"""Records: what a worker that takes over folds in less than a second."""
IDLE_SECONDS: Final = 0.2
BESIDE: Final = ".rebuild"

Together = Callable[[Path, Mapping[int, int], Tell], int]
"""Folds the records left, by partition, into rows nobody has open; returns how many that were."""


class NotCaughtUp(Misaddressed):
    """The new rows are not there yet, so the old ones stay."""

    code = "not_caught_up"


class Followed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far a folder is."""

    folder: str
    partitions: int
    from_checkpoint: int
    """Partitions that began with one."""
    records: int
    """Folded now."""
    seconds: float
    lag: int
    waited_seconds: float = 0.0
    """For the worker that folded the old rows to let go."""


class Follower:
    """The partitions of one folder, open until ``close``."""

    def __init__(self, folder: Path, log: EntryLog, partitions: Sequence[int]) -> None:
        self._log, self.folder = log, folder
        self._states = open_states(folder)
        self.n_folded = 0
        try:
            self._processors = [
                Processor(self._states.store(each), log, each, emits=False) for each in partitions
            ]
        except BaseException:
            self._states.close()
            raise

    def catch_up(self, stop: threading.Event, tell: Tell) -> None:
        """Fold what the log has by now, unless ``stop`` is set before."""
        ends = [self._log.end(each.partition) for each in self._processors]
        begun = self.n_folded
        total = sum(
            max(0, end - each.next_offset) for end, each in zip(ends, self._processors, strict=True)
        )
        for end, processor in zip(ends, self._processors, strict=True):
            at = processor.partition, processor.next_offset
            for page in pages(self._log, *at, end, BATCH):
                if stop.is_set():
                    return
                self.n_folded += processor.fold(page).n_records
                tell(self.n_folded - begun, total)

    def lag(self) -> int:
        return sum(each.lag() for each in self._processors)

    @property
    def reached(self) -> int:
        """The next offsets of all partitions together."""
        return sum(each.next_offset for each in self._processors)

    def carry_over(self, live: Path) -> None:
        """Let what was spent stay spent, and no other operational row."""
        there = {*partitions_in(live)}
        for processor in self._processors:
            if processor.partition in there:
                with still_rows(live, processor.partition) as rows:
                    carry_over(rows, processor.store)

    def close(self) -> None:
        self._states.close()


def follow(
    folder: Path,
    log: EntryLog,
    partitions: Sequence[int],
    stop: threading.Event,
    *,
    role: str,
    depot: Depot | None = None,
    ends: bool = False,
    tell: Tell = untold,
) -> Followed:
    """Keep ``folder`` as far as the log is until ``stop`` is set; with ``ends`` only once.

    Partitions without rows begin with a checkpoint of ``depot``, if there is one. Brokers that are
    away are waited for.

    Raises:
        StoreOwned: a worker folds the same folder.
        LogContradicts, Damaged: see their way out.
    """
    began = time.monotonic()
    n_restored = _from_checkpoints(folder, log, partitions, role, depot)
    follower = Follower(folder, log, partitions)
    try:
        while True:
            try:
                follower.catch_up(stop, tell)
                if stop.is_set() or (ends and follower.lag() <= CLOSE_ENOUGH):
                    break
            except RetryableError:
                if ends:
                    raise
            stop.wait(IDLE_SECONDS)
        lag = 0 if stop.is_set() else follower.lag()
    finally:
        follower.close()
    return Followed(
        folder=str(folder),
        partitions=len(partitions),
        from_checkpoint=n_restored,
        records=follower.n_folded,
        seconds=round(time.monotonic() - began, 3),
        lag=lag,
    )


def rebuild(
    data: Path,
    instance: str,
    role: str,
    log: EntryLog,
    *,
    depot: Depot | None = None,
    wait_seconds: float = 0.0,
    together: Together | None = None,
    tell: Tell = untold,
) -> Followed:
    """Fold new rows beside the live ones and let them take their place.

    They begin at zero, or with a checkpoint of ``depot``; ``together`` folds them first. A worker
    that folds the live rows is waited for, and the new ones are kept warm meanwhile. Where this
    fold version has no rows yet, there is nobody to wait for: that is the way to a new version.

    Raises:
        Busy: the worker did not let go within ``wait_seconds``; what is folded stays beside, and
            rebuilding again goes on from there.
        LogContradicts, Damaged: see their way out.
    """
    began = time.monotonic()
    live = state_folder(data, instance, role)
    beside = live.with_name(live.name + BESIDE)
    partitions = _partitions(data, instance, role, log)
    n_restored = _from_checkpoints(beside, log, partitions, role, depot)
    n_together = 0
    if together is not None:
        n_together = together(beside, left_by_partition(beside, log, partitions), tell)
    follower, never = Follower(beside, log, partitions), threading.Event()
    try:
        while True:
            follower.catch_up(never, tell)
            if follower.lag() <= CLOSE_ENOUGH:
                break
        caught_up = time.monotonic()
        while not _switched(follower, live, _spent_in(data, instance, role)):
            if time.monotonic() - caught_up >= wait_seconds:
                raise Busy("the switch", live, "of a worker")
            time.sleep(IDLE_SECONDS)
            follower.catch_up(never, tell)
        waited_seconds = time.monotonic() - caught_up
    finally:
        follower.close()
    return Followed(
        folder=str(live),
        partitions=len(partitions),
        from_checkpoint=n_restored,
        records=n_together + follower.n_folded,
        seconds=round(time.monotonic() - began, 3),
        lag=sum(log.end(each) for each in partitions) - follower.reached,
        waited_seconds=round(waited_seconds, 3),
    )


def left_by_partition(folder: Path, log: EntryLog, partitions: Sequence[int]) -> dict[int, int]:
    """Return how many records of each partition the rows in ``folder`` do not have yet.

    Rows that cannot be read have none: whoever folds them says what is wrong.
    """
    there = {*partitions_in(folder)}
    return {
        each: max(0, log.end(each) - (_folded(folder, each) if each in there else log.start(each)))
        for each in partitions
    }


def _folded(folder: Path, partition: int) -> int:
    try:
        with still_rows(folder, partition) as rows:
            position = rows.position()
    except StoreError:
        return 0
    return position.next_offset if position else 0


def _switched(follower: Follower, live: Path, spent: Path) -> bool:
    """Close the new rows and put them in their place, unless somebody folds the live ones."""
    try:
        with taken(live):
            follower.carry_over(spent)
            follower.close()
            switch_folders(live, follower.folder)
    except StoreOwned:
        return False
    return True


def remove_old(data: Path, instance: str, role: str, log: EntryLog) -> list[Path]:
    """Delete the rows of other fold versions; return which they were.

    Raises:
        NotCaughtUp: the rows of this version lack a partition, or are far behind.
        Busy: a worker still folds the old ones.
    """
    import shutil

    old = older_folders(data, instance, role)
    live = state_folder(data, instance, role)
    for folder in old:
        missing = {*partitions_in(folder)} - {*partitions_in(live)}
        if missing:
            raise NotCaughtUp(
                f"{live} has no rows of partition {min(missing)}, {folder.name} has: "
                "rebuild, and start the new worker first"
            )
        if is_in_use(folder):
            raise Busy("removing old rows", folder, "of a worker of an older version")
    left = left_by_partition(live, log, partitions_in(live)) if old else {}
    for partition, n_left in left.items():
        if n_left > CLOSE_ENOUGH:
            raise NotCaughtUp(
                f"partition {partition} of {live} is {n_left:,} records behind: wait for its worker"
            )
    for folder in old:
        shutil.rmtree(folder)
    return old


def _from_checkpoints(
    folder: Path, log: EntryLog, partitions: Sequence[int], role: str, depot: Depot | None
) -> int:
    if depot is None:
        return 0
    there = {*partitions_in(folder)}
    found = newest(depot, log.incarnation, role)
    wanted = [each for each in partitions if each in found and each not in there]
    for partition in wanted:
        restore(depot, found[partition], folder)
    return len(wanted)


def _partitions(data: Path, instance: str, role: str, log: EntryLog) -> list[int]:
    """Return what the instance folds, in whatever version; all if it has folded nothing yet."""
    folders = [state_folder(data, instance, role), *older_folders(data, instance, role)]
    found = {partition for folder in folders for partition in partitions_in(folder)}
    return sorted(each for each in found if each < log.partitions) or [*range(log.partitions)]


def _spent_in(data: Path, instance: str, role: str) -> Path:
    live = state_folder(data, instance, role)
    older = older_folders(data, instance, role)
    return live if live.is_dir() or not older else older[-1]
