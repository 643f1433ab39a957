"""Partitions folded beside their owners, to be read while an owner does not answer.

A replica answers only after it has reached the end of the log that the brokers gave at the start of
the read (design.md section 8), so it needs no lease: what it says was the whole truth then. It
emits nothing and decides nothing, and has rows of its own.
"""

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.snapshot import Snapshot
from ombus_streams.engine.kafka.store import RocksState
from ombus_streams.runtime.errors import NotServed
from ombus_streams.runtime.ports import Position
from ombus_streams.runtime.processor import Processor

REACH_WITHIN: Final = timedelta(seconds=2)
"""How long a read waits for its replica; then it is told how far that is."""
MAX_BATCH: Final = 1_000
MAX_SESSIONS: Final = 100
"""Sessions kept decoded, a partition."""


class Replicas:
    """Every call blocks and may come from any thread. Whoever made log and state closes them."""

    def __init__(self, log: KafkaLog, state: RocksState, secrets: Sequence[str] = ()) -> None:
        self._entries, self._state, self._secrets = log, state, tuple(secrets)
        self._folding = [threading.Lock() for _ in range(log.partitions)]
        self._processors: dict[int, Processor] = {}

    def reach_end(self, partition: int, within: timedelta = REACH_WITHIN) -> int:
        """Fold a partition up to its end as it is now; return that.

        Raises:
            NotServed: not ``within``; with the progress.
            RuntimeFault: see its way out; the next call begins at the position row.
        """
        end = self._entries.end(partition)
        deadline = time.monotonic() + within.total_seconds()
        with self._folding[partition]:
            processor = self._processor(partition)
            while processor.next_offset < end:
                try:
                    n_records = processor.step(MAX_BATCH).n_records
                except BaseException:
                    self._processors.pop(partition, None)
                    raise
                if not n_records:
                    # Markers at the end are no records.
                    break
                if processor.next_offset < end and time.monotonic() > deadline:
                    at = self._entries.incarnation, partition
                    folded, reached = Position(*at, processor.next_offset), Position(*at, end)
                    raise NotServed(partition, folded, reached)
        return end

    def folded(self, partition: int) -> int:
        """Return the first offset that is not folded, once the end was reached.

        Raises: as ``reach_end``.
        """
        self.reach_end(partition)
        return self._processors[partition].next_offset

    @contextmanager
    def rows(self, partition: int) -> Iterator[Snapshot]:
        """Lend the rows of a partition once the end was reached.

        Raises: as ``reach_end``.
        """
        self.reach_end(partition)
        with self._state.snapshot(partition) as rows:
            yield rows

    def keep_up(self, but_for: Collection[int]) -> None:
        """Fold what came to all partitions but these, so that a read has little to wait for.

        Raises: as ``reach_end``, but for ``NotServed``.
        """
        for partition, end in self._entries.ends().items():
            processor = self._processors.get(partition)
            is_behind = processor is None or processor.next_offset < end
            if partition not in but_for and is_behind:
                try:
                    self.reach_end(partition)
                except NotServed:
                    continue

    def _processor(self, partition: int) -> Processor:
        processor = self._processors.get(partition)
        if processor is None:
            processor = self._processors[partition] = Processor(
                self._state.store(partition),
                self._entries,
                partition,
                topic=self._entries.topic,
                max_sessions=MAX_SESSIONS,
                emits=False,
                secrets=self._secrets,
            )
        return processor
