"""Rows of bytes and the JSON in them: any file size, bounded memory, no line that stops a file.

Lines end at LF only, a CR before it is stripped (formats.md section 0): U+2028 and U+0085 are
text. A file in UTF-16 or UTF-32 is rewritten as UTF-8 in a temporary file first, so that offsets
are offsets of UTF-8 everywhere behind this module.
"""

import codecs
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import msgspec
from ombus_schemas.jsontext import JsonValue

MAX_ROW_BYTES: Final = 64 * 1024 * 1024
"""A longer row is reported and skipped; published transcripts have lines of 53 MB."""
MAX_DEPTH: Final = 56
"""Nesting a row may have: the envelope adds its own levels, and stops at 64 (design.md 3)."""
_CHUNK_BYTES: Final = 1024 * 1024
_LONE: Final = re.compile("[\ud800-\udfff]")
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Row(msgspec.Struct, frozen=True):
    """A row's place in the file; ``size`` -1 = over the cap."""

    number: int
    offset: int
    size: int
    terminated: bool = True
    """False for a last line without its newline, which may be cut."""
    end: int = -1
    """Where the next line begins; -1 of an element of a document."""


class BadRow(ValueError):
    """A row that is not a JSON value we can carry; the message is the reason to report."""


def open_utf8(path: Path) -> IO[bytes]:
    """Return the file as a seekable stream of UTF-8 bytes, without a byte order mark problem.

    A UTF-8 mark stays in the stream: ``rows_of`` steps over it.
    """
    file = path.open("rb", buffering=_CHUNK_BYTES)
    head = file.read(4)
    file.seek(0)
    encoding = _encoding(head)
    if encoding is None:
        return file
    with file:
        return _transcoded(file, encoding)


def rows_of(
    file: IO[bytes], max_row_bytes: int = MAX_ROW_BYTES, *, start: int = 0, number: int = 1
) -> Iterator[Row]:
    """Yield every line's place in file order; holds one chunk of the file, never a line.

    ``start`` is where a line begins, ``number`` is that line's.
    """
    if start == 0:
        file.seek(0)
        start = 3 if file.read(3) == codecs.BOM_UTF8 else 0
    at, before = start, b""
    while True:
        file.seek(at)  # a reader may have read elsewhere meanwhile
        chunk = file.read(_CHUNK_BYTES)
        if not chunk:
            break
        searched = 0
        while (found := chunk.find(b"\n", searched)) >= 0:
            last = chunk[found - 1 : found] if found else before
            size = at + found - start - (last == b"\r" and at + found > start)
            kept = size if size <= max_row_bytes else -1
            yield Row(number, start, kept, end=at + found + 1)
            number, start, searched = number + 1, at + found + 1, found + 1
        at += len(chunk)
        before = chunk[-1:]
    if at > start:
        size = at - start - (before == b"\r")
        kept = size if size <= max_row_bytes else -1
        yield Row(number, start, kept, terminated=False, end=at)


def read_row(file: IO[bytes], row: Row) -> JsonValue:
    """Return the JSON value of ``row``; raise ``BadRow`` if there is none."""
    if row.size < 0:
        raise BadRow(f"longer than {MAX_ROW_BYTES} bytes")
    file.seek(row.offset)
    data = file.read(row.size)
    try:
        return decode(data)
    except BadRow as error:
        if not row.terminated and data.strip():
            raise BadRow(f"{error}; the file ends inside this line") from error
        raise


def decode(data: bytes) -> JsonValue:
    """Return the JSON value in ``data``; lone surrogates become U+FFFD, non-finite numbers null.

    Tolerated: control characters in strings, surrogates encoded as UTF-8, bytes that are no UTF-8
    (they become U+FFFD). Not tolerated: anything that is not one JSON value, and nesting beyond
    ``MAX_DEPTH``.
    """
    try:
        value: JsonValue = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = _decode_slowly(data)
    except RecursionError as error:
        raise BadRow(f"nested deeper than {MAX_DEPTH}") from error
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise BadRow(f"nested deeper than {MAX_DEPTH}")
    return value


def _decode_slowly(data: bytes) -> JsonValue:
    if not data.strip():
        raise BadRow("blank line")
    try:
        text = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
    try:
        value: JsonValue = json.loads(text, strict=False, parse_constant=lambda _: None)
    except json.JSONDecodeError as error:
        raise BadRow(f"not JSON: {error.msg} at character {error.pos}") from error
    except (ValueError, RecursionError) as error:
        raise BadRow(f"not JSON: {type(error).__name__}") from error
    try:
        return _scrubbed(value)
    except RecursionError as error:
        raise BadRow(f"nested deeper than {MAX_DEPTH}") from error


def _scrubbed(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return _characters(value)
    if isinstance(value, list):
        return [_scrubbed(item) for item in value]
    if isinstance(value, dict):
        return {_characters(key): _scrubbed(item) for key, item in value.items()}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def _characters(text: str) -> str:
    if _LONE.search(text) is None:
        return text
    joined = _PAIR.sub(
        lambda pair: pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le"), text
    )
    return _LONE.sub("�", joined)


def _depth(value: JsonValue) -> int:
    deepest, waiting = 0, [(value, 0)]
    while waiting:
        item, depth = waiting.pop()
        deepest = max(deepest, depth)
        if isinstance(item, list):
            waiting.extend((child, depth + 1) for child in item)
        elif isinstance(item, dict):
            waiting.extend((child, depth + 1) for child in item.values())
    return deepest


def is_utf8(file: IO[bytes]) -> bool:
    """Say whether nothing in the first bytes tells of another encoding than UTF-8."""
    file.seek(0)
    return _encoding(file.read(4)) is None


def _encoding(head: bytes) -> str | None:
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    # JSON begins with an ASCII character: the zero bytes around it tell an encoding without mark.
    if len(head) == 4 and head[1] == 0 and head[0] != 0:
        return "utf-16-le" if head[3] == 0 and head[2] != 0 else "utf-32-le"
    if len(head) == 4 and head[0] == 0 and head[3] != 0:
        return "utf-16-be" if head[1] != 0 else "utf-32-be"
    return None


def _transcoded(file: IO[bytes], encoding: str) -> IO[bytes]:
    target = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes what it is given)
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    while chunk := file.read(_CHUNK_BYTES):
        target.write(decoder.decode(chunk).encode("utf-8", "replace"))
    target.write(decoder.decode(b"", final=True).encode("utf-8", "replace"))
    target.seek(0)
    return target
