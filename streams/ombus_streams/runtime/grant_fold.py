"""One partition of ``ombus.scope.grants``, folded: the maps and how far they reach.

The topic is small, so whoever needs it folds it from the start and keeps it in memory. ``digest``
chains the hashes of all records: two folds with one digest have seen the same records.
"""

import hashlib
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from ombus_schemas.codec import decode_record
from ombus_schemas.errors import BadRecord
from ombus_schemas.scopes import ScopeGranted

from ombus_streams.memory.owner_grants import OwnerGrants, ScopeGrants, evolve
from ombus_streams.runtime.grants import GrantSnapshot, Watermark
from ombus_streams.runtime.ports import EntryLog, LogRecord

PAGE: Final = 500
MAX_STEPS: Final = 4_096
"""Records that a cache which fell behind is brought up by; a larger gap is written whole."""
_GRANTED: Final = ScopeGranted.__struct_config__.tag


class PartitionGrants:
    """See the module. Not for several threads."""

    def __init__(self) -> None:
        self.next_offset, self.digest = 0, ""
        self.by_owner: dict[bytes, OwnerGrants] = {}
        self.n_ignored = 0
        """Records that are no entries, and repeated grants."""
        self._grant_ids: set[tuple[bytes, str]] = set()
        self._steps: deque[tuple[int, str, bytes | None]] = deque(maxlen=MAX_STEPS)
        """Where the fold stood before each of the last records, and whose map that one changed."""

    def fold(self, record: LogRecord) -> None:
        """Take in the next record; what counts for nothing still moves the position.

        A grant under an id that was granted before is a late retry: after a revocation it would
        bring back what was taken. A repeated revocation takes nothing back and is folded again.
        """
        start, owner = (self.next_offset, self.digest), self._changed_by(record)
        self._steps.append((*start, owner))
        self.next_offset, self.digest = record.offset + 1, _chained(self.digest, record)

    def changed_since(self, next_offset: int, digest: str) -> frozenset[bytes] | None:
        """Return whose maps changed since the fold stood there; ``None``: not known any more."""
        if (next_offset, digest) == (self.next_offset, self.digest):
            return frozenset()
        steps = [each for each in self._steps if each[0] >= next_offset]
        if not steps or steps[0][:2] != (next_offset, digest):
            return None
        return frozenset(owner for _, _, owner in steps if owner is not None)

    def _changed_by(self, record: LogRecord) -> bytes | None:
        try:
            entry = decode_record(record.key, record.value)
        except BadRecord:
            self.n_ignored += 1
            return None
        assert record.key is not None
        name = (record.key, entry.id)
        if entry.data_type == _GRANTED:
            if name in self._grant_ids:
                self.n_ignored += 1
                return None
            self._grant_ids.add(name)
        held = self.by_owner.get(record.key)
        after = evolve(held, entry)
        if after is None or after is held:
            return None
        self.by_owner[record.key] = after
        return record.key


class GrantFolds:
    """The partitions of a grants log, each folded as far as the log reaches when it is asked about.

    Nothing stands between the log and the answer, so this is the grant store of an engine that has
    its log at hand. For several threads.
    """

    def __init__(self, log: EntryLog) -> None:
        self.log = log
        self._folds = {partition: PartitionGrants() for partition in range(log.partitions)}
        self._locks = {partition: threading.Lock() for partition in range(log.partitions)}

    def snapshot(
        self, incarnation: str, partition: int, owner: bytes, scope_id: str
    ) -> GrantSnapshot | None:
        """Return the scope as the log has it now; what the log raises is raised."""
        if incarnation != self.log.incarnation:
            return None
        with self._caught_up(partition) as fold:
            held = fold.by_owner.get(owner)
            scope = held.by_scope_id.get(scope_id) if held is not None else None
            watermark = Watermark(incarnation, fold.next_offset)
            return GrantSnapshot(watermark, scope or ScopeGrants())

    def of_owner(self, owner: bytes) -> OwnerGrants | None:
        """Return what the owner has granted up to now; what the log raises is raised."""
        with self._caught_up(self.log.partition_of(owner)) as fold:
            return fold.by_owner.get(owner)

    @contextmanager
    def _caught_up(self, partition: int) -> Iterator[PartitionGrants]:
        end = self.log.end(partition)
        with self._locks[partition]:
            fold = self._folds[partition]
            while fold.next_offset < end:
                page = self.log.read(partition, fold.next_offset, PAGE)
                if not page:
                    break
                fold_all(fold, page)
            yield fold


def fold_all(fold: PartitionGrants, records: Iterable[LogRecord]) -> None:
    """Take in ``records``, in order; those that are in already are passed over."""
    for record in records:
        if record.offset >= fold.next_offset:
            fold.fold(record)


def _chained(digest: str, record: LogRecord) -> str:
    parts = (digest.encode(), str(record.offset).encode(), record.key or b"", record.value or b"")
    chain = hashlib.sha256()
    for part in parts:
        chain.update(b"%d:" % len(part))
        chain.update(part)
    return chain.hexdigest()[:32]
