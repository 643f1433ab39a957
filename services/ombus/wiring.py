"""The only composition root: which engine, which clock, which model stand behind a process."""

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ombus_streams.engine.embedded.engine import Engine, Reading, state_folder
from ombus_streams.engine.embedded.errors import AlreadyOwned
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.engine.embedded.ownership import Ownership
from ombus_streams.engine.embedded.store import StateFile
from ombus_streams.providers.extractive import Extractive
from ombus_streams.runtime.ports import Clock
from ombus_streams.runtime.provider import ModelProvider, WorkerName

from ombus.settings import ProcessSettings

__all__ = [
    "AlreadyOwned",
    "Engine",
    "Ownership",
    "Providers",
    "Reading",
    "StateFile",
    "SystemClock",
    "extractive_providers",
    "has_log",
    "is_owned",
    "open_engine",
    "open_log",
    "state_folder",
    "switch_state",
]

READY: Final = ".ready"
OLD: Final = ".old"

Providers = Mapping[WorkerName, ModelProvider]


class SystemClock:
    """Wall time."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def extractive_providers() -> Providers:
    """Return the default: no key, no network, no model."""
    provider = Extractive()
    return {"observer": provider, "reflector": provider, "dropper": provider}


def open_engine(
    settings: ProcessSettings,
    *,
    owns: bool,
    clock: Clock | None = None,
    providers: Providers | None = None,
) -> Engine:
    """Return the engine over the data folder, which is created if there is none.

    Raises:
        AlreadyOwned: with ``owns``, if another process folds this folder.
        StorageError, TerminalError: see their way out.
    """
    if owns:
        with Ownership(settings.folder):
            finish_switch(settings.folder)
    return Engine(
        settings.folder,
        clock or SystemClock(),
        providers or extractive_providers(),
        owns=owns,
        partitions=settings.partitions,
        secrets=settings.secrets,
    )


def open_log(folder: Path, partitions: int | None = None) -> SqliteLog:
    """Return the log of a data folder, made if there is none, without anything that folds it.

    Raises:
        StorageError: see its way out.
    """
    return SqliteLog(folder, SystemClock(), partitions=partitions)


def has_log(folder: Path) -> bool:
    """Say whether anything was ever appended under ``folder``."""
    return (folder / "log.db").is_file()


def is_owned(folder: Path) -> bool:
    """Say whether some process folds ``folder`` right now."""
    try:
        with Ownership(folder):
            return False
    except AlreadyOwned:
        return True


def switch_state(folder: Path, rebuilt: Path) -> None:
    """Put a complete, closed state in the place of the live one; the caller owns ``folder``.

    Killed anywhere in here, the next owner finishes it or finds the old state untouched.
    """
    live = state_folder(folder)
    rebuilt.rename(live.with_name(live.name + READY))
    finish_switch(folder)


def finish_switch(folder: Path) -> None:
    """Finish the switch an earlier owner began; the caller owns ``folder``. Idempotent."""
    live = state_folder(folder)
    ready, old = live.with_name(live.name + READY), live.with_name(live.name + OLD)
    while ready.exists():
        if live.exists():
            shutil.rmtree(old, ignore_errors=True)
            live.rename(old)
        try:
            ready.rename(live)
        except OSError:
            # A reader that opened the folder in between has made an empty one: move it, too.
            if not live.exists():
                raise
    shutil.rmtree(old, ignore_errors=True)
