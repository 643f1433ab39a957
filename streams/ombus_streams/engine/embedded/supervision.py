"""Delegations of the embedded engine: a log and rows of their own, in ``folder/supervision``.

Whoever holds its lock folds and decides, so `ombus up`, a gateway, or a command that waits can do
it, one at a time and each after the other's death. Everybody may append and read.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

import structlog
from ombus_schemas.entries import Entry
from ombus_schemas.topics import SUPERVISION

from ombus_streams.engine.embedded.errors import AlreadyOwned
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.engine.embedded.milestones import Milestones
from ombus_streams.engine.embedded.ownership import Ownership
from ombus_streams.engine.embedded.store import Snapshot, StateFile
from ombus_streams.runtime.delegation_fold import DelegationFold
from ombus_streams.runtime.hooks import Hooks
from ombus_streams.runtime.ports import Clock, Position
from ombus_streams.runtime.supervisor import Supervisor, append
from ombus_streams.supervision.checks import HostPolicy
from ombus_streams.supervision.parent import FOLD_VERSION

FOLDER: Final = "supervision"
IDLE_WAIT: Final = timedelta(milliseconds=100)
RETRY_S: Final = 0.25

_log = structlog.get_logger("ombus.supervision")


class Supervision:
    """What lies in ``folder/supervision``, made if there is nothing. See the module."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        host: HostPolicy,
        hooks: Hooks,
        redact: Callable[[str], str],
        *,
        secrets: Sequence[str] = (),
        partitions: int | None = None,
    ) -> None:
        self.folder = folder / FOLDER
        self._entries_folder, self._partitions, self._secrets = folder, partitions, secrets
        self._clock, self._host, self._hooks, self._redact = clock, host, hooks, redact
        self._ownership = Ownership(self.folder)
        self.supervisor: Supervisor | None = None
        """Who decides, while this process is the owner."""
        self._milestones: Milestones | None = None
        opened = ExitStack()
        with opened:
            self.log = SqliteLog(self.folder, clock, partitions=partitions, topic=SUPERVISION)
            opened.callback(self.log.close)
            self.state = StateFile(self.folder / f"state-v{FOLD_VERSION}")
            opened.pop_all()

    def own(self) -> bool:
        """Become the owner if nobody is; say whether this process is now."""
        if self.supervisor is None:
            try:
                self._ownership.acquire()
            except AlreadyOwned:
                return False
            self._milestones = Milestones(
                self._entries_folder,
                self._clock,
                self.log,
                self._secrets,
                partitions=self._partitions,
            )
            tells = self._hooks.has_after
            folds: Mapping[int, DelegationFold] = {
                each: DelegationFold(self.state.store(each), self.log, each, tells=tells)
                for each in range(self.log.partitions)
            }
            self.supervisor = Supervisor(
                self.log, folds, self._host, self._hooks, self._clock, self._redact
            )
        return True

    async def step(self) -> int:
        """Fold what is on the log and do what is due; return how many batches and events it was.

        Only the owner may call it.
        """
        assert self.supervisor is not None
        assert self._milestones is not None
        n_records = self._milestones.step()
        n_batches = self.supervisor.fold()
        return n_records + n_batches + await self.supervisor.act()

    async def run(self, stop: asyncio.Event) -> None:
        """Own and step until ``stop`` is set, waiting for the lock as long as somebody has it."""
        try:
            while not stop.is_set():
                if not self.own():
                    await _pause(stop, RETRY_S)
                elif not await self.step():
                    await asyncio.to_thread(self._wait)
        finally:
            if self.supervisor is not None:
                await self.supervisor.close()
                self.supervisor = None
            self._disown()

    def append(self, entries: Sequence[Entry]) -> tuple[Position, ...]:
        """Append events, durably, in order; whoever owns the folder folds them."""
        return append(self.log, entries)

    @contextmanager
    def rows(self, key: bytes) -> Iterator[Snapshot]:
        """Lend the rows of a parent's partition as they stand at one instant, whoever folds."""
        with self.state.snapshot(self.log.partition_of(key)) as rows:
            yield rows

    def folded(self, partition: int) -> int:
        """Return the first offset of a partition that is not folded yet, whoever folds."""
        with self.state.snapshot(partition) as rows:
            row = rows.position()
        return row.next_offset if row else 0

    def wait(self, ends: Mapping[int, int], timeout: timedelta) -> bool:
        """Say whether a partition of the log has grown past the end named for it."""
        return self.log.wait(ends, timeout)

    def close(self) -> None:
        """Close the files and give the ownership back. Idempotent."""
        self.supervisor = None
        self._disown()
        self.log.close()
        self.state.close()

    def _disown(self) -> None:
        if self._milestones is not None:
            self._milestones.close()
            self._milestones = None
        self._ownership.release()

    def _wait(self) -> None:
        assert self.supervisor is not None
        ends = {each: fold.next_offset for each, fold in self.supervisor.folds.items()}
        self.log.wait(ends, IDLE_WAIT)


def is_there(folder: Path) -> bool:
    """Say whether anything was ever delegated in the data folder."""
    return (folder / FOLDER / "log.db").is_file()


async def run_when_there(
    folder: Path, stop: asyncio.Event, opened: Callable[[], Supervision]
) -> None:
    """Open the delegations of a data folder once there are any, and run them until ``stop``."""
    while not stop.is_set():
        if is_there(folder):
            _log.info("supervision.started", folder=str(folder))
            supervision = opened()
            try:
                await supervision.run(stop)
            finally:
                supervision.close()
            return
        await _pause(stop, RETRY_S)


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
