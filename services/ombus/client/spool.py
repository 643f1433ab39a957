"""Entries kept in a file while the gateway is away, in the order they were given.

A line is durable when ``add`` returns. The file is emptied only when all of it was acknowledged; a
process that is killed in between sends everything again, and ids make that harmless. A line that
was cut by a kill was never acknowledged to its caller, so it is taken off.
"""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

import msgspec
from ombus_schemas.jsontext import JsonObject

from ombus.client.errors import SpoolBusy, SpoolFull

MAX_BYTES: Final = 268_435_456
REJECTED: Final = ".rejected"
"""Beside the spool: entries that the gateway refused for good when they were sent again."""


class Spooled(msgspec.Struct, frozen=True, kw_only=True):
    """One line."""

    session: str
    entry: JsonObject
    at_ms: int = 0
    """When it was kept; it was sent for the first time not long before."""


class Spool:
    """See the module. One process at a time holds it."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.max_bytes = path, max_bytes
        self._file: IO[bytes] = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise SpoolBusy(f"{path} is held by another process: give each its own") from error
        self.n_bytes = self._whole_lines()
        self._sent = 0

    @property
    def is_empty(self) -> bool:
        """Say whether everything that was kept has been sent."""
        return self.n_bytes == self._sent

    def add(self, lines: Sequence[Spooled]) -> None:
        """Keep all lines, durably, or none.

        Raises:
            SpoolFull: they do not fit.
        """
        text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        if self.n_bytes + len(text) > self.max_bytes:
            raise SpoolFull(str(self.path), self.max_bytes)
        self._file.write(text)
        self._file.flush()
        os.fsync(self._file.fileno())
        self.n_bytes += len(text)

    def peek(self, max_lines: int, max_bytes: int) -> tuple[list[Spooled], int]:
        """Return the oldest unsent lines of one session, and how many bytes they are."""
        self._file.seek(self._sent)
        found: list[Spooled] = []
        n_bytes = 0
        while self._sent + n_bytes < self.n_bytes and len(found) < max_lines:
            text = self._file.readline()
            line = msgspec.json.decode(text, type=Spooled)
            if found and (line.session != found[0].session or n_bytes + len(text) > max_bytes):
                break
            found.append(line)
            n_bytes += len(text)
        return found, n_bytes

    def sent(self, n_bytes: int) -> None:
        """Note that so many more bytes are acknowledged; empty the file when all are."""
        self._sent += n_bytes
        if self.is_empty:
            self._file.truncate(0)
            self._file.flush()
            os.fsync(self._file.fileno())
            self.n_bytes = self._sent = 0

    def reject(self, line: Spooled, code: str) -> None:
        """Keep a line that the gateway will never take where a person finds it."""
        with self.path.with_name(self.path.name + REJECTED).open("ab") as file:
            file.write(msgspec.json.encode({"code": code, "line": line}) + b"\n")

    def close(self) -> None:
        """Let another process have it; what is in it stays."""
        self._file.close()

    def _whole_lines(self) -> int:
        self._file.seek(0)
        n_bytes = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            n_bytes += len(line)
        self._file.truncate(n_bytes)
        return n_bytes
