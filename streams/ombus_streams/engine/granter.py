"""The granter: folds the grants log and moves the maps in Redis after it (design.md section 10).

Several may run. Each folds every partition, the maps move forward only, and each step is taken
from the very state it was computed for: so they are spares of each other, and a stale one does no
harm. One that is started folds the topic again from its beginning; it keeps nothing.
"""

import asyncio
import time
from datetime import timedelta
from functools import partial
from typing import Final

import structlog

from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.grant_topic import GrantTail
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.status import PartitionStatus, WorkerStatus
from ombus_streams.engine.redis.maps import Published, RedisMaps
from ombus_streams.runtime.errors import LogContradicts, RetryableError
from ombus_streams.runtime.grant_fold import PartitionGrants, fold_all

NAME: Final = "granter"
TICK: Final = timedelta(seconds=1)
"""How often what Redis holds is compared with the log, and repaired."""
_WAIT: Final = timedelta(milliseconds=200)
_PAUSE_S: Final = 0.2

_log = structlog.get_logger("ombus.granter")


class Granter:
    """See the module. It owns neither the log nor the maps."""

    def __init__(
        self,
        instance: str,
        connection: Connection,
        log: KafkaLog,
        maps: RedisMaps,
        tick: timedelta = TICK,
    ) -> None:
        self._instance, self._maps, self._tick = instance, maps, tick
        self._log, self._incarnation = log, log.incarnation
        self._tail = GrantTail(connection, log.partitions, log.topic)
        self._folds = {each: PartitionGrants() for each in range(log.partitions)}
        self._ends: dict[int, int] = {}
        self._caught_up_to: dict[int, int] = {}
        self._stale: set[int] = set(self._folds)
        """Partitions whose maps may not be what was folded."""
        self.n_records = self.n_published = self.n_repaired = self.n_failures = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Fold and publish until ``stop`` is set. Brokers or a Redis that are away are waited for.

        Raises:
            TerminalError: see its way out.
        """
        ticked = 0.0
        try:
            while not stop.is_set():
                try:
                    if time.monotonic() - ticked >= self._tick.total_seconds():
                        ticked = time.monotonic()
                        await self._compare()
                    for partition, records in (await self._tail.records(_WAIT)).items():
                        fold_all(self._folds[partition], records)
                        self.n_records += len(records)
                        self._stale.add(partition)
                    for partition in await asyncio.to_thread(self._publish):
                        await self._overrule(partition)
                except RetryableError as error:
                    self.n_failures += 1
                    _log.warning("granter.waiting", error=type(error).__name__)
                    await asyncio.sleep(_PAUSE_S)
        finally:
            await self._tail.close()

    def status(self) -> WorkerStatus:
        """Return how far it is; ready once Redis holds what the log held at the start."""
        partitions = tuple(self._status(each) for each in self._folds)
        done = sum(min(each.next_offset, each.catch_up_to or 0) for each in partitions)
        wanted = sum(each.catch_up_to or 0 for each in partitions)
        return WorkerStatus(
            role=NAME,
            instance=self._instance,
            is_ready=all(each.is_ready for each in partitions),
            progress=done / wanted if wanted else 0.0,
            partitions=partitions,
            n_runs_under_way=0,
            n_records=self.n_records,
            n_dead_letters=sum(fold.n_ignored for fold in self._folds.values()),
            n_runs=self.n_published,
            n_runs_failed=self.n_failures,
            n_stale_batches=self.n_repaired,
            lag_ms_median=None,
            lag_ms_max=None,
        )

    async def _compare(self) -> None:
        """Note which partitions are not in Redis as they were folded, whoever changed that."""
        self._ends = await asyncio.to_thread(self._log.ends)
        if not self._caught_up_to:
            self._caught_up_to = dict(self._ends)
        for partition, fold in self._folds.items():
            if fold.next_offset > self._ends[partition]:
                fact = f"the log ends at {self._ends[partition]:,}, {fold.next_offset:,} are folded"
                raise LogContradicts(partition, fact, "start the granter again: it folds it anew")
        moved = await asyncio.to_thread(self._moved)
        self.n_repaired += len(moved - self._stale)
        self._stale |= moved

    def _moved(self) -> set[int]:
        found: set[int] = set()
        for partition, fold in self._folds.items():
            held = self._maps.held(self._incarnation, partition)
            place = (fold.next_offset, fold.digest)
            # Ahead is another granter that was quicker, or a log that was cut: publishing tells.
            if held is None or (held.next_offset, held.digest) != place:
                found.add(partition)
            self._maps.sweep(self._incarnation, partition)
        return found

    def _publish(self) -> list[int]:
        """Bring stale partitions up; return those where Redis is ahead of this granter."""
        ahead: list[int] = []
        for partition in sorted(self._stale):
            fold = self._folds[partition]
            if fold.next_offset:
                done = self._maps.publish(self._incarnation, partition, fold)
                self._settle(partition, done)
                if done == "ahead":
                    ahead.append(partition)
        return ahead

    async def _overrule(self, partition: int) -> None:
        """Write over maps of a log that went on where ours was cut; nobody should wait for them.

        The log is asked after the maps: another granter, who is only quicker, is within its end.
        """
        fold = self._folds[partition]
        held = await asyncio.to_thread(self._maps.held, self._incarnation, partition)
        end = await asyncio.to_thread(self._log.end, partition)
        if held is not None and held.next_offset > end and fold.next_offset == end:
            _log.error("granter.maps_beyond_the_log", partition=partition)
            write = partial(self._maps.publish, overrules=True)
            done = await asyncio.to_thread(write, self._incarnation, partition, fold)
            self._settle(partition, done)

    def _settle(self, partition: int, done: Published) -> None:
        if done in ("advanced", "written"):
            self.n_published += 1
        if done != "contended":
            self._stale.discard(partition)

    def _status(self, partition: int) -> PartitionStatus:
        next_offset, goal = self._folds[partition].next_offset, self._caught_up_to.get(partition)
        return PartitionStatus(
            partition=partition,
            is_ready=goal is not None and next_offset >= goal and partition not in self._stale,
            next_offset=next_offset,
            catch_up_to=goal,
            end=self._ends.get(partition),
        )
