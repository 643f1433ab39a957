"""A data folder opened for one command: it appends, and whoever owns the folder folds.

While ``ombus up`` owns it, the command waits for that process; else it takes the ownership for as
long as it needs it. The owner may change meanwhile: a killed one is replaced by whoever waits.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, Self

import msgspec
from ombus_schemas.admission import Policy
from ombus_schemas.entries import Entry
from ombus_streams.runtime.ports import Clock, Position

from ombus.operator.errors import NoData, Unanswered
from ombus.settings import ProcessSettings
from ombus.wiring import (
    AlreadyOwned,
    Engine,
    Providers,
    SystemClock,
    has_log,
    is_owned,
    open_engine,
)

POLL_S: Final = 0.01
MAX_POLL_S: Final = 0.2


class Progress(msgspec.Struct, frozen=True):
    """How far the folding is."""

    lag: int
    """Records nobody has folded yet."""
    n_runs: int
    """Results of workers that this command appended itself."""
    owns: bool


Watch = Callable[[Progress], None]


class Desk:
    """See the module. ``needs_log``: refuse a folder that holds nothing, instead of making one."""

    def __init__(
        self,
        settings: ProcessSettings,
        *,
        needs_log: bool = True,
        watch: Watch = lambda _: None,
        clock: Clock | None = None,
        providers: Providers | None = None,
    ) -> None:
        if needs_log and not has_log(settings.folder):
            raise NoData(settings.folder)
        self.settings, self.clock = settings, clock or SystemClock()
        self.n_runs = 0
        self._providers, self._watch = providers, watch
        self.owns = False
        self.engine = self._open(owns=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.engine.close()

    @property
    def is_worked(self) -> bool:
        """Say whether somebody does the workers' work right now."""
        return is_owned(self.engine.folder)

    def policy(self, role: str) -> Policy:
        """Return the admission policy of this process for a role."""
        patterns = None if role == "importer" else self.settings.redact_patterns
        said = {"role": role, "secrets": self.settings.secrets, "patterns": patterns}
        return msgspec.convert(said, Policy)

    def append(self, entries: Sequence[Entry]) -> tuple[Position, ...]:
        """Append admitted entries; durable once this returns, folded by whoever owns the folder."""
        return self.engine.append(entries)

    def catch_up(self, partitions: Iterable[int] | None = None) -> None:
        """Return once everything that is on the log now is folded. Runs no worker.

        Raises:
            Unanswered: another process owns the folder and does not get on.
        """
        log = self.engine.log
        asked = range(log.partitions) if partitions is None else partitions
        ends = {partition: log.end(partition) for partition in asked}

        def is_done() -> bool:
            return all(self._folded(partition) >= end for partition, end in ends.items())

        self.wait(is_done, "folding what is on the log", works=False)

    def settle(self) -> int:
        """Fold and run every worker that is due if nobody else owns the folder.

        With another owner this only waits until everything is folded. Returns the results appended.
        """
        before = self.n_runs
        self.catch_up()
        if self._take_over():
            self._advance(works=True)
        return self.n_runs - before

    def wait(self, is_done: Callable[[], bool], what: str, *, works: bool) -> None:
        """Return once ``is_done`` says so; fold, and with ``works`` run, if nobody else does.

        Raises:
            Unanswered: nothing moved for ``wait_seconds``.
        """
        deadline = time.monotonic() + self.settings.wait_seconds
        moved: object = None
        pause = POLL_S
        while not is_done():
            if self._take_over():
                self._advance(works=works)
                if is_done():
                    return
            lag = self.engine.lag()
            state = (lag, self.n_runs, self._ends())
            if state != moved:
                moved, pause = state, POLL_S
                deadline = time.monotonic() + self.settings.wait_seconds
                self._watch(Progress(lag, self.n_runs, self.owns))
            elif time.monotonic() >= deadline:
                raise Unanswered(what, self.settings.wait_seconds)
            time.sleep(pause)
            pause = min(2 * pause, MAX_POLL_S)

    def release(self) -> None:
        """Let another process own the folder; this one appends and reads on."""
        if self.owns:
            self.engine.close()
            self.owns = False
            self.engine = self._open(owns=False)

    def _open(self, *, owns: bool) -> Engine:
        return open_engine(self.settings, owns=owns, clock=self.clock, providers=self._providers)

    def _take_over(self) -> bool:
        """Become the owner if nobody is; say whether this process owns the folder now."""
        if not self.owns:
            try:
                engine = self._open(owns=True)
            except AlreadyOwned:
                return False
            self.engine.close()
            self.engine, self.owns = engine, True
        return True

    def _advance(self, *, works: bool) -> None:
        while True:
            while self.engine.fold():
                self._watch(Progress(self.engine.lag(), self.n_runs, True))
            tasks = self.engine.due() if works else []
            if not tasks:
                return
            for task in tasks:
                self.n_runs += asyncio.run(self.engine.perform(task))
                self._watch(Progress(0, self.n_runs, True))

    def _folded(self, partition: int) -> int:
        with self.engine.state.snapshot(partition) as rows:
            row = rows.position()
        return row.next_offset if row else 0

    def _ends(self) -> int:
        log = self.engine.log
        return sum(log.end(partition) for partition in range(log.partitions))
