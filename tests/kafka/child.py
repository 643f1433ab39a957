"""A worker in a process of its own, to be killed: ``python -m tests.kafka.child JSON``.

It says on each line of its output how far it is, several times a second; it ends on SIGTERM.
"""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
import structlog
from ombus_streams.engine.kafka.admission import RunLimits
from ombus_streams.engine.kafka.app import Membership
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.partition import FoldOptions
from ombus_streams.engine.kafka.rocks import Bounds, Memory
from ombus_streams.engine.kafka.roles import ROLES
from ombus_streams.engine.kafka.status import WorkerStatus
from ombus_streams.engine.kafka.store import RocksState
from ombus_streams.engine.kafka.worker import Worker, WorkerOptions
from ombus_streams.runtime.interpreter import Interpreter
from ombus_streams.runtime.provider import ModelRequest, TurnEvent

from tests.kafka.rocks import SMALL
from tests.kafka.world import Place, SystemClock, state_folder
from tests.support.engine import diligent

ROOT: Final = Path(__file__).parents[2]
EVERY_SECONDS: Final = 0.1


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is to be."""

    place: Place
    instance: str = "a"
    role: str = "all"
    run_seconds: float = 0.0
    """How long each first turn of a run takes."""
    max_runs: int = 64
    max_batch: int = 200
    bounds: Bounds = SMALL
    """What its databases may take."""


class Slow:
    """The diligent model, which takes its time."""

    name: Final = "slow"
    model: Final = "slow"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def turn(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        if self._seconds and not request.n_calls:
            await asyncio.sleep(self._seconds)
        for event in diligent(request):
            assert isinstance(event, TurnEvent)
            yield event


class JumpingClock(SystemClock):
    """Wall time of this process, which a signal moves: for our clock and for ``time.time``."""

    def __init__(self) -> None:
        self._jumped, self._time = timedelta(), time.time

    def now(self) -> datetime:
        return super().now() + self._jumped

    def jump(self, by: timedelta) -> None:
        self._jumped += by
        time.time = lambda: self._time() + self._jumped.total_seconds()


CLOCK: Final = JumpingClock()
JUMPS: Final = {
    signal.SIGUSR1: timedelta(days=400),
    signal.SIGUSR2: timedelta(days=-800),
}


async def run(told: Told, stop: asyncio.Event, report: bool = True) -> None:
    place, clock = told.place, CLOCK
    log = await asyncio.to_thread(KafkaLog, place.connection, place.topic)
    dead_letters = await asyncio.to_thread(KafkaLog, place.connection, place.dead_letters)
    state = RocksState(
        state_folder(Path(place.folder), told.instance, told.role), Memory(told.bounds)
    )
    model = Slow(told.run_seconds)
    worker = Worker(
        ROLES[told.role],
        WorkerOptions(
            instance=told.instance,
            group_prefix=place.topic,
            fold=FoldOptions(max_batch=told.max_batch, max_batch_behind=told.max_batch),
            limits=RunLimits(max_runs=told.max_runs, max_tenant_runs=told.max_runs),
            membership=Membership(commit_interval=timedelta(milliseconds=200)),
            stop_within=timedelta(seconds=5),
        ),
        place.connection,
        log,
        dead_letters,
        state,
        Interpreter({"observer": model, "reflector": model, "dropper": model}, clock),
        clock,
    )
    running = asyncio.create_task(worker.run(stop))
    while not running.done():
        print(msgspec.json.encode(worker.status()).decode(), flush=True)
        await asyncio.wait([running], timeout=EVERY_SECONDS)
    await running
    state.close()
    log.close()
    dead_letters.close()


async def main(said: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    for number, by in JUMPS.items():
        loop.add_signal_handler(number, CLOCK.jump, by)
    await run(msgspec.json.decode(said, type=Told), stop)


class Child:
    """Such a process, seen from outside."""

    def __init__(self, told: Told, module: str = "tests.kafka.child") -> None:
        self.told = told
        folder = Path(told.place.folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.errors = folder / f"{told.instance}-{time.monotonic_ns()}.log"
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, msgspec.json.encode(told).decode()],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self.errors.open("w"),
            text=True,
        )
        self.status: WorkerStatus | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End it as a crash does, at whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self, within: float = 30) -> int:
        """Ask it to end and return its exit code."""
        self._process.terminate()
        return self.ended(within)

    def ended(self, within: float = 30) -> int:
        """Wait for its end."""
        code = self._process.wait(within)
        self._reader.join()
        return code

    def said(self) -> str:
        """Return the end of what it wrote to its log."""
        return self.errors.read_text("utf-8")[-4_000:]

    def events(self, name: str) -> list[dict[str, object]]:
        """Return the events of one name from its log."""
        lines = self.errors.read_text("utf-8").splitlines()
        events = [msgspec.json.decode(line) for line in lines if line.startswith("{")]
        return [event for event in events if event["event"] == name]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.status = msgspec.json.decode(line, type=WorkerStatus)


def settled(log: KafkaLog, children: Sequence[Child], quiet_seconds: float = 1.5) -> bool:
    """Say whether, for a while, all is folded, nothing runs, and nothing new has come."""
    ends = log.ends()
    deadline = time.monotonic() + quiet_seconds
    while True:
        if not _is_quiet(ends, children):
            return False
        if time.monotonic() > deadline:
            return log.ends() == ends
        time.sleep(0.1)


def _is_quiet(ends: dict[int, int], children: Sequence[Child]) -> bool:
    folded: dict[int, int] = {}
    for child in children:
        assert child.is_running, child.said()
        status = child.status
        if status is None or not status.is_ready or status.n_runs_under_way:
            return False
        folded |= {each.partition: each.next_offset for each in status.partitions}
    return folded == ends


def start(said: str) -> None:
    """Be the process that ``said`` describes."""
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    asyncio.run(main(said))


if __name__ == "__main__":
    start(sys.argv[1])
