"""An engine under a gateway: its loop in a thread of its own, reads in a few others.

Folding and runs never block a request. A gateway beside an owner (another process folds the same
folder) does not run the loop; it appends and reads as well. On Kafka the loop folds the partitions
that the group gives to this process.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import copy_context
from datetime import timedelta
from functools import partial
from typing import Final, Protocol, TypeVar, cast

from ombus_schemas.entries import Entry
from ombus_streams.runtime.metrics import Sample
from ombus_streams.runtime.ports import Clock, EntryLog, Position
from ombus_streams.runtime.telemetry import Telemetry

from ombus.gateway.problems import ApiError
from ombus.loop_thread import LoopThread
from ombus.operator.desk import Desk
from ombus.operator.errors import BadPosition, PositionGone
from ombus.settings import ProcessSettings
from ombus.wiring import Engine, Reading, SystemClock

FIRST_PAUSE_S: Final = 0.001
MAX_PAUSE_S: Final = 0.02
FOLD_SECONDS: Final = 10.0
"""A request waits no longer for the fold, unless it says so."""

Result = TypeVar("Result")


class Hosted(Protocol):
    """What a gateway asks of an engine. Everything but ``run`` may be called from any thread."""

    @property
    def log(self) -> EntryLog: ...

    def append(self, entries: Sequence[Entry]) -> tuple[Position, ...]: ...

    def folded(self, partition: int) -> int: ...

    def serves(self, partition: int) -> bool: ...

    def wait(self, ends: Mapping[int, int], timeout: timedelta) -> bool: ...

    def reading(self, key: bytes) -> AbstractContextManager[Reading]: ...

    def sessions(self) -> list[bytes]: ...

    def lag(self) -> int: ...

    @property
    def telemetry(self) -> Telemetry: ...

    def samples(self) -> list[Sample]: ...

    async def run(self, stop: asyncio.Event) -> None: ...

    def close(self) -> None: ...


class HostedDesk(Desk):
    """A desk over an engine that is open already; it never becomes the owner by itself.

    The engine may be one of another kind: it has what reads and requests ask for (``Hosted``).
    """

    def __init__(
        self, settings: ProcessSettings, engine: Hosted, clock: Clock, *, is_worked: bool
    ) -> None:
        self.settings, self.clock = settings, clock
        self.engine = cast("Engine", engine)
        self.n_runs, self.owns = 0, False
        self._is_worked = is_worked

    @property
    def is_worked(self) -> bool:
        return self._is_worked or (isinstance(self.engine, Engine) and super().is_worked)

    def _take_over(self) -> bool:
        return False


class Host:
    """See the module. ``folds``: run the engine's loop here; ``works``: it runs workers, too."""

    def __init__(
        self,
        settings: ProcessSettings,
        engine: Hosted,
        *,
        folds: bool,
        threads: int,
        works: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self.engine, self.folds = engine, folds
        self.desk = HostedDesk(settings, engine, clock or SystemClock(), is_worked=folds and works)
        self._threads = ThreadPoolExecutor(threads, "ombus-gateway")
        self.loop = LoopThread("ombus-engine", engine.run)
        """The engine's; the process must end with it."""

    def start(self) -> None:
        if self.folds:
            self.loop.start()

    async def stop(self) -> None:
        """End the loop in order, give runs under way up and close the engine."""
        await asyncio.to_thread(self.loop.stop)
        self._threads.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self.engine.close)

    def fail(self, error: BaseException) -> None:
        """Let the process end with ``error``; the first one is kept."""
        self.loop.fail(error)

    @property
    def is_ready(self) -> bool:
        return self.loop.failure is None and not self.loop.ended.is_set()

    async def call(self, ask: Callable[[], Result]) -> Result:
        """Return what ``ask`` does, from one of the threads, in the caller's context."""
        run = partial(copy_context().run, ask)
        return await asyncio.get_running_loop().run_in_executor(self._threads, run)

    async def folded(self, partition: int) -> int:
        """Return the first offset of a partition that is not folded yet."""
        if self.folds and self.engine.serves(partition):
            return self.engine.folded(partition)
        return await self.call(lambda: self.engine.folded(partition))

    async def until_folded(self, position: Position, seconds: float = FOLD_SECONDS) -> None:
        """Return once ``position`` is folded.

        Raises:
            ApiError: ``behind``, with how far the fold has come.
        """
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + seconds, FIRST_PAUSE_S
        while (folded := await self.folded(position.partition)) <= position.offset:
            if loop.time() >= deadline or self.loop.failure is not None:
                reached = Position(position.incarnation, position.partition, folded)
                fact = f"{position.offset + 1 - folded:,} records are not folded yet"
                raise ApiError("behind", fact, retry_after=1, folded=str(reached))
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_S)

    async def caught_up(self, key: bytes) -> Position:
        """Return the last position of the session's partition once it is folded.

        Raises:
            ApiError: ``behind``.
        """
        log = self.engine.log
        partition = log.partition_of(key)
        end = await self.call(lambda: log.end(partition))
        last = Position(log.incarnation, partition, end - 1)
        await self.until_folded(last)
        return last

    def position_of(self, text: str, key: bytes) -> Position:
        """Return the position a caller gave.

        Raises:
            BadPosition, PositionGone: see there.
        """
        log = self.engine.log
        parts = text.rsplit(":", 2)
        if len(parts) != 3 or not all(part.isascii() and part.isdecimal() for part in parts[1:]):
            raise BadPosition(text, "is no <incarnation>:<partition>:<offset>")
        if parts[0] != log.incarnation:
            raise PositionGone(text, log.incarnation)
        if len(parts[2]) > 18 or parts[1] != str(log.partition_of(key)):
            raise BadPosition(text, "is of another partition")
        return Position(parts[0], int(parts[1]), int(parts[2]))
