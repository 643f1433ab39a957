"""Data folders whose clocks stand still, so that append times are equal and rows comparable."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from ombus.operator import requests
from ombus.operator.desk import Desk
from ombus.operator.intake import Intake, import_file
from ombus.settings import ProcessSettings
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.resolution import resolve_settings
from ombus_streams.memory import keys, reading
from ombus_streams.memory.head import LeafHead, SessionHead
from ombus_streams.memory.items import ACTIVE, observations, reflections
from ombus_streams.memory.session import Session

LOW: JsonObject = {
    "observation": {"messageTokens": 1_000},
    "reflection": {"observationTokens": 500},
    "dropper": {"targetTokens": 1_000},
    "context": {"recentMessages": 6},
}
COUNTERS = ("n_duplicates", "n_repeated_runs", "n_refused")
"""What an export says once, however often the log has it."""


class StoppedClock:
    def now(self) -> datetime:
        return datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


class Folder:
    """A data folder; ``low`` lets short sessions reach thresholds."""

    def __init__(self, data: Path, *, low: bool = False) -> None:
        settings = ProcessSettings(data=str(data), tenant="acme", partitions=2)
        if low:
            memory = resolve_settings(LOW, None)
            settings = msgspec.structs.replace(settings, memory=memory, memory_said=LOW)
        self.desk = Desk(settings, needs_log=False, clock=StoppedClock())

    def imports(self, *paths: Path) -> list[Intake]:
        found = [intake for path in paths for intake in import_file(self.desk, path)]
        self.desk.catch_up()
        return found

    def remembers(self, key: bytes, *, compacts: bool = True) -> None:
        """Run every worker, then flush and compact."""
        self.desk.settle()
        requests.flush(self.desk, key, None)
        if compacts:
            requests.compact(self.desk, key, None)
        self.desk.catch_up()

    def rows(self, key: bytes) -> dict[bytes, bytes]:
        """Return the rows of a session, its head without the counters of repetition."""
        self.desk.catch_up()
        prefix = keys.session_prefix(key)
        with self.desk.engine.reading(key) as live:
            found = dict(live.session.rows.scan(prefix))
            head = live.session.head
            for name in COUNTERS:
                setattr(head, name, 0)
            live.session.write(keys.head(prefix), head)
            found[keys.head(prefix)] = live.session.rows.get(keys.head(prefix)) or b""
            assert live.session.read(keys.head(prefix), SessionHead) is not None
        return found

    @contextmanager
    def session(self, key: bytes) -> Iterator[Session]:
        self.desk.catch_up()
        with self.desk.engine.reading(key) as live:
            yield live.session

    def close(self) -> None:
        self.desk.engine.close()


def leaf_of(session: Session) -> LeafHead:
    return session.leaf(session.head.default_segment)


def memory_of(session: Session, leaf: LeafHead) -> dict[str, list[str]]:
    """Return the ids of what a leaf remembers, by state."""
    return {
        "active": [row.item.id for row in observations(session, leaf, *ACTIVE)],
        "dropped": [row.item.id for row in observations(session, leaf, "dropped")],
        "reflections": [row.item.id for row in reflections(session, leaf, "visible", "hidden")],
        "shown": [item.id for item in reading.visible(session, leaf).observations],
    }
