"""Grants on Kafka, maps in Redis, granters between them, and sessions that read what is shared."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import msgspec
from ombus_schemas.ids import session_key
from ombus_schemas.topics import GRANTS
from ombus_streams.engine.embedded.access import AccessFile
from ombus_streams.engine.granter import Granter
from ombus_streams.engine.kafka import topics
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.grant_topic import GrantEnds
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.redis.connection import RedisConnection, Reply, Word
from ombus_streams.engine.redis.layout import ADVANCE, FLIP
from ombus_streams.engine.redis.maps import RedisMaps
from ombus_streams.memory.shared_rows import SharedBranch
from ombus_streams.runtime.errors import RuntimeFault
from ombus_streams.runtime.grants import Branches, Decision, GrantSnapshot
from ombus_streams.runtime.row_branches import RowBranches
from ombus_streams.runtime.shared_reads import Asking, SharedReads

from tests.kafka.logs import declared
from tests.scopes.fleet import (
    SCOPE,
    TENANT,
    Owner,
    SystemClock,
    asking,
    make_sessions,
    marker,
    open_engine,
)
from tests.scopes.history import NEVER, Act, Change, History, Read
from tests.scopes.traffic import Reading

MAX_WAIT = timedelta(milliseconds=400)
TICK = timedelta(milliseconds=200)
"""The granter's, shorter than in production: a run has more repairs to survive."""


class Crash(BaseException):
    """The process of a granter ends here."""


class MortalMaps(RedisMaps):
    """Maps whose process may be told to end right before, or right after, it has written."""

    def __init__(self, connection: RedisConnection) -> None:
        super().__init__(connection)
        self.dies: str | None = None

    def _ask(self, *words: Word) -> Reply:
        is_write = ADVANCE in words or FLIP in words
        if is_write and self.dies == "before":
            raise Crash
        found = super()._ask(*words)
        if is_write and self.dies == "after":
            raise Crash
        return found


class GranterProcess:
    """A granter in a thread, started again whenever it has ended."""

    def __init__(self, stand: "Stand", name: str) -> None:
        self._stand, self._name = stand, name
        self._ending = threading.Event()
        self._resume = threading.Event()
        self._resume.set()
        self._stop: Callable[[], None] = lambda: None
        self.maps: MortalMaps | None = None
        self.n_starts = self.n_repaired = 0
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def crash(self, when: str) -> None:
        """Let it end at its next write."""
        if self.maps is not None:
            self.maps.dies = when

    def pause(self) -> None:
        """End it, and do not start it again before ``resume``."""
        self._resume.clear()
        self._stop()

    def resume(self) -> None:
        self._resume.set()

    def close(self) -> None:
        self._ending.set()
        self._resume.set()
        self._stop()
        self._thread.join()

    def _live(self) -> None:
        while not self._ending.is_set():
            self._resume.wait()
            maps = self.maps = MortalMaps(self._stand.redis)
            try:
                asyncio.run(self._run(maps))
            except Crash:
                pass
            except BaseException as error:
                self.failure = error
                raise
            finally:
                maps.close()

    async def _run(self, maps: RedisMaps) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def end() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(stop.set)

        self._stop = end
        if self._ending.is_set() or not self._resume.is_set():
            return
        self.n_starts += 1
        stand = self._stand
        granter = Granter(self._name, stand.kafka, stand.log, maps, TICK)
        try:
            await granter.run(stop)
        finally:
            self.n_repaired += granter.n_repaired


class Decisions:
    """An access log that also tells each thread its own last decision."""

    def __init__(self, file: AccessFile) -> None:
        self._file, self._own = file, threading.local()

    def record(self, decisions: Sequence[Decision]) -> None:
        self._file.record(decisions)
        self._own.last = decisions[-1]

    def last(self) -> Decision:
        found: Decision = self._own.last
        return found


Kept = Mapping[bytes, SharedBranch | None]


class KeptBranches:
    """Branches that were read once: nothing but grants changes here, and many reads are wanted."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    def fetch(self, key: bytes, scope_id: str, memory_id: str | None) -> SharedBranch | None:
        return self._kept[key]


class CachedReads(SharedReads):
    """The mutation that keeps an accepted map for 50 ms."""

    _kept: ClassVar[dict[tuple[bytes, str], tuple[float, GrantSnapshot]]] = {}

    def _accepted(
        self, partition: int, owner: bytes, scope_id: str, end: int, found: GrantSnapshot | None
    ) -> GrantSnapshot:
        at, kept = self._kept.get((owner, scope_id), (0.0, None))
        if kept is None or time.monotonic() - at > 0.05:
            kept = super()._accepted(partition, owner, scope_id, end, found)
            self._kept[owner, scope_id] = (time.monotonic(), kept)
        return kept


class BoundlessReads(SharedReads):
    """The mutation that leaves step 3 out: no end is asked, any watermark will do."""

    def _end(self, partition: int) -> int:
        return 0


class Resolver:
    """The shared read of one process, on connections of its own."""

    def __init__(self, seat: "Seat") -> None:
        kafka = Connection(bootstrap_servers=seat.bootstrap)
        self._seat, self._log = seat, KafkaLog(kafka, seat.topic)
        self.ends = GrantEnds(kafka, self._log)
        self.maps = RedisMaps(RedisConnection(url=seat.redis_url))
        self._access = AccessFile(Path(seat.folder))
        self.decisions = Decisions(self._access)
        self.reads = self.over(KeptBranches(seat.branches))

    def over(self, branches: Branches) -> SharedReads:
        """Return a resolver that reads these branches."""
        clock = SystemClock()
        return self._seat.kind(self.ends, self.maps, branches, self.decisions, clock, MAX_WAIT)

    def read(self, reader: str, owner: str) -> Read:
        """Read once."""
        asked, began = self._seat.askings[reader, owner], time.monotonic_ns()
        shared = self.reads.resolve(asked)
        ended = time.monotonic_ns()
        seen = frozenset(self._seat.names[item.content] for item in shared.observations)
        access = self.decisions.last().access
        return Read(owner, reader, began, ended, seen, access.reason)

    def close(self) -> None:
        self.maps.close()
        self.ends.close()
        self._log.close()
        self._access.close()


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """See ``traffic``."""

    folder: str
    bootstrap: str
    topic: str
    redis_url: str
    kind: type[SharedReads]
    askings: Mapping[tuple[str, str], Asking]
    branches: Kept
    names: Mapping[str, str]
    """The session of each marker."""

    @contextmanager
    def open(self) -> Iterator[Reading]:
        resolver = Resolver(self)
        try:
            yield resolver.read
        finally:
            resolver.close()


class Stand:
    """See the module."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        redis_url: str,
        *,
        n_owners: int = 4,
        n_readers: int = 4,
        n_seats: int = 1,
        n_granters: int = 2,
        kind: type[SharedReads] = SharedReads,
    ) -> None:
        self.history = History()
        self.kafka = Connection(bootstrap_servers=bootstrap)
        self.redis = RedisConnection(url=redis_url)
        topic = declared(f"test.{time.time_ns()}", 4, GRANTS)
        asyncio.run(topics.apply(self.kafka, SystemClock(), [topic]))
        self.log = KafkaLog(self.kafka, topic.name)
        self.engine = open_engine(folder)
        self.owners = [f"o{n}" for n in range(n_owners)]
        self.readers = [f"r{n}" for n in range(n_readers)]
        everybody = [*self.owners, *self.readers]
        make_sessions(self.engine, everybody)
        rows = RowBranches(self.engine.reading)
        branches = {}
        for name in everybody:
            key = session_key(TENANT, name)
            branches[key] = rows.fetch(key, SCOPE, None)
        self.seats = [
            Seat(
                folder=str(folder / f"seat{n}"),
                bootstrap=bootstrap,
                topic=topic.name,
                redis_url=redis_url,
                kind=kind,
                askings={
                    (reader, owner): asking(self.engine, reader, owner)
                    for reader in self.readers
                    for owner in self.owners
                },
                branches=branches,
                names={marker(name): name for name in everybody},
            )
            for n in range(n_seats)
        ]
        self._acting = {name: Owner(self.log, name) for name in self.owners}
        for owner in self._acting.values():
            owner.take()
        self.granters = [GranterProcess(self, f"granter{n}") for n in range(n_granters)]

    def change(self, act: Act, owner: str, *principals: str) -> None:
        """Grant or revoke, and keep what is known of it."""
        acting, began = self._acting[owner], self.history.begin(owner)
        offset, ended = None, NEVER
        try:
            position = (acting.grant if act == "grant" else acting.revoke)(*principals)
            offset, ended = position.offset, time.monotonic_ns()
        except RuntimeFault:
            pass  # It may have happened, and nobody was told.
        finally:
            changes = [Change(act, owner, each, began, ended, offset) for each in principals]
            self.history.end(owner, changes)

    def close(self) -> None:
        for granter in self.granters:
            granter.close()
        self.log.close()
        self.engine.close()
