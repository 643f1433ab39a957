"""Pass one over a transcript: what becomes of each row, in columns.

Rows may come bit by bit, from a file that is still written. A row costs about 130 bytes here, its
id included, whatever it holds; ids are compared by 64-bit hashes.
"""

import hashlib
from array import array
from collections.abc import Iterable
from sys import intern
from typing import IO, Final

from ombus.importers.canonical import Fate, Format, Linear, Mark, Voice
from ombus.importers.idtable import IdTable
from ombus.importers.lines import BadRow, Row, read_row

NO_ROW: Final = -1
"""A named parent is in no row."""
ROOT_ROW: Final = -2
"""A named parent was left out and is a declared root."""
BEFORE_ROW: Final = -3
"""A named parent was left out and names no parent: what stands before it is meant."""
IS_LINEAR, IS_ROOT, IS_NAMED = 0, 1, 2
_MAX_REASONS: Final = 1_000
_OTHER_REASON: Final = "of another kind"


class Index:
    """Pass one over a file: columns by row, and what the format learned."""

    def __init__(
        self, native: Format, identity: bytes | None = None, ancestor: "Index | None" = None
    ) -> None:
        self.native = native
        self.identity = identity
        """The bytes a session without id is named by: its document, else its first row."""
        self.copies: dict[int, int] = {}
        """Rows that are copies of an ancestor's: the number they have there."""
        self._ancestor = ancestor
        self.numbers = array("I")
        self.offsets = array("Q")
        self.sizes = array("i")
        self.unended = -1
        self.fates = bytearray()
        self.voices = bytearray()
        self.threads = array("i")
        self.parent_kinds = bytearray()
        self.parent_keys = array("Q")
        self.primaries = array("i")
        self.reasons = array("H")
        self.thread_names: list[str] = []
        self.reason_texts: list[str] = []
        self.row_by_id = IdTable()
        self.members: dict[int, list[int]] = {}
        self.tool_names: dict[int, str] = {}
        self.open_groups: dict[int, int] = {}
        """By thread: the first row of the last group, which may get more rows."""
        self.told: dict[int, int] = {}
        """By thread: rows before this one were told; a row of their groups is one of its own."""
        self._last_thread = NO_ROW
        self._id_text = bytearray()
        self._id_ends = array("Q")
        self._row_by_group = IdTable()
        self._reason_numbers: dict[str, int] = {}
        self._thread_numbers: dict[str, int] = {}

    def read(self, file: IO[bytes], rows: Iterable[Row]) -> None:
        """Mark every row; a row that cannot be read or marked is bad, and no more than that."""
        thread = self._last_thread
        for row in rows:
            if self.identity is None and row.size > 0:
                file.seek(row.offset)
                self.identity = file.read(min(row.size, 65_536))
            mark = _mark(file, row, self.native)
            if mark.fate in (Fate.ENTRY, Fate.MERGED) or mark.id is not None:
                thread = self._thread(mark.thread)
            self._append(row, mark, thread)
        self._last_thread = thread
        if not self.thread_names:
            self._thread("")
        first = next((at for at in self.threads if at >= 0), 0)
        for at, found in enumerate(self.threads):
            if found >= 0:
                break
            self.threads[at] = first
        if self.threads and not any(at >= 0 for at in self.threads):
            self.threads = array("i", [0]) * len(self.threads)

    def row(self, at: int) -> Row:
        return Row(self.numbers[at], self.offsets[at], self.sizes[at], at != self.unended)

    def native_id(self, at: int) -> str:
        start = self._id_ends[at - 1] if at else 0
        return self._id_text[start : self._id_ends[at]].decode()

    def row_of(self, thread: int, native_id: str) -> int:
        """Return the row that becomes the entry of ``native_id``, or -1."""
        return self.resolve(thread, key_of(f"{thread}\0{native_id}"))

    def resolve(self, thread: int, key: int) -> int:
        """Return the row that stands for the named parent; rows left out stand for theirs."""
        passed: list[int] = []
        while (at := self.row_by_id.get(key)) >= 0 and self.fates[at] == Fate.LEFT_OUT:
            passed.append(at)
            if self.parent_kinds[at] != IS_NAMED or len(passed) > len(self.numbers):
                return ROOT_ROW if self.parent_kinds[at] == IS_ROOT else BEFORE_ROW
            key = self.parent_keys[at]
        for row in passed:
            self.parent_keys[row] = key
        return self.primaries[at] if at >= 0 else NO_ROW

    def _append(self, row: Row, mark: Mark, thread: int) -> None:
        at = len(self.numbers)
        fate, primary = mark.fate, at
        key = 0
        if mark.id is not None and fate in (Fate.ENTRY, Fate.LEFT_OUT):
            key = key_of(f"{thread}\0{mark.id}")
            if self.row_by_id.add(key, at):
                self._note_copy(key, at)
            elif fate == Fate.ENTRY:
                fate = Fate.DUPLICATE
        if fate == Fate.ENTRY and mark.group is not None:
            group = key_of(f"{thread}\0{mark.group}")
            known = self._row_by_group.get(group)
            if known >= 0 and known >= self.told.get(thread, 0):
                primary, fate = known, Fate.MERGED
                self.members.setdefault(primary, []).append(at)
            else:
                self._row_by_group.put(group, at)
                self.open_groups[thread] = at
        elif fate == Fate.ENTRY and mark.voice == Voice.HUMAN:
            self.open_groups.pop(thread, None)
        for call_id, name in mark.calls:
            self.tool_names.setdefault(key_of(call_id), intern(name))
        self.numbers.append(row.number)
        self.offsets.append(row.offset)
        self.sizes.append(row.size)
        if not row.terminated:
            self.unended = at
        self.fates.append(fate)
        self.voices.append(mark.voice)
        self.threads.append(thread)
        self.primaries.append(primary)
        self.reasons.append(self._reason(mark.reason))
        kind = IS_LINEAR
        parent = mark.parent
        if parent is None:
            kind = IS_ROOT
        elif not isinstance(parent, Linear):
            kind = IS_NAMED
        self.parent_kinds.append(kind)
        self.parent_keys.append(key_of(f"{thread}\0{parent}") if isinstance(parent, str) else 0)
        if mark.id is not None and fate in (Fate.ENTRY, Fate.DUPLICATE):
            self._id_text += mark.id.encode("utf-8", "replace")
        self._id_ends.append(len(self._id_text))

    def _note_copy(self, key: int, at: int) -> None:
        above = self._ancestor
        original = above.row_by_id.get(key) if above is not None else NO_ROW
        if above is not None and original >= 0:
            self.copies[at] = above.copies.get(original, above.numbers[original])

    def _thread(self, name: str) -> int:
        if name not in self._thread_numbers:
            self._thread_numbers[name] = len(self.thread_names)
            self.thread_names.append(name)
        return self._thread_numbers[name]

    def _reason(self, text: str) -> int:
        if text not in self._reason_numbers and len(self.reason_texts) >= _MAX_REASONS:
            text = _OTHER_REASON
        if text not in self._reason_numbers:
            self._reason_numbers[text] = len(self.reason_texts)
            self.reason_texts.append(text)
        return self._reason_numbers[text]


def _mark(file: IO[bytes], row: Row, native: Format) -> Mark:
    try:
        value = read_row(file, row)
    except BadRow:
        return Mark(fate=Fate.BAD)
    if not isinstance(value, dict):
        return Mark(fate=Fate.BAD, reason="not an object")
    return native.mark(value, row.number)


def key_of(text: str) -> int:
    """Return the 64-bit hash that stands for an id."""
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big")
