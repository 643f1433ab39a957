"""Who owns a session, by its key of the grants topic: the first ``om.session.owner`` (section 10).

The topic is small; each partition is read once, and what was added since whenever it is asked.
"""

import threading
from collections.abc import Callable
from typing import Final, Protocol

from ombus_schemas.codec import decode_record
from ombus_schemas.control import SessionOwner
from ombus_schemas.errors import BadRecord
from ombus_schemas.facts import fact_of

from ombus_streams.runtime.errors import RetryableError
from ombus_streams.runtime.ports import EntryLog

PAGE: Final = 1_000


class Owners(Protocol):
    """Says whose sessions are."""

    def owner_of(self, key: bytes) -> str | None:
        """Return the owner of the session with this record key; ``None``: nobody said."""
        ...


class OwnedLog(EntryLog, Protocol):
    """A log that whoever has opened it closes."""

    def close(self) -> None: ...


class GrantsOwners:
    """Owners by a log of grants, opened when it is first asked. For several threads."""

    def __init__(self, open_log: Callable[[], OwnedLog]) -> None:
        self._open = open_log
        self._log: OwnedLog | None = None
        self._next_by_partition: dict[int, int] = {}
        self._owner_by_key: dict[bytes, str] = {}
        self._lock = threading.Lock()

    def owner_of(self, key: bytes) -> str | None:
        """As ``Owners``.

        Raises:
            RetryableError: the log does not give what it has; whose it is is not known.
        """
        with self._lock:
            log = self._log = self._log or self._open()
            self._catch_up(log, log.partition_of(key))
            return self._owner_by_key.get(key)

    def close(self) -> None:
        """Close the log. Idempotent."""
        with self._lock:
            if self._log is not None:
                self._log.close()
                self._log = None

    def _catch_up(self, log: EntryLog, partition: int) -> None:
        end = log.end(partition)
        at = self._next_by_partition.get(partition, log.start(partition))
        while at < end:
            page = log.read(partition, at, PAGE)
            if not page:
                raise RetryableError(f"the grants end at {end:,} and give nothing from {at:,} on")
            for record in page:
                at = record.offset + 1
                try:
                    fact = fact_of(decode_record(record.key, record.value))
                except BadRecord:
                    continue
                if isinstance(fact, SessionOwner) and record.key is not None:
                    self._owner_by_key.setdefault(record.key, fact.owner_id)
            self._next_by_partition[partition] = at
