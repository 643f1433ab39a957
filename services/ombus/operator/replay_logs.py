"""Logs as the source and the target of a replay, embedded ones and Kafka alike."""

import heapq
from collections.abc import Iterator, Sequence
from typing import Final

from ombus_streams.runtime.pages import pages
from ombus_streams.runtime.ports import Draft, EntryLog, LogRecord

from ombus.operator.replay import REPLAYED_FROM, Marks, OffsetRange

_PAGE: Final = 500
_HEADER: Final = REPLAYED_FROM


class LogSource:
    """A log up to its end at the moment this was made; ``ranges`` spares reading the rest."""

    def __init__(self, log: EntryLog, ranges: Sequence[OffsetRange] = ()) -> None:
        self._log = log
        partitions = {each.partition for each in ranges} or set(range(log.partitions))
        self._bounds = {
            partition: (log.start(partition), log.end(partition))
            for partition in sorted(partitions)
            if partition < log.partitions
        }

    @property
    def incarnation(self) -> str:
        return self._log.incarnation

    def count(self, after: dict[int, int]) -> int:
        return sum(
            max(0, end - max(start, after.get(partition, 0)))
            for partition, (start, end) in self._bounds.items()
        )

    def records(self, after: dict[int, int]) -> Iterator[LogRecord]:
        """Merge the partitions by time, so that no partition of the target sees time go back."""
        walks = [
            self._walk(partition, max(start, after.get(partition, 0)), end)
            for partition, (start, end) in self._bounds.items()
        ]
        return heapq.merge(*walks, key=lambda record: record.at_ms)

    def _walk(self, partition: int, offset: int, end: int) -> Iterator[LogRecord]:
        for page in pages(self._log, partition, offset, end, _PAGE):
            yield from page


class LogTarget:
    """A log that copies are appended to."""

    def __init__(self, log: EntryLog) -> None:
        self._log = log

    @property
    def incarnation(self) -> str:
        return self._log.incarnation

    def reaches(self, seen: dict[int, int]) -> bool:
        return all(self._log.end(partition) >= offset for partition, offset in seen.items())

    def copied(self, source: str, seen: dict[int, int]) -> Marks:
        marks = Marks()
        prefix = f"{source}:".encode()
        for partition in range(self._log.partitions):
            offset = max(seen.get(partition, 0), self._log.start(partition))
            while page := self._log.read(partition, offset, _PAGE):
                for record in page:
                    for name, value in record.headers:
                        if name == _HEADER and value.startswith(prefix):
                            _, original, at = value.decode("ascii").split(":")
                            marks.add(int(original), int(at))
                offset = page[-1].offset + 1
            seen[partition] = offset
        return marks

    def append(self, originals: Sequence[LogRecord], drafts: Sequence[Draft]) -> None:
        self._log.append(drafts)
