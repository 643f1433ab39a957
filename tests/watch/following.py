"""A watcher over a folder of transcripts, stepped by hand, and what it put on the log."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from ombus.operator.desk import Desk
from ombus.operator.intake import import_file
from ombus.settings import ProcessSettings
from ombus.watch.watcher import Watcher
from ombus_schemas.codec import decode
from ombus_schemas.entries import Entry

SETTLE_S = 1_000.0


class Watch:
    """Rounds under a clock of the test's own; ``restart`` begins with a new process's memory."""

    def __init__(self, folder: Path, data: Path, *, backfill: bool = True) -> None:
        self.folder, self.data = folder, data
        folder.mkdir(parents=True, exist_ok=True)
        self.settings = ProcessSettings(data=str(data), tenant="acme", partitions=2)
        self.desk = Desk(self.settings, needs_log=False)
        self._now = 0.0
        self._watcher = self._opened(backfill)

    def round(self, *, is_quiet: bool = False) -> int:
        """Look once; with ``is_quiet`` as if nobody had written for long."""
        if is_quiet:
            self._now += 2 * SETTLE_S
            entries = self._watcher.round().entries
            self._now += 2 * SETTLE_S
            return entries + self._watcher.round().entries
        self._now += 1.5
        return self._watcher.round().entries

    def restart(self, *, backfill: bool = False) -> None:
        self._watcher.close()
        self._watcher = self._opened(backfill)

    def sessions(self) -> list[str]:
        self.desk.catch_up()
        return [key.decode().partition("/")[2] for key in self.desk.engine.sessions()]

    def entries(self, session: str) -> list[Entry]:
        """Return what is on the log of a session, in order."""
        found = self.desk.engine.log.of_key(f"acme/{session}".encode())
        return [decode(record.value or b"") for record in found]

    def parents(self, session: str) -> dict[str, str | None]:
        return {entry.id: entry.parent for entry in self.entries(session)}

    def imports(self, path: Path) -> Counter[str]:
        """Import a file beside what was followed, and count."""
        counts: Counter[str] = Counter()
        for intake in import_file(self.desk, path):
            counts["new"] += intake.entries
            counts["same"] += intake.duplicates
            counts["other"] += intake.n_conflicts
        return counts

    def close(self) -> None:
        self._watcher.close()
        self.desk.engine.close()

    def _opened(self, backfill: bool) -> Watcher:
        return Watcher(
            self.desk,
            [self.folder],
            settle_seconds=SETTLE_S,
            backfill=backfill,
            now=lambda: self._now,
        )


@contextmanager
def watching(base: Path, *, backfill: bool = True) -> Iterator[Watch]:
    """Lend a watch over ``base/files`` for ``base/data``."""
    watch = Watch(base / "files", base / "data", backfill=backfill)
    try:
        yield watch
    finally:
        watch.close()


def line(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def append(path: Path, *values: object) -> None:
    """Append rows as lines; bytes as they are."""
    with path.open("ab") as file:
        for value in values:
            file.write(value if isinstance(value, bytes) else line(value))
