"""How delegations are put together over a data folder: the log, the host's words, its hooks."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from typing import Protocol

from ombus_schemas.concealment import conceal_text
from ombus_schemas.entries import Entry
from ombus_schemas.redaction import redact_text
from ombus_streams.engine.embedded.supervision import Supervision, is_there, run_when_there
from ombus_streams.runtime.hooks import HostHooks
from ombus_streams.runtime.ports import Clock, EntryLog, Position, PositionRow

from ombus.settings import ProcessSettings
from ombus.wiring import SystemClock

__all__ = [
    "Delegated",
    "Supervision",
    "concealed",
    "has_delegations",
    "open_supervision",
    "supervise",
]


class View(Protocol):
    """Rows of a partition at one instant."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(
        self, prefix: bytes, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]: ...

    def position(self) -> PositionRow | None: ...


class Views(Protocol):
    """The rows of every partition."""

    def snapshot(self, partition: int) -> AbstractContextManager[View]: ...


class Delegated(Protocol):
    """The log of delegations and the rows folded from it, on either engine."""

    @property
    def log(self) -> EntryLog: ...

    @property
    def state(self) -> Views: ...

    def append(self, entries: Sequence[Entry]) -> tuple[Position, ...]:
        """Append events, durably, in order."""
        ...

    def rows(self, key: bytes) -> AbstractContextManager[View]:
        """Lend the rows of a parent's partition as they stand at one instant."""
        ...

    def folded(self, partition: int) -> int:
        """Return the first offset of a partition that is not folded yet."""
        ...

    def wait(self, ends: Mapping[int, int], timeout: timedelta) -> bool:
        """Say whether a partition of the log has grown past the end named for it."""
        ...

    async def run(self, stop: asyncio.Event) -> None:
        """Fold, and decide where this process may, until ``stop`` is set."""
        ...

    def close(self) -> None: ...


def open_supervision(settings: ProcessSettings, clock: Clock | None = None) -> Supervision:
    """Return the delegations of the data folder, which are made if there are none.

    Raises:
        NoSuchCallback: a hook's name leads to no function.
        StorageError, TerminalError: see their way out.
    """
    said = settings.supervision
    return Supervision(
        settings.folder,
        clock or SystemClock(),
        said.policy(),
        HostHooks(said.before, said.after, said.hook_seconds),
        partial(concealed, settings),
        secrets=settings.secrets,
        partitions=settings.partitions,
    )


def concealed(settings: ProcessSettings, text: str) -> str:
    """Return ``text`` as it may stand on the log: without known secrets and what looks like one."""
    if settings.redact_patterns:
        return conceal_text(text, settings.secrets)
    return redact_text(text, settings.secrets)


def has_delegations(settings: ProcessSettings) -> bool:
    """Say whether anything was ever delegated in the data folder."""
    return is_there(settings.folder)


async def supervise(settings: ProcessSettings, stop: asyncio.Event) -> None:
    """Answer, expire and end delegations of the folder until ``stop`` is set."""
    await run_when_there(settings.folder, stop, partial(open_supervision, settings))
