"""Grants on Kafka, maps in Redis, granters between them, and sessions that read what is shared."""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

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
from ombus_streams.runtime.grants import Decision, GrantSnapshot
from ombus_streams.runtime.row_branches import RowBranches
from ombus_streams.runtime.shared_reads import Asking, SharedReads

from tests.kafka.logs import declared
from tests.scopes.fleet import Owner, SystemClock, asking, make_sessions, marker, open_engine
from tests.scopes.history import NEVER, Act, Change, History, Read

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


class KeptBranches:
    """Branches that are read once: nothing but grants changes here, and many reads are wanted."""

    def __init__(self, branches: RowBranches) -> None:
        self._branches = branches
        self._kept: dict[tuple[bytes, str], SharedBranch | None] = {}

    def fetch(self, key: bytes, scope_id: str, memory_id: str | None) -> SharedBranch | None:
        place = (key, scope_id)
        if place not in self._kept:
            self._kept[place] = self._branches.fetch(key, scope_id, memory_id)
        return self._kept[place]


class CachedReads(SharedReads):
    """The mutation that keeps an accepted map for 50 ms."""

    _kept: ClassVar[dict[tuple[bytes, str], tuple[float, GrantSnapshot]]] = {}

    def _accepted(self, partition: int, owner: bytes, scope_id: str, end: int) -> GrantSnapshot:
        at, found = self._kept.get((owner, scope_id), (0.0, None))
        if found is None or time.monotonic() - at > 0.05:
            found = super()._accepted(partition, owner, scope_id, end)
            self._kept[owner, scope_id] = (time.monotonic(), found)
        return found


class BoundlessReads(SharedReads):
    """The mutation that leaves step 3 out: no end is asked, any watermark will do."""

    def _end(self, partition: int) -> int:
        return 0


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
        n_granters: int = 2,
        kind: type[SharedReads] = SharedReads,
        seed: int = 1,
    ) -> None:
        self.random, self.history = random.Random(seed), History()
        self.kafka = Connection(bootstrap_servers=bootstrap)
        self.redis = RedisConnection(url=redis_url)
        topic = declared(f"test.{time.time_ns()}", 4, GRANTS)
        asyncio.run(topics.apply(self.kafka, SystemClock(), [topic]))
        self.log = KafkaLog(self.kafka, topic.name)
        self.ends = GrantEnds(self.kafka, self.log)
        self.engine = open_engine(folder)
        self.owners = [f"o{n}" for n in range(n_owners)]
        self.readers = [f"r{n}" for n in range(n_readers)]
        make_sessions(self.engine, [*self.owners, *self.readers])
        self.access = AccessFile(folder)
        self.decisions = Decisions(self.access)
        self.maps = RedisMaps(self.redis)
        self.reads = kind(
            self.ends,
            self.maps,
            KeptBranches(RowBranches(self.engine.reading)),
            self.decisions,
            SystemClock(),
            MAX_WAIT,
        )
        self.granters = [GranterProcess(self, f"granter{n}") for n in range(n_granters)]
        self.ending = threading.Event()
        self.askings: dict[tuple[str, str], Asking] = {
            (reader, owner): asking(self.engine, reader, owner)
            for reader in self.readers
            for owner in self.owners
        }
        self._names = {marker(name): name for name in (*self.owners, *self.readers)}
        self._acting = {name: Owner(self.log, name) for name in self.owners}
        for owner in self._acting.values():
            owner.take()

    def change(self, act: Act, owner: str, *principals: str) -> None:
        """Grant or revoke, and keep what is known of it."""
        acting, began = self._acting[owner], time.monotonic_ns()
        offset, ended = None, NEVER
        try:
            position = (acting.grant if act == "grant" else acting.revoke)(*principals)
            offset, ended = position.offset, time.monotonic_ns()
        except RuntimeFault:
            pass  # It may have happened, and nobody was told.
        for principal in principals:
            self.history.changed(Change(act, owner, principal, began, ended, offset))

    def read(self, reader: str, owner: str) -> Read:
        """Read once, and keep it."""
        asked, began = self.askings[reader, owner], time.monotonic_ns()
        shared = self.reads.resolve(asked)
        ended = time.monotonic_ns()
        seen = frozenset(self._names[item.content] for item in shared.observations)
        access = self.decisions.last().access
        found = Read(owner, reader, began, ended, seen, access.reason)
        self.history.read(found)
        return found

    def close(self) -> None:
        self.ending.set()
        for granter in self.granters:
            granter.close()
        self.maps.close()
        self.ends.close()
        self.log.close()
        self.access.close()
        self.engine.close()
