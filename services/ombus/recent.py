"""Which ids came to a partition of Kafka lately, for whoever appends to it without folding it."""

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from ombus_streams.runtime.ports import Position

if TYPE_CHECKING:
    from ombus_streams.engine.kafka.log import KafkaLog

MAX_RECENT: Final = 200_000
"""Ids remembered of each partition; the oldest are forgotten first."""
PAGE: Final = 2_000
ENTRY_ID: Final = "ce_id"


class Recent:
    """What came to a partition since a time, as far as it was looked at."""

    def __init__(self, log: "KafkaLog", partition: int) -> None:
        self._log, self._partition = log, partition
        self.looking = asyncio.Lock()
        self._since_ms, self._next = 0, 0
        self._offsets: OrderedDict[tuple[bytes, bytes], int] = OrderedDict()

    def position_of(self, key: bytes, entry_id: str) -> Position | None:
        offset = self._offsets.get((key, entry_id.encode()))
        if offset is None:
            return None
        return Position(self._log.incarnation, self._partition, offset)

    def reaches(self, since_ms: int) -> bool:
        """Say whether what came at ``since_ms`` and later was looked at, the newest aside."""
        return 0 < self._since_ms <= since_ms

    def note(self, key: bytes, entry_id: bytes, offset: int) -> None:
        """Remember where an id is on the log; the first place counts."""
        self._offsets.setdefault((key, entry_id), offset)
        while len(self._offsets) > MAX_RECENT:
            self._offsets.popitem(last=False)

    def catch_up(self, since_ms: int) -> None:
        """Read what came at ``since_ms`` and later and was not read yet. Blocks."""
        if not self.reaches(since_ms):
            self._next = self._log.offset_at(self._partition, since_ms)
            self._since_ms = since_ms
        while page := self._log.read(self._partition, self._next, PAGE):
            for record in page:
                entry_id = dict(record.headers).get(ENTRY_ID)
                if entry_id is not None:
                    self.note(record.key or b"", entry_id, record.offset)
            self._next = page[-1].offset + 1
