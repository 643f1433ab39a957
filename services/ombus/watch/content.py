"""What a file holds now: whether it still is what was read, and what it begins with."""

import hashlib
import io
from typing import IO, Final

import msgspec

from ombus.importers import format_named
from ombus.importers.canonical import Fate
from ombus.importers.detect import Detected, FormatName, detect
from ombus.importers.index import Index
from ombus.importers.lines import BadRow, Row, is_utf8, read_row, rows_of

LOOKED_AT: Final = 60
"""Lines after which a file that names no session will not name one."""
_HEAD_BYTES: Final = 1_024
_TAIL_BYTES: Final = 256
_FIRST_BYTES: Final = 65_536


class Content(msgspec.Struct, frozen=True):
    """What the first lines say."""

    format: FormatName
    is_whole: bool
    """It is one document, or in another encoding: there are no lines to follow."""
    session: str | None
    """The native session id, if they name one."""


class Held(io.BytesIO):
    """Bytes of a file from an offset on, remembered for the day the file is cut."""

    def __init__(self, content: bytes, start: int) -> None:
        super().__init__(content)
        self._offset = start

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return super().seek(max(0, offset - self._offset), whence)


def content_of(file: IO[bytes], name: FormatName | None = None) -> Content | None:
    """Return what a file holds, ``None`` while nothing in it looks like a transcript."""
    if not is_utf8(file):
        return Content("messages", True, None)
    found = detect(file) if name is None else Detected(name, "lines")
    if found.layout != "lines":
        return Content(found.name, True, None)
    index = Index(format_named(found.name, {}))
    index.read(file, _first(file))
    if not any(fate in (Fate.ENTRY, Fate.MERGED) for fate in index.fates):
        return None
    return Content(found.name, False, index.native.session_id(index.thread_names[0]))


def fingerprint(file: IO[bytes], offset: int) -> bytes:
    """Return a hash of how the file begins and of what stands right before ``offset``."""
    file.seek(0)
    head = file.read(min(offset, _HEAD_BYTES))
    file.seek(max(0, offset - _TAIL_BYTES))
    tail = file.read(min(offset, _TAIL_BYTES))
    return hashlib.sha256(b"%d:" % offset + head + tail).digest()[:16]


def first_line(file: IO[bytes]) -> bytes:
    """Return a hash of the first complete line that is not empty; empty while there is none."""
    for row in rows_of(file):
        if row.terminated and row.size:
            file.seek(row.offset)
            size = row.end - row.offset
            return hashlib.sha256(file.read(min(size, _FIRST_BYTES))).digest()[:16]
    return b""


def is_object(file: IO[bytes], row: Row) -> bool:
    """Say whether a line without newline is complete all the same."""
    try:
        return isinstance(read_row(file, row), dict)
    except BadRow:
        return False


def last_line_end(file: IO[bytes]) -> tuple[int, int]:
    """Return where the last complete line ends, and the number of the next one."""
    end, number = 0, 1
    for row in rows_of(file):
        if row.terminated:
            end, number = row.end, row.number + 1
    return end, number


def _first(file: IO[bytes]) -> list[Row]:
    rows: list[Row] = []
    for row in rows_of(file):
        if row.terminated or is_object(file, row):
            rows.append(row)
        if len(rows) >= LOOKED_AT:
            break
    return rows
