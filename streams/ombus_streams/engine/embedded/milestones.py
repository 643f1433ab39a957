"""The milestones role of the embedded engine: every partition of a folder's entries, one owner.

Its rows lie beside the delegations'; whoever owns those steps it.
"""

from collections.abc import Sequence
from pathlib import Path

from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.engine.embedded.store import StateFile
from ombus_streams.runtime.deriver import MILESTONES_VERSION, Deriver
from ombus_streams.runtime.ports import Clock


class Milestones:
    """Reads the entries in ``folder`` and appends to ``events``, which stays its owner's to close.

    One process at a time may step it.
    """

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        events: SqliteLog,
        secrets: Sequence[str] = (),
        *,
        partitions: int | None = None,
    ) -> None:
        self._entries = SqliteLog(folder, clock, partitions=partitions)
        state = events.path.parent / f"milestones-v{MILESTONES_VERSION}"
        try:
            self._state = StateFile(state)
        except BaseException:
            self._entries.close()
            raise
        self._derivers = [
            Deriver(self._state.store(each), self._entries, events, each, secrets)
            for each in range(self._entries.partitions)
        ]

    def step(self) -> int:
        """Derive one batch of every partition; return how many records there were."""
        return sum(deriver.step() for deriver in self._derivers)

    def close(self) -> None:
        """Close the files. Idempotent."""
        self._entries.close()
        self._state.close()
