"""A file as the source and the target of a replay: one JSON object a line, entries verbatim.

``{"position": "<incarnation>:<partition>:<offset>", "at": <ms>, "key": "tenant/session",
"entry": {…}}``; a record that is no entry has ``keyBase64`` and ``valueBase64`` instead.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from ombus_schemas.codec import decode_record
from ombus_schemas.errors import BadRecord
from ombus_schemas.headers import headers_of
from ombus_streams.runtime.ports import Draft, LogRecord

from ombus.operator.errors import Misaddressed
from ombus.operator.replay import Marks

INCARNATION: Final = "file"
"""A file has no name of its own: it is told by what it holds."""


class BadFile(Misaddressed):
    """A line that no replay wrote."""

    code = "bad_file"

    def __init__(self, path: Path, number: int, fact: str) -> None:
        super().__init__(f"{path}, line {number:,}: {fact}: name a file that a replay wrote")
        self.path, self.number = path, number


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel"):
    position: str
    at: int
    key: str | None = None
    entry: msgspec.Raw = msgspec.Raw()
    key_base64: bytes | None = None
    value_base64: bytes | None = None


_decode: Final = msgspec.json.Decoder(_Line).decode
_encode: Final = msgspec.json.Encoder().encode


class FileSource:
    """What a replay wrote to a file; all of one log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        first = next(iter(self._lines()), None)
        self._incarnation = "" if first is None else first[0]

    @property
    def incarnation(self) -> str:
        return self._incarnation

    def count(self, after: dict[int, int]) -> int:
        return sum(1 for _ in self.records(after))

    def records(self, after: dict[int, int]) -> Iterator[LogRecord]:
        for _, record in self._lines():
            if record.offset >= after.get(record.partition, 0):
                yield record

    def _lines(self) -> Iterator[tuple[str, LogRecord]]:
        with self._path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                try:
                    yield _record(text)
                except (msgspec.DecodeError, ValueError) as error:
                    raise BadFile(self._path, number, str(error).lower()) from error


class FileTarget:
    """A file that copies are appended to; on the disk when ``append`` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO = path.open("ab")
        self._source = ""

    @property
    def incarnation(self) -> str:
        return INCARNATION

    def reaches(self, seen: dict[int, int]) -> bool:
        """Say no: another file may lie there by now, and this one is read whole anyway."""
        return False

    def copied(self, source: str, seen: dict[int, int]) -> Marks:
        """Look through the whole file; what a killed run left of a last line is cut off."""
        self._source = source
        marks, whole = Marks(), 0
        with self._path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                if not text.endswith(b"\n"):
                    break
                whole += len(text)
                try:
                    incarnation, record = _record(text)
                except (msgspec.DecodeError, ValueError) as error:
                    raise BadFile(self._path, number, str(error).lower()) from error
                if incarnation != source:
                    fact = f"holds log {incarnation}, not {source}"
                    raise BadFile(self._path, number, fact)
                marks.add(record.partition, record.offset)
        self._file.truncate(whole)
        return marks

    def append(self, originals: Sequence[LogRecord], drafts: Sequence[Draft]) -> None:
        lines = [_line(self._source, record) for record in originals]
        self._file.write(b"".join(lines))
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _line(incarnation: str, record: LogRecord) -> bytes:
    assert record.key is not None
    assert record.value is not None
    line = _Line(position=f"{incarnation}:{record.partition}:{record.offset}", at=record.at_ms)
    try:
        decode_record(record.key, record.value)
        if b"\n" in record.value:
            raise BadRecord("json", "spans lines")
        line.key, line.entry = record.key.decode("ascii"), msgspec.Raw(record.value)
    except BadRecord:
        line.key_base64, line.value_base64 = record.key, record.value
    return _encode(line) + b"\n"


def _record(text: bytes) -> tuple[str, LogRecord]:
    line = _decode(text)
    incarnation, partition, offset = line.position.split(":")
    key = line.key.encode() if line.key is not None else line.key_base64
    value = line.value_base64 if line.value_base64 is not None else bytes(line.entry)
    if key is None or not value:
        raise ValueError("neither entry nor valueBase64")
    try:
        headers = headers_of(decode_record(key, value))
    except BadRecord:
        headers = ()
    return incarnation, LogRecord(
        partition=int(partition),
        offset=int(offset),
        key=key,
        value=value,
        headers=headers,
        at_ms=line.at,
    )
