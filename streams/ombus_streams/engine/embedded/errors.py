"""Errors of the embedded engine: what a file or its disk refused.

* StorageError          names the file, the fact and the way out
  x StorageBusy         retryable: another process has held the write lock for too long
  x StorageFull         retryable: no room; once there is some the same call works
  x AlreadyOwned        retryable: another process folds this folder
  x StorageCorrupt      terminal: the file is damaged or is no database
  x StorageFailed       terminal: the disk or the rights on it say no
  x OtherLog            terminal: the file is a log, but not the one that was asked for
"""

import sqlite3
from pathlib import Path

from ombus_streams.runtime.errors import RetryableError, RuntimeFault, TerminalError


class StorageError(RuntimeFault):
    """A file that cannot serve."""

    def __init__(self, path: Path, fact: str, way_out: str) -> None:
        super().__init__(f"{path}: {fact}: {way_out}")
        self.path, self.fact, self.way_out = path, fact, way_out


class StorageBusy(StorageError, RetryableError):
    """Another process has held the write lock for longer than ``busy_timeout``."""


class StorageFull(StorageError, RetryableError):
    """The disk, or the share of it this file may use, is full."""


class AlreadyOwned(StorageError, RetryableError):
    """Another process, or another handle of this one, folds this folder."""

    def __init__(self, path: Path, owner: str) -> None:
        fact = f"is owned by process {owner or 'unknown'}"
        super().__init__(path, fact, "stop that process, or read without folding")
        self.owner = owner


class StorageCorrupt(StorageError, TerminalError):
    """The file is damaged, or is no database of ours."""


class StorageFailed(StorageError, TerminalError):
    """The disk failed, or the rights on it do not suffice."""


class OtherLog(StorageError, TerminalError):
    """A log of another shape, cluster or topic than the one that was asked for."""


def storage_error(path: Path, cause: sqlite3.Error) -> StorageError:
    """Return the typed error for what SQLite said about the file at ``path``."""
    name = getattr(cause, "sqlite_errorname", None) or type(cause).__name__
    fact = f"{cause} ({name})"
    match getattr(cause, "sqlite_errorcode", 0) & _PRIMARY_CODE:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StorageBusy(path, fact, "find the process that holds it, or try again")
        case sqlite3.SQLITE_FULL:
            return StorageFull(path, fact, "free space on that disk and try again")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StorageCorrupt(
                path, fact, "restore a log from its copy; a state folder may be deleted and folds"
            )
    return StorageFailed(path, fact, "check the disk, and that this user may write there")


_PRIMARY_CODE = 0xFF
"""SQLite keeps the primary result code in the low byte of the extended one."""
