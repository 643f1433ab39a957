"""Errors of the RocksDB store: what a folder or its disk refused.

* StoreError            names the folder, the fact and the way out
  x StoreOwned          retryable: another process, or another handle of this one, has it open
  x StoreFailed         retryable: the disk said no; once it says yes the same call works
  x StoreCorrupt        terminal: damaged, or no database of ours
"""

from pathlib import Path
from typing import Final

from ombus_streams.runtime.errors import RetryableError, RuntimeFault, TerminalError


class StoreError(RuntimeFault):
    """A folder that cannot serve."""

    def __init__(self, path: Path, fact: str, way_out: str) -> None:
        super().__init__(f"{path}: {fact}: {way_out}")
        self.path, self.fact, self.way_out = path, fact, way_out


class StoreOwned(StoreError, RetryableError):
    """Another process folds this partition in the same folder."""


class StoreFailed(StoreError, RetryableError):
    """The disk is full, failed, or the rights on it do not suffice."""


class StoreCorrupt(StoreError, TerminalError):
    """Damaged, or written by something else."""


_OWNED: Final = ("lock hold by current process", "While lock file", "Resource temporarily")
_CORRUPT: Final = ("Corruption:", "Invalid argument:", "Not implemented:")


def store_error(path: Path, cause: Exception) -> StoreError:
    """Return the typed error for what RocksDB said; it has one class and tells by its words."""
    fact = str(cause)
    if any(word in fact for word in _OWNED):
        return StoreOwned(path, fact, "stop the process that has it open, or name another instance")
    if fact.startswith(_CORRUPT):
        return StoreCorrupt(path, fact, "delete this partition's folder: it is folded again")
    return StoreFailed(path, fact, "check the disk, and that this user may write there")
