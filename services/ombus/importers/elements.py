"""The elements of lists in one large JSON document, found without decoding the document.

A dump of a conversation is one object with a list of messages, a run is one with a history; both
may be larger than memory. The scan follows strings and brackets only, in chunks, and says where
each element is, so that elements are rows like the lines of a JSONL file. A document that ends in
the middle gives the elements before the cut, and the cut one.
"""

import re
from collections.abc import Iterator
from typing import IO, Final

import msgspec

_CHUNK_BYTES: Final = 1024 * 1024
_MAX_KEY_BYTES: Final = 4_096
_TOKEN: Final = re.compile(rb'["\[\]{},]')
_STRING_REST: Final = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)


class Element(msgspec.Struct, frozen=True):
    """Where a value stands: an element of the list ``key``, or (``index`` -1) the value of it.

    The key of a list that is itself the document is the empty string.
    """

    key: str
    index: int
    offset: int
    size: int
    complete: bool = True


def elements(file: IO[bytes], start: int, end: int) -> Iterator[Element]:
    """Yield the values of the document at ``start`` to ``end`` in order; O(1) memory.

    Of lists at the top level the elements, of everything else the value itself.
    """
    scan = _Scan(file, end)
    for byte, at in _tokens(file, start, end):
        yield from scan.step(byte, at)
    yield from scan.cut()


class _Scan:
    """Brackets so far; ``_list_depth`` is the depth at which elements of a list stand."""

    def __init__(self, file: IO[bytes], end: int) -> None:
        self._file = file
        self._end = end
        self._depth = 0
        self._list_depth = 0
        self._index = 0
        self._key: str | None = None
        self._string_start = -1
        self._value_start = -1

    def step(self, byte: bytes, at: int) -> Iterator[Element]:
        if byte == b'"':
            if self._depth == 1 and self._list_depth != 1 and self._key is None:
                if self._string_start < 0:
                    self._string_start = at
                else:
                    self._key = self._read_key(self._string_start, at + 1)
                    self._value_start = at + 1
        elif byte in b"[{":
            self._depth += 1
            if byte == b"[" and self._opens_list():
                self._list_depth, self._index = self._depth, 0
                self._value_start = at + 1
        elif byte == b",":
            yield from self._ended(at)
        else:
            yield from self._ended(at, closes=True)
            self._depth = max(0, self._depth - 1)

    def cut(self) -> Iterator[Element]:
        if self._depth > 0 and self._value_start >= 0:
            yield from self._found(self._end, complete=False)

    def _opens_list(self) -> bool:
        if self._depth == 1:
            self._key = ""
            return True
        return self._depth == 2 and self._list_depth == 0 and self._key is not None

    def _ended(self, at: int, *, closes: bool = False) -> Iterator[Element]:
        if self._list_depth and self._depth == self._list_depth:
            yield from self._found(at)
            self._index += 1
            self._value_start = at + 1
            if closes:
                self._list_depth = 0
                self._value_start = -1
        elif self._depth == 1 and self._list_depth == 0:
            if self._value_start >= 0:
                yield from self._found(at)
            self._key, self._string_start, self._value_start = None, -1, -1

    def _found(self, at: int, *, complete: bool = True) -> Iterator[Element]:
        start = self._value_start
        self._file.seek(start)
        head = self._file.read(min(at - start, 64))
        blank = len(head) - len(head.lstrip(b" \t\r\n:"))
        if blank < len(head) or at - start > len(head):
            index = self._index if self._list_depth else -1
            yield Element(self._key or "", index, start + blank, at - start - blank, complete)

    def _read_key(self, start: int, end: int) -> str:
        self._file.seek(start)
        try:
            key = msgspec.json.decode(self._file.read(min(end - start, _MAX_KEY_BYTES)))
        except msgspec.DecodeError:
            return ""
        return key if isinstance(key, str) else ""


def _tokens(file: IO[bytes], start: int, end: int) -> Iterator[tuple[bytes, int]]:
    """Yield brackets and commas outside strings, and both quotes of every string."""
    offset, in_string, skip = start, False, 0
    while offset < end:
        file.seek(offset)
        chunk = file.read(min(_CHUNK_BYTES, end - offset))
        if not chunk:
            return
        at, skip = skip, 0
        while at < len(chunk):
            if in_string:
                rest = _STRING_REST.match(chunk, at)
                at = len(chunk) if rest is None else rest.end()
                if at >= len(chunk):
                    break
                if chunk[at : at + 1] == b"\\":
                    skip = 1
                    break
                in_string = False
                yield b'"', offset + at
                at += 1
                continue
            token = _TOKEN.search(chunk, at)
            if token is None:
                break
            at = token.end()
            in_string = token[0] == b'"'
            yield token[0], offset + at - 1
        offset += len(chunk)
