"""Whose sessions are, in a data folder: by its log of grants, if anybody has granted anything."""

from pathlib import Path
from typing import Final

from ombus_schemas.topics import GRANTS
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.runtime.owners import GrantsOwners
from ombus_streams.runtime.ports import Clock

FOLDER: Final = "grants"
"""In the data folder: the log of grants, where there is no broker."""


class FolderOwners:
    """Opens the log for as long as it is asked, and makes none."""

    def __init__(self, data: Path, clock: Clock) -> None:
        folder = data / FOLDER
        self._file = folder / "log.db"
        self._owners = GrantsOwners(lambda: SqliteLog(folder, clock, topic=GRANTS))

    def owner_of(self, key: bytes) -> str | None:
        if not self._file.is_file():
            return None
        try:
            return self._owners.owner_of(key)
        finally:
            self._owners.close()
