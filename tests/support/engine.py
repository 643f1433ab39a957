"""An engine in memory: one partition, ports over dictionaries, stepped by hand.

It is the embedded engine without files, so that thousands of histories fold in a test: the same
``Processor``, ``Scheduler`` and ``Interpreter``, and a store that keeps the one-transaction rule.
"""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from ombus_schemas.codec import encode, key_of
from ombus_schemas.entries import Entry
from ombus_streams.memory.rows import MemoryRows, Overlay
from ombus_streams.memory.session import Session
from ombus_streams.providers.scripted import Scripted, call
from ombus_streams.runtime.errors import RuntimeFault, StalePosition
from ombus_streams.runtime.interpreter import Interpreter
from ombus_streams.runtime.ports import Draft, LogRecord, Position, PositionRow
from ombus_streams.runtime.processor import MAX_CACHED_SESSIONS, Processor
from ombus_streams.runtime.provider import ModelProvider, ModelRequest
from ombus_streams.runtime.scheduler import Scheduler, Task

INCARNATION = "log-1"
KEY = b"t/s"
MAX_STEPS = 400
"""Effects one settling may take before it counts as a runaway loop."""


class RunsForEver(AssertionError):
    """A session that asks for run after run without an end."""


class ManualClock:
    """Stands still until it is set."""

    def __init__(self, at_ms: int = 1_000_000) -> None:
        self.at_ms = at_ms

    def now(self) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self.at_ms)


class MemoryLog:
    """An ``EntryLog`` of one partition in a list."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.records: list[LogRecord] = []

    @property
    def incarnation(self) -> str:
        return INCARNATION

    @property
    def partitions(self) -> int:
        return 1

    def partition_of(self, key: bytes) -> int:
        return 0

    def append(self, drafts: Sequence[Draft]) -> tuple[Position, ...]:
        found: list[Position] = []
        for draft in drafts:
            found.append(self.put(draft.key, draft.value, draft.at_ms))
        return tuple(found)

    def put(self, key: bytes | None, value: bytes | None, at_ms: int | None = None) -> Position:
        """Append anything at all, as a broker would take it."""
        offset = len(self.records)
        now = self.clock.at_ms if at_ms is None else at_ms
        self.records.append(LogRecord(partition=0, offset=offset, key=key, value=value, at_ms=now))
        return Position(INCARNATION, 0, offset)

    def read(self, partition: int, offset: int, max_records: int) -> list[LogRecord]:
        return self.records[offset : offset + max_records]

    def start(self, partition: int) -> int:
        return 0

    def end(self, partition: int) -> int:
        return len(self.records)

    def of_key(self, key: bytes, before: int | None = None) -> Iterator[LogRecord]:
        return (record for record in self.records[:before] if record.key == key)


class MemoryStore:
    """A ``StateStore`` in dictionaries; ``fail_next`` makes the next commit die before it."""

    def __init__(self) -> None:
        self.rows = MemoryRows()
        self.operational: dict[bytes, bytes] = {}
        self.emitted: list[tuple[int, bytes]] = []
        self.fail_next = False
        self._position: PositionRow | None = None
        self._n_emitted = 0

    def get(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return {key: value for key in keys if (value := self.rows.get(key)) is not None}

    def scan(
        self, prefix: bytes, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return self.rows.scan(prefix, start, reverse)

    def position(self) -> PositionRow | None:
        return self._position

    def commit(
        self,
        rows: Mapping[bytes, bytes | None],
        expected: PositionRow | None,
        position: PositionRow,
        outbox: Sequence[bytes] = (),
    ) -> None:
        if self.fail_next:
            self.fail_next = False
            raise OSError("no space left on device")
        if self._position != expected:
            raise StalePosition(0, expected, self._position)
        self.rows.apply(rows)
        for value in outbox:
            self._n_emitted += 1
            self.emitted.append((self._n_emitted, value))
        self._position = position

    def get_operational(self, key: bytes) -> bytes | None:
        return self.operational.get(key)

    def put_operational(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.operational.pop(key, None)
        else:
            self.operational[key] = value

    def outbox(self, limit: int) -> list[tuple[int, bytes]]:
        return self.emitted[:limit]

    def sent(self, up_to: int) -> None:
        self.emitted = [item for item in self.emitted if item[0] > up_to]

    def wipe(self) -> None:
        self.rows, self._position = MemoryRows(), None
        self.operational.clear()
        self.emitted.clear()

    def close(self) -> None:
        pass


def diligent(request: ModelRequest) -> list[object]:
    """Return the calls of a worker that plants the id of each source as a marker word.

    Observations repeat the word ``mark-<id>`` of each source, reflections those of their supports,
    drops take all that is offered.
    """
    if request.n_calls:
        return []
    material = request.material
    match request.worker:
        case "observer":
            return [
                call(
                    "record_observation",
                    f"c{n}",
                    content=f"mark-{source.id}. said",
                    sourceEntryIds=[source.id],
                    relevance=("low", "medium", "high", "critical")[n % 4],
                )
                for n, source in enumerate(material.sources[: request.max_calls])
            ]
        case "reflector":
            items = material.observations
            words = " ".join(item.content.split()[0] for item in items)
            return [
                call(
                    "record_reflection",
                    content=f"gist {words}",
                    supportingObservationIds=[item.id for item in items],
                )
            ]
        case "dropper":
            return [
                call(
                    "drop_observations",
                    observationIds=[item.id for item in material.observations],
                )
            ]


def worker(answer: object = diligent) -> Scripted:
    """Return a provider over a function of the request."""
    return Scripted(answer)  # type: ignore[arg-type]  # events of a turn, typed loosely on purpose


class Driver:
    """A log, a store over it, and the workers of its sessions; each step is one call."""

    def __init__(
        self,
        provider: ModelProvider | None = None,
        *,
        max_sessions: int = MAX_CACHED_SESSIONS,
        always_replay: bool = False,
        secrets: Sequence[str] = (),
    ) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog(self.clock)
        self.store = MemoryStore()
        self.provider = provider or worker()
        self.interpreter = Interpreter(
            {name: self.provider for name in ("observer", "reflector", "dropper")},
            self.clock,
            secrets=secrets,
        )
        self.max_sessions, self.always_replay = max_sessions, always_replay
        self.effects: list[object] = []
        """Every effect that was performed, in order."""
        self.reopen()

    def reopen(self) -> None:
        """Start again from what is stored, as a new process does."""
        self.processor = Processor(self.store, self.log, 0, max_sessions=self.max_sessions)
        self.scheduler = Scheduler(self.processor)

    def append(self, *entries: Entry) -> None:
        """Append entries, each one millisecond after the other."""
        for entry in entries:
            self.clock.at_ms += 1
            self.log.put(key_of(entry), encode(entry))

    def fold(self, max_records: int = 1_000) -> int:
        """Fold up to ``max_records``; return how many there were."""
        if self.always_replay:
            self.reopen()
        batch = self.processor.step(max_records)
        self.scheduler.touch(batch.sessions)
        return batch.n_records

    def catch_up(self) -> None:
        while self.fold():
            pass

    def due(self, limit: int = 16) -> list[Task]:
        return self.scheduler.due(self.clock.at_ms, limit)

    def result_of(self, task: Task) -> Entry | None:
        """Return the entry that records the effect, appended nowhere; nothing if it failed."""
        session = self.processor.session(task.slot[0])
        self.effects.append(task.effect)
        try:
            return asyncio.run(self.interpreter.perform(session, task.effect))
        except RuntimeFault as error:
            self.scheduler.failed(task.slot, task.effect, error, self.clock.at_ms)
            return None

    def deliver(self, task: Task, result: Entry) -> None:
        """Append a result and free its slot once that is folded."""
        self.clock.at_ms += 1
        position = self.log.put(task.slot[0], encode(result))
        self.scheduler.appended(task.slot, position)

    def settle(self, max_steps: int = MAX_STEPS) -> int:
        """Fold and perform until nothing is due; return how many effects that took.

        Raises ``RunsForEver`` beyond ``max_steps``.
        """
        n_effects = 0
        while True:
            self.catch_up()
            tasks = self.due()
            if not tasks:
                return n_effects
            for task in tasks:
                n_effects += 1
                if n_effects > max_steps:
                    raise RunsForEver(f"{n_effects} effects, the last one {task.effect}")
                result = self.result_of(task)
                if result is not None:
                    self.deliver(task, result)

    def tell(self, *entries: Entry) -> None:
        """Append entries and let everything come to rest."""
        self.append(*entries)
        self.settle()

    def session(self, key: bytes = KEY) -> Session:
        """Return the folded session over a scratch overlay: folding into it stores nothing."""
        return Session(key, Overlay(self.store))

    def digest(self) -> str:
        """Return a hash over every row."""
        return digest(self.store.rows)


def digest(rows: MemoryRows) -> str:
    """Return a hash over every row, keys and values."""
    found = hashlib.sha256()
    for key, value in rows.scan(b""):
        found.update(b"%d:%b%d:%b" % (len(key), key, len(value), value))
    return found.hexdigest()


def refolded(log: MemoryLog, max_records: int = 1_000_000, max_sessions: int = 1_000) -> MemoryRows:
    """Return the rows of the whole log, folded from zero in batches of ``max_records``."""
    store = MemoryStore()
    processor = Processor(store, log, 0, max_sessions=max_sessions, emits=False)
    while processor.step(max_records).n_records:
        pass
    return store.rows
