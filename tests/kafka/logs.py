"""Logs on a test's own topics, for the contract suite and whoever needs a topic of its own."""

import asyncio
import fcntl
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from ombus_schemas.topics import ENTRIES, TOPIC_BY_NAME, Topic
from ombus_streams.engine.kafka import topics
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.runtime.ports import Clock, Draft, Position

LOCK: Final = "apply.lock"


class ClockedLog(KafkaLog):
    """A log whose records carry the time of a clock, as replayed ones do.

    The broker's own clock cannot be set, and the suite's rules about time are those of replay.
    """

    def __init__(self, connection: Connection, topic: str, clock: Clock) -> None:
        super().__init__(connection, topic)
        self._clock = clock

    def append(self, drafts: Sequence[Draft]) -> tuple[Position, ...]:
        now_ms = int(self._clock.now().timestamp() * 1_000)
        return super().append(
            [
                msgspec.structs.replace(draft, at_ms=now_ms) if draft.at_ms is None else draft
                for draft in drafts
            ]
        )


def topic_of(folder: Path) -> str:
    """Return the name of the topic that stands for a folder."""
    return f"test.{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"


def declared(name: str, partitions: int, like: str = ENTRIES) -> Topic:
    """Return a topic as ``like`` is declared, with another name and size."""
    return msgspec.structs.replace(
        TOPIC_BY_NAME[like], name=name, partitions=partitions, development_partitions=partitions
    )


def open_log(bootstrap: str, folder: Path, clock: Clock, partitions: int) -> ClockedLog:
    """Open the log of ``folder``, made if there is none."""
    connection = Connection(bootstrap_servers=bootstrap)
    topic = declared(topic_of(folder), partitions)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        # Two that apply at once may both write the first record; the suite counts all of them.
        fcntl.flock(lock, fcntl.LOCK_EX)
        asyncio.run(topics.apply(connection, clock, [topic]))
    return ClockedLog(connection, topic.name, clock)
