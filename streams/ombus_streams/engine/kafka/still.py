"""A partition's database as it stood at one instant, taken while its owner goes on writing.

Tables are never changed once they are written, so they are linked; manifest and write-ahead logs
only grow, so a copy of their beginning is an earlier state. What would mix two states is a table
or a log that came or went in between: then it is done again. The owner takes no notice.
"""

import errno
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ombus_streams.engine.kafka.rocks import Memory
from ombus_streams.engine.kafka.snapshot import Snapshot
from ombus_streams.engine.kafka.store_errors import StoreFailed, store_error
from ombus_streams.runtime.folders import make_private

MAX_TRIES: Final = 100
_PAUSE_SECONDS: Final = 0.02
_TABLE, _WAL, _MANIFEST, _CURRENT = ".sst", ".log", "MANIFEST-", "CURRENT"
_NEEDED: Final = (_MANIFEST, "OPTIONS-", "IDENTITY", "rocksdict-config.json")


def take_still(database: Path, folder: Path, memory: Memory | None = None) -> None:
    """Let ``folder`` hold a database that shares the tables of ``database``, open or not.

    It holds what is needed and nothing else. On another file system tables are copied.

    Raises:
        StoreError: there is no database, or it changed under every try.
    """
    for _ in range(MAX_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        make_private(folder)
        before = _version(database)
        try:
            _copy(database, folder)
        except FileNotFoundError:
            continue  # It was replaced after it was listed.
        except OSError as error:
            raise store_error(database, error) from error
        if before is not None and _version(database) == before:
            _leave_out_the_unneeded(folder, memory or Memory())
            return
        time.sleep(_PAUSE_SECONDS)
    fact = "holds no database" if _version(database) is None else "changed under every copy"
    raise StoreFailed(database, fact, "name another partition, or try again when less is written")


@contextmanager
def still(database: Path, folder: Path, memory: Memory | None = None) -> Iterator[Snapshot]:
    """Lend a still, made at ``folder`` and gone afterwards.

    Raises:
        StoreError: as ``take_still``, or a table is damaged.
    """
    memory = memory or Memory()
    try:
        take_still(database, folder, memory)
        rows = memory.open_to_read(folder)
        try:
            yield Snapshot(rows.iter(), database)
        finally:
            rows.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _version(database: Path) -> tuple[object, ...] | None:
    """Return what differs between two states that must not be mixed; ``None``: no database."""
    try:
        current = (database / _CURRENT).read_text("ascii").strip()
        size = (database / current).stat().st_size
        names = sorted(each.name for each in database.iterdir())
    except OSError:
        return None
    return current, size, tuple(name for name in names if name.endswith((_TABLE, _WAL)))


def _copy(database: Path, folder: Path) -> None:
    for source in sorted(database.iterdir()):
        name = source.name
        if name.endswith(_TABLE):
            _link(source, folder / name)
        elif name.endswith(_WAL) or name == _CURRENT or name.startswith(_NEEDED):
            shutil.copyfile(source, folder / name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
            raise
        shutil.copyfile(source, target)


def _leave_out_the_unneeded(folder: Path, memory: Memory) -> None:
    """Unlink tables the manifest does not name: one may be half written, and its number taken."""
    rows = memory.open_to_read(folder)
    try:
        needed = {str(each["name"]).lstrip("/") for each in rows.live_files()}
    except Exception as error:
        raise store_error(folder, error) from error
    finally:
        rows.close()
    for table in folder.glob(f"*{_TABLE}"):
        if table.name not in needed:
            table.unlink()
    manifest = (folder / _CURRENT).read_text("ascii").strip()
    for each in folder.glob(f"{_MANIFEST}*"):
        if each.name != manifest:
            each.unlink()
