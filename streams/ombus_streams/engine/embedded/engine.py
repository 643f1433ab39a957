"""The embedded engine: one folder, one folding process, the same processors as anywhere.

Stepped by hand (``fold``, ``due``, ``perform``, ``settle``) under a manual clock it is the
deterministic test driver; ``run`` is the same steps in a loop. Other processes may append and read.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec
from ombus_schemas.codec import encode, key_of
from ombus_schemas.entries import Entry
from ombus_schemas.headers import headers_of
from ombus_schemas.settings import WorkerLimits
from ombus_schemas.topics import DEAD_LETTERS, ENTRIES

from ombus_streams.engine.embedded.gauges import samples
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.engine.embedded.ownership import Ownership
from ombus_streams.engine.embedded.store import Snapshot, StateFile
from ombus_streams.memory import keys
from ombus_streams.memory.errors import MemoryFault
from ombus_streams.memory.head import FOLD_VERSION
from ombus_streams.memory.rows import Overlay
from ombus_streams.memory.session import Session
from ombus_streams.runtime import emissions
from ombus_streams.runtime.ahead import AheadPolicy
from ombus_streams.runtime.callbacks import CompactionWatch
from ombus_streams.runtime.errors import RuntimeFault
from ombus_streams.runtime.interpreter import Interpreter
from ombus_streams.runtime.metrics import Sample
from ombus_streams.runtime.ports import Clock, Draft, Position
from ombus_streams.runtime.processor import MAX_CACHED_SESSIONS, Processor
from ombus_streams.runtime.records import iso
from ombus_streams.runtime.scheduler import Scheduler, Task
from ombus_streams.runtime.staff import Providers, Staff
from ombus_streams.runtime.telemetry import Folded, Telemetry

PARTITIONS: Final = 8
MAX_BATCH: Final = 1_000
MAX_RUNS: Final = 16
"""Effects under way at once in a process."""
OUTBOX_BATCH: Final = 500
IDLE_WAIT: Final = timedelta(milliseconds=200)


class Reading(msgspec.Struct, frozen=True):
    """A session as of one instant, over a scratch overlay: folding more into it stores nothing."""

    session: Session
    position: Position
    """The first position that is not in it."""


class Engine:
    """What lies in ``folder``. Open it as the owner (``owns``) to fold and to run workers."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        providers: Providers | Staff,
        *,
        owns: bool = True,
        partitions: int | None = None,
        limits: WorkerLimits | None = None,
        secrets: Sequence[str] = (),
        max_sessions: int = MAX_CACHED_SESSIONS,
        max_batch: int = MAX_BATCH,
        ahead: AheadPolicy | None = None,
        watch: CompactionWatch | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.folder, self.clock, self.max_batch = folder, clock, max_batch
        self.telemetry = telemetry or Telemetry()
        self._watch = watch
        self._grown: dict[bytes, None] = {}
        """Sessions about which the host is to be asked whether to compact them."""
        self._ownership = Ownership(folder)
        if owns:
            self._ownership.acquire()
        opened = ExitStack()
        opened.callback(self._ownership.release)
        # What was opened is closed again if the next thing cannot be: a failed owner owns nothing.
        with opened:
            tracer = self.telemetry.tracer
            self.log = SqliteLog(folder, clock, partitions=partitions, topic=ENTRIES, tracer=tracer)
            opened.callback(self.log.close)
            self.dead_letters = SqliteLog(
                folder / "dead-letters", clock, partitions=4, topic=DEAD_LETTERS
            )
            opened.callback(self.dead_letters.close)
            self.state = StateFile(state_folder(folder))
            opened.callback(self.state.close)
            self.interpreter = Interpreter(providers, clock, limits, secrets)
            self.processors: dict[int, Processor] = {}
            self.schedulers: dict[int, Scheduler] = {}
            self._unsent: set[int] = set()
            """Partitions whose outbox an earlier owner may have left."""
            self._live_from: dict[int, int] = {}
            """Where the log ended when it was opened: what lies below is caught up on."""
            if owns:
                for partition in range(self.log.partitions):
                    store = self.state.store(partition)
                    processor = Processor(
                        store, self.log, partition, max_sessions=max_sessions, secrets=secrets
                    )
                    self.processors[partition] = processor
                    self._unsent.add(partition)
                    self._live_from[partition] = self.log.end(partition)
                    self.schedulers[partition] = Scheduler(processor, ahead=ahead)
                stores = {each: known.store for each, known in self.processors.items()}
                self.interpreter.staff.keep_accounts(self.log.partition_of, stores)
            opened.pop_all()

    def append(self, entries: Sequence[Entry]) -> tuple[Position, ...]:
        """Append admitted entries, durably, in order; whoever folds picks them up."""
        return self.log.append(
            [
                Draft(key=key_of(entry), value=encode(entry), headers=headers_of(entry))
                for entry in entries
            ]
        )

    def fold(self) -> int:
        """Fold one batch of every partition; return how many records there were."""
        n_records = 0
        while self._unsent:
            self.emit(self._unsent.pop())
        for partition, processor in self.processors.items():
            began = time.perf_counter()
            records = self.log.read(partition, processor.next_offset, self.max_batch)
            if not records:
                continue
            batch = processor.fold(records)
            n_records += batch.n_records
            self.telemetry.folded(
                Folded(
                    partition=partition,
                    records=records,
                    batch=batch,
                    next_offset=processor.next_offset,
                    began=began,
                    now_ms=self._now_ms(),
                    live_from=self._live_from[partition],
                )
            )
            self.schedulers[partition].touch(batch.sessions)
            if self._watch is not None:
                self._grown.update(dict.fromkeys(batch.sessions))
            self.emit(partition)
        return n_records

    def emit(self, partition: int) -> None:
        """Send what the outbox of a partition holds, and delete what is acknowledged."""
        store = self.processors[partition].store
        while emitted := store.outbox(OUTBOX_BATCH):
            for to, drafts, last in emissions.batches(emitted):
                (self.log if to == "entries" else self.dead_letters).append(drafts)
                store.sent(last)

    def due(self, limit: int = MAX_RUNS) -> list[Task]:
        """Return effects that are due now, holding their slots until they are performed."""
        now_ms = self._now_ms()
        tasks: list[Task] = []
        for scheduler in self.schedulers.values():
            tasks += scheduler.due(now_ms, limit - len(tasks))
        return tasks

    async def perform(self, task: Task) -> bool:
        """Perform an effect and append its result; return whether there was one."""
        partition = self.log.partition_of(task.slot[0])
        scheduler = self.schedulers[partition]
        try:
            session = self.processors[partition].session(task.slot[0])
            with self.telemetry.run(partition, session, task.effect) as report:
                entry = await self.interpreter.perform(session, task.effect)
                report["entry_id"] = entry.id
                (position,) = await asyncio.to_thread(self.append, [entry])
        except (RuntimeFault, MemoryFault) as error:
            scheduler.failed(task.slot, task.effect, error, self._now_ms())
            return False
        except BaseException:
            scheduler.cancelled(task.slot)
            raise
        scheduler.appended(task.slot, position)
        return True

    def settle(self) -> int:
        """Fold and perform until nothing is due now; return how many results were appended."""
        n_results = 0
        while True:
            while self.fold():
                pass
            tasks = self.due()
            if not tasks:
                return n_results
            for task in tasks:
                n_results += asyncio.run(self.perform(task))

    async def run(self, stop: asyncio.Event) -> None:
        """Fold and perform until ``stop`` is set; runs under way are then given up."""
        running: set[asyncio.Task[bool]] = set()
        try:
            while not stop.is_set():
                n_records = self.fold()
                running = {each for each in running if not _is_over(each)}
                for task in self.due(MAX_RUNS - len(running)):
                    running.add(asyncio.create_task(self.perform(task)))
                if self._grown and len(running) < MAX_RUNS:
                    running.add(asyncio.create_task(self.watch()))
                await asyncio.sleep(0)
                if not n_records and not any(each.done() for each in running):
                    await self._wait(stop, running)
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def watch(self) -> bool:
        """Ask the host about sessions that have grown; return whether any is to be compacted."""
        grown, self._grown = self._grown, {}
        is_any = False
        for key in grown if self._watch is not None else ():
            session = self.processors[self.log.partition_of(key)].session(key)
            assert self._watch is not None
            entry = await self._watch.request(session, iso(self.clock.now()))
            if entry is not None:
                await asyncio.to_thread(self.append, [entry])
                is_any = True
        return is_any

    def lag(self) -> int:
        """Return how many records nobody has folded yet, whoever the owner is."""
        total = 0
        for partition in range(self.log.partitions):
            with self.state.snapshot(partition) as rows:
                row = rows.position()
            total += self.log.end(partition) - (row.next_offset if row else 0)
        return total

    def samples(self) -> list[Sample]:
        """Return how far the folder is folded, for ``/metrics``. May be called from any thread."""
        return samples(self)

    @property
    def has_caught_up(self) -> bool:
        """Whether everything that was on the log when it was opened is folded here."""
        return bool(self._live_from) and all(
            self.processors[each].next_offset >= end for each, end in self._live_from.items()
        )

    def folded(self, partition: int) -> int:
        """Return the first offset of a partition that is not folded yet, whoever folds."""
        if self.processors:
            return self.processors[partition].next_offset
        with self.state.snapshot(partition) as rows:
            row = rows.position()
        return row.next_offset if row else 0

    def wait(self, ends: Mapping[int, int], timeout: timedelta) -> bool:
        """Say whether a partition has grown past the end named for it."""
        return self.log.wait(ends, timeout)

    def serves(self, partition: int) -> bool:
        """Say whether reads of a partition are answered here: in a folder all are."""
        return True

    def rows(self, partition: int) -> AbstractContextManager[Snapshot]:
        """Lend the rows of a partition as they stand at one instant."""
        return self.state.snapshot(partition)

    @contextmanager
    def reading(self, key: bytes) -> Iterator[Reading]:
        """Lend a session as it stands at one instant, whoever folds."""
        partition = self.log.partition_of(key)
        with self.state.snapshot(partition) as rows:
            row = rows.position()
            offset = row.next_offset if row else 0
            yield Reading(
                Session(key, Overlay(rows)), Position(self.log.incarnation, partition, offset)
            )

    def sessions(self) -> list[bytes]:
        """Return the keys of all sessions, sorted."""
        prefix = keys.session_mark()
        found: list[bytes] = []
        for partition in range(self.log.partitions):
            with self.state.snapshot(partition) as rows:
                found += [key[len(prefix) :] for key, _ in rows.scan(prefix)]
        return sorted(found)

    def close(self) -> None:
        """Close the files and give the ownership back. Idempotent."""
        self.log.close()
        self.dead_letters.close()
        self.state.close()
        self._ownership.release()

    async def _wait(self, stop: asyncio.Event, running: set[asyncio.Task[bool]]) -> None:
        ends = {partition: each.next_offset for partition, each in self.processors.items()}
        grown = asyncio.create_task(asyncio.to_thread(self.log.wait, ends, IDLE_WAIT))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({grown, stopped, *running}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        await grown

    def _now_ms(self) -> int:
        return int(self.clock.now().timestamp() * 1000)


def state_folder(folder: Path) -> Path:
    """Return where the state of this fold version lies: another version is built beside it."""
    return folder / f"memory-v{FOLD_VERSION}"


def _is_over(task: asyncio.Task[bool]) -> bool:
    if not task.done():
        return False
    task.result()
    return True
