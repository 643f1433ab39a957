"""An archive read again: as the source of a replay, and beside the log that came of it."""

import hashlib
import heapq
from collections.abc import Iterable, Iterator
from typing import Final

from ombus_streams.runtime.ports import EntryLog, LogRecord

from ombus.operator.archives import log_records, opened, records_of
from ombus.operator.depot import Depot
from ombus.operator.progress import Tell
from ombus.operator.replay import REPLAYED_FROM, SYSTEM_KEY

_TOLD_EVERY: Final = 1_000


class ArchiveSource:
    """An archive as the source of a replay."""

    def __init__(self, depot: Depot) -> None:
        self._depot, self._archive = depot, opened(depot)

    @property
    def incarnation(self) -> str:
        return self._archive.incarnation

    def count(self, after: dict[int, int]) -> int:
        return sum(
            each.n_records
            for each in self._archive.segments
            if each.next_offset > after.get(each.partition, 0)
        )

    def records(self, after: dict[int, int]) -> Iterator[LogRecord]:
        """Merge the partitions by time, so that no partition of the target sees time go back."""
        walks = [
            self._walk(partition, after.get(partition, 0))
            for partition in range(self._archive.partitions)
        ]
        return heapq.merge(*walks, key=lambda record: record.at_ms)

    def _walk(self, partition: int, offset: int) -> Iterator[LogRecord]:
        for segment in self._archive.segments:
            if segment.partition == partition and segment.next_offset > offset:
                for record in records_of(self._depot, segment):
                    if record.offset >= offset:
                        yield record


def lacking(depot: Depot, log: EntryLog, tell: Tell = lambda done, total: None) -> list[str]:
    """Return the sessions of which ``log`` does not hold what the archive has, in its order.

    Looked at are the records that a restore has written: whatever else is on the log is not.
    """
    source = ArchiveSource(depot)
    total, done = source.count({}) * 2, 0
    wanted: dict[bytes, str] = {}
    found: dict[bytes, str] = {}

    def counted(records: Iterable[LogRecord]) -> Iterator[LogRecord]:
        nonlocal done
        for record in records:
            done += 1
            if done % _TOLD_EVERY == 0:
                tell(done, total)
            yield record

    for record in counted(source.records({})):
        if record.key is not None and record.value is not None and record.key != SYSTEM_KEY:
            _add(wanted, record.key, record.value)
    prefix = f"{source.incarnation}:".encode()
    for partition in range(log.partitions):
        for record in counted(
            log_records(log, partition, log.start(partition), log.end(partition))
        ):
            if record.key is not None and record.value is not None:
                copied = dict(record.headers).get(REPLAYED_FROM, b"")
                if copied.startswith(prefix):
                    _add(found, record.key, record.value)
    return sorted(
        key.decode("utf-8", "replace") for key, digest in wanted.items() if found.get(key) != digest
    )


def _add(digests: dict[bytes, str], key: bytes, value: bytes) -> None:
    """Let the digest of a session depend on one more value and on its place."""
    before = digests.get(key, "")
    digests[key] = hashlib.sha256(before.encode() + b":" + value).hexdigest()
