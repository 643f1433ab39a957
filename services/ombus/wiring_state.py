"""The part of the composition root that opens rows folded from Kafka, beside whoever folds them.

``kafka/<instance>/<role>-v<fold version>/<partition>`` under the data folder: one RocksDB each.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ombus_streams.engine.kafka.store_errors import StoreError, StoreOwned
from ombus_streams.memory.head import FOLD_VERSION
from ombus_streams.memory.rows import Rows
from ombus_streams.runtime.ports import PositionRow, StateStore

from ombus.wiring_equipment import KAFKA_FOLDER, state_folder
from ombus.wiring_kafka import require_extra
from ombus.wiring_worker import ROLE_NAMES

if TYPE_CHECKING:
    from typing import Protocol

    class View(Rows, Protocol):
        """Rows of a partition at one instant."""

        def position(self) -> PositionRow | None: ...

        def get_operational(self, key: bytes) -> bytes | None: ...

    class States(Protocol):
        """Rows of the partitions of one folder, open to be folded on."""

        def store(self, partition: int) -> StateStore: ...

        def close(self) -> None: ...


__all__ = [
    "FOLD_VERSION",
    "ROLE_NAMES",
    "StoreError",
    "StoreOwned",
    "is_in_use",
    "older_folders",
    "open_states",
    "partitions_in",
    "state_folder",
    "still_database",
    "still_rows",
    "switch_folders",
    "taken",
]

_FOLDER: Final = re.compile(r"(?P<role>[a-z]+)-v(?P<version>\d+)")
_OLD: Final = ".old"
_LOCK: Final = "LOCK"


def older_folders(data: Path, instance: str, role: str) -> list[Path]:
    """Return the rows of other fold versions, oldest first."""
    folder = data / KAFKA_FOLDER / instance
    found = [(_said(each), each) for each in (folder.iterdir() if folder.is_dir() else ())]
    old = [(said[1], each) for said, each in found if said[0] == role and said[1] != FOLD_VERSION]
    return [each for _, each in sorted(old)]


def partitions_in(folder: Path) -> list[int]:
    """Return the partitions ``folder`` has rows of."""
    if not folder.is_dir():
        return []
    return sorted(int(each.name) for each in folder.iterdir() if each.name.isdecimal())


def open_states(folder: Path) -> "States":
    """Open rows to fold them on; only one process at a time has a partition open.

    Raises:
        StoreError: see its way out.
        BadSetting: the extra is not installed.
    """
    require_extra()
    from ombus_streams.engine.kafka.store import RocksState

    return RocksState(folder)


@contextmanager
def still_rows(folder: Path, partition: int) -> "Iterator[View]":
    """Lend the rows of a partition as they stand now, whoever folds them.

    Raises:
        StoreError: there are none, or a file is damaged.
    """
    require_extra()
    from ombus_streams.engine.kafka.still import still

    with still(folder / _name(partition), _beside(folder, partition, "still")) as rows:
        yield rows


@contextmanager
def still_database(folder: Path, partition: int) -> Iterator[tuple[Path, PositionRow | None]]:
    """Lend the files of a partition as they stand now, and the position they hold.

    Raises: as ``still_rows``.
    """
    require_extra()
    from ombus_streams.engine.kafka.snapshot import reading
    from ombus_streams.engine.kafka.still import take_still

    copy = _beside(folder, partition, "checkpoint")
    try:
        take_still(folder / _name(partition), copy)
        with reading(copy) as rows:
            position = rows.position()
        yield copy, position
    finally:
        shutil.rmtree(copy, ignore_errors=True)


@contextmanager
def taken(folder: Path) -> Iterator[None]:
    """Keep other processes from opening the rows in ``folder`` as long as the block lasts.

    It takes the locks RocksDB takes and opens nothing: an open database goes on writing under its
    name, whatever lies there by then. Not for a process that has one of the rows open itself.

    Raises:
        StoreOwned: another process has one of its partitions open.
    """
    with ExitStack() as held:
        for partition in partitions_in(folder):
            lock = folder / _name(partition) / _LOCK
            file = held.enter_context(lock.open("ab"))
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                way_out = "stop the process that has it open"
                raise StoreOwned(lock.parent, "another process folds it", way_out) from error
        yield


def is_in_use(folder: Path) -> bool:
    """Say whether another process has any partition of ``folder`` open."""
    try:
        with taken(folder):
            return False
    except StoreOwned:
        return True


def switch_folders(live: Path, beside: Path) -> None:
    """Put ``beside``, which nobody has open, in the place of ``live``, which the caller has taken.

    Whoever opens a partition in between finds it taken, and tries again by name.
    """
    old = live.with_name(live.name + _OLD)
    shutil.rmtree(old, ignore_errors=True)
    if live.exists():
        live.rename(old)
    beside.rename(live)
    shutil.rmtree(old, ignore_errors=True)


def _said(folder: Path) -> tuple[str, int]:
    found = _FOLDER.fullmatch(folder.name)
    return ("", 0) if found is None else (found["role"], int(found["version"]))


def _name(partition: int) -> str:
    return f"{partition:05d}"


def _beside(folder: Path, partition: int, what: str) -> Path:
    """Return a place on the same file system that is no partition."""
    return folder.with_name(f".{folder.name}-{_name(partition)}-{what}-{os.getpid()}")
