"""A session of a file that is still written: its rows as they come, each entry once it is settled.

What an import of the whole file would make of a row may hang on rows after it: an API message goes
on, a parent comes late, a user went back. Such a row waits, and with it everything behind it, until
the rows that decide are there, or ``is_quiet`` says that nobody writes any more. What was told
stays: a late row of a message that was told already becomes an entry of its own.
"""

from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

from ombus_schemas.jsontext import JsonObject

from ombus.importers.canonical import Fate, Imported, Item, Voice
from ombus.importers.index import IS_LINEAR, NO_ROW, Index
from ombus.importers.lineage import BEFORE, MAX_LATE, MISSING, ROOT, Lineage, Places
from ombus.importers.transcript import Transcript, named

MAX_HELD: Final = MAX_LATE
"""Nodes that may wait for what decides about the first of them."""

IsOnLog = Callable[[str], bool]
"""Whether the session holds an entry with this id on the log."""


class GrowingTranscript(Transcript):
    """One session of a growing file, told row by row; ``report`` counts what was told."""

    def __init__(
        self,
        path: Path,
        index: Index,
        thread: int,
        *,
        tenant: str,
        session: str,
        part_of: str = "",
        copied_facts: JsonObject | None = None,
        tip: str | None = None,
        start: int = 0,
    ) -> None:
        """``tip`` is the entry that the first one hangs on if the file does not say otherwise;
        rows before the offset ``start`` are known, but never told.
        """
        super().__init__(
            path,
            index,
            thread,
            tenant=tenant,
            session=session,
            part_of=part_of,
            copied_facts=copied_facts,
        )
        self._rows, self._nodes, self._first_own = array("i"), array("i"), NO_ROW
        self._places = Places()
        self._lineage = self._places.lineage
        self._carried_tip, self._start = tip, start
        self._outer: dict[int, str] = {}
        self._missing: dict[int, int] = {}
        self._is_on_log: IsOnLog = lambda _: False
        self._n_indexed = self._n_told = 0

    @property
    def next_row(self) -> int:
        """The first row that was not told, or -1."""
        return self._rows[self._n_told] if self._n_told < len(self._rows) else NO_ROW

    def grow(self) -> None:
        """Take in the rows that the index has read since."""
        index, first = self._index, len(self._nodes)
        for at in range(self._n_indexed, len(index.fates)):
            if index.threads[at] == self._thread:
                self._rows.append(at)
                if index.fates[at] == Fate.ENTRY:
                    self._nodes.append(at)
        self._n_indexed = len(index.fates)
        fresh = self._nodes[first:]
        natives = [self._native(at, self._missing) for at in fresh]
        self._places.extend(natives, bytes(index.voices[at] for at in fresh))

    def pass_over(self, file: IO[bytes], offset: int, is_on_log: IsOnLog) -> str | None:
        """Count the rows before ``offset`` as told; return the id of the last entry of them."""
        self._is_on_log = is_on_log
        last: str | None = None
        while (at := self.next_row) != NO_ROW and self._index.offsets[at] < offset:
            if self._index.fates[at] == Fate.ENTRY:
                self._settle(file, self._places.n_placed, at)
                if self._index.offsets[at] >= self._start:
                    last = self._id(at)
            self._step(at)
        return last

    def ready(self, file: IO[bytes], is_on_log: IsOnLog, *, is_quiet: bool) -> Iterator[list[Item]]:
        """Yield what each row became that nothing after it changes; a row's entries at once."""
        self._is_on_log = is_on_log
        while (at := self.next_row) != NO_ROW:
            if self._index.fates[at] != Fate.ENTRY:
                items: list[Item] = [self._skipped(file, at)]
            else:
                node = self._places.n_placed
                if not is_quiet and self._waits(file, node, at):
                    return
                items = list(self._told(file, node, at))
            self._step(at)
            for item in items:
                self.report.add(item)
            yield items

    def _step(self, at: int) -> None:
        self._n_told += 1
        self._index.told[self._thread] = at + 1

    def _told(self, file: IO[bytes], node: int, at: int) -> Iterator[Item]:
        self._settle(file, node, at)
        number = self._index.numbers[at]
        n_entries = 0
        for entry in self._entries(file, at, node, self._places.lineage):
            n_entries += 1
            yield Imported(entry, number)
        self.report.add_row(n_entries)

    def _waits(self, file: IO[bytes], node: int, at: int) -> bool:
        places = self._places
        if places.n_known - node > MAX_HELD:
            return False
        if self._index.open_groups.get(self._thread) == at:
            return True
        native = self._native(at, self._missing)
        if native <= MISSING:
            return not self._is_on_log(self._named(file, at))
        if not places.is_moved(node):
            return False
        later = (self._index.voices[self._nodes[each]] for each in range(node, len(self._nodes)))
        return all(voice == Voice.PASSIVE for voice in later)

    def _settle(self, file: IO[bytes], node: int, at: int) -> None:
        """Place a node for good, below an entry of the log if that is the parent it names."""
        places = self._places
        if self._first_own == NO_ROW and at not in self._index.copies:
            self._first_own = at
        native = self._native(at, self._missing)
        if native <= MISSING and self._is_on_log(parent := self._named(file, at)):
            native = BEFORE
            if places.leads(node) or node == 0:
                native = ROOT
                is_behind = not places.leads(node) and self._carried_tip is not None
                self._outer[node] = (is_behind and self._carried_tip) or parent
        places.name(node, native)
        places.place()

    def _parent_id(self, node: int, lineage: Lineage) -> str | None:
        above = lineage.parents[node]
        if above == ROOT:
            at = self._nodes[node]
            carried = self._carried_tip if self._index.parent_kinds[at] == IS_LINEAR else None
            return self._outer.get(node, carried)
        parent = self._id(self._nodes[above])
        is_told = self._index.offsets[self._nodes[above]] >= self._start
        return parent if is_told or self._is_on_log(parent) else None

    def _named(self, file: IO[bytes], at: int) -> str:
        row = self._read(file, at)
        parent = named(row) if row is not None else None
        return parent if isinstance(parent, str) else ""
