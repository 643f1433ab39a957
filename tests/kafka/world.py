"""A topic of a test's own, and what must hold of the workers' rows over it."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from ombus_schemas.codec import decode
from ombus_streams.engine.created import LOG_KEY
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.engine.embedded.store import StateFile
from ombus_streams.engine.kafka import topics
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.snapshot import Snapshot, reading
from ombus_streams.memory import keys
from ombus_streams.memory.head import FOLD_VERSION
from ombus_streams.memory.observer import is_obliged
from ombus_streams.memory.rows import Overlay
from ombus_streams.memory.session import Session
from ombus_streams.runtime.ports import Draft, EntryLog, LogRecord, PositionRow
from ombus_streams.runtime.processor import Processor
from ombus_streams.runtime.verify import Verified, verify

from tests.kafka.logs import declared

PAGE: Final = 2_000


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a test's records and rows are; a child process gets it as JSON."""

    bootstrap: str
    topic: str
    dead_letters: str
    folder: str
    partitions: int

    @property
    def connection(self) -> Connection:
        return Connection(bootstrap_servers=self.bootstrap)

    def rows(self, instance: str, role: str, partition: int) -> Path:
        """Return the database of one partition of one worker."""
        return state_folder(Path(self.folder), instance, role) / f"{partition:05d}"


def state_folder(folder: Path, instance: str, role: str) -> Path:
    return folder / instance / f"{role}-v{FOLD_VERSION}"


def make_place(bootstrap: str, folder: Path, partitions: int = 4) -> Place:
    """Create the topics of a test."""
    name = f"test.{time.time_ns()}"
    place = Place(
        bootstrap=bootstrap,
        topic=name,
        dead_letters=f"{name}.dead",
        folder=str(folder),
        partitions=partitions,
    )
    # Under another name than the real one, a dead-letter topic opens as every log does.
    wanted = [declared(name, partitions), declared(f"{name}.dead", 1)]
    asyncio.run(topics.apply(place.connection, SystemClock(), wanted))
    return place


def records_of(log: EntryLog, partition: int, up_to: int | None = None) -> Iterable[LogRecord]:
    """Yield the records of a partition."""
    offset, end = log.start(partition), log.end(partition) if up_to is None else up_to
    while offset < end:
        page = log.read(partition, offset, min(PAGE, end - offset))
        yield from page
        offset = page[-1].offset + 1


def embedded_rows(log: KafkaLog, folder: Path) -> list[dict[bytes, bytes]]:
    """Return the rows of each partition as the embedded engine folds the same records."""
    copy = SqliteLog(folder, SystemClock(), partitions=log.partitions)
    state = StateFile(folder / "state")
    found = []
    for partition in range(log.partitions):
        drafts = [
            Draft(
                key=record.key,
                value=record.value,
                headers=tuple(record.headers),
                at_ms=record.at_ms,
            )
            for record in records_of(log, partition)
            # The log's own record is never copied; poison without a draft, or of a key whose
            # partition is another one, would come elsewhere. It folds to nothing in any case.
            if record.key
            and record.key != LOG_KEY
            and record.value is not None
            and log.partition_of(record.key) == partition
        ]
        for start in range(0, len(drafts), PAGE):
            copy.append(drafts[start : start + PAGE])
        store = state.store(partition)
        processor = Processor(store, copy, partition, emits=False)
        while processor.step(PAGE).n_records:
            pass
        found.append(dict(store.scan(b"")))
    state.close()
    copy.close()
    return found


def verified(log: KafkaLog, rows: Path, partition: int, scratch: Path) -> Verified:
    """Fold the log afresh to the position of ``rows`` and compare every row."""
    fresh = StateFile(scratch)
    with reading(rows) as live:
        found = verify(live, live.position(), log, partition, fresh.store(partition))
    fresh.close()
    return found


def position_in(rows: Path) -> PositionRow | None:
    with reading(rows) as live:
        return live.position()


def rows_in(live: Snapshot) -> dict[bytes, bytes]:
    return dict(live.scan(b""))


def until(holds: Callable[[], bool], within: float, what: str) -> None:
    """Return once ``holds`` does; a real broker has no clock that a test could set."""
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {within:.0f} s"
        time.sleep(0.1)


def append_all(log: KafkaLog, drafts: Sequence[Draft]) -> None:
    for start in range(0, len(drafts), 500):
        log.append(drafts[start : start + 500])


def ids_on(log: KafkaLog) -> set[str]:
    return {
        decode(record.value).id
        for partition in range(log.partitions)
        for record in records_of(log, partition)
        if record.value is not None
    }


def owed(rows: Path) -> list[str]:
    """Return the leaves of a partition that an observation is owed to."""
    found: list[str] = []
    prefix = keys.session_mark()
    with reading(rows) as live:
        for mark, _ in live.scan(prefix):
            session = Session(mark[len(prefix) :], Overlay(live))
            leaves = (session.leaf(segment) for segment in session.segments())
            found += (
                f"{session.key.decode()}: {leaf.tip_id}"
                for leaf in leaves
                if not leaf.conflict and is_obliged(leaf)
            )
    return found
