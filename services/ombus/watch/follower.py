"""One file that grows: what was read of it, and how far what it says is on the log."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Final

import msgspec
from ombus_schemas.jsontext import JsonObject

from ombus.importers import format_named
from ombus.importers.canonical import Item
from ombus.importers.forked import ancestor_of
from ombus.importers.growing import GrowingTranscript
from ombus.importers.index import NO_ROW, Index
from ombus.importers.lines import Row, rows_of
from ombus.importers.transcript import fit, own_session
from ombus.watch.content import LOOKED_AT, Held, fingerprint, first_line, is_object
from ombus.watch.positions import Position

MAX_HELD_BYTES: Final = 16 * 1024 * 1024
"""Of rows that wait, what is remembered in case the file is cut before they are told."""
_NAMELESS: Final = ("messages",)
"""Formats whose lines never name a session."""

Holds = Callable[[str, str], bool]
"""Whether a session has an entry with an id on its chains."""


class Follower:
    """Owns the open file. ``position`` is how far it is on the log; the watcher moves it."""

    def __init__(self, file: IO[bytes], position: Position, tenant: str) -> None:
        assert position.format is not None
        self.file, self.position = file, position
        self._source: IO[bytes] = file
        self._tenant = tenant
        self._origin = Path(position.origin)
        self._name = name = position.format
        self._next, self._number = 0, position.base + 1
        self._copied_facts: JsonObject | None = None
        above = ancestor_of(Path(position.path)) if name == "pi" else None
        self._ancestor_session: str | None = None
        if above is not None:
            self._ancestor_session = fit(above.session_id or self._origin.stem)
            self._copied_facts = above.facts
        self._index = Index(
            format_named(name, {}), ancestor=above.index if above is not None else None
        )
        self.transcripts: list[GrowingTranscript] = []
        self.renamed_by_session: dict[str, dict[str, str]] = {}
        self.has_tail = False
        """Whether the file ends in a line that is not complete."""
        self._is_loaded = False
        self._held: Held | None = None

    @property
    def n_rows(self) -> int:
        """Rows in memory: about 130 bytes each."""
        return len(self._index.numbers)

    @property
    def is_waiting(self) -> bool:
        """Whether rows were read that are not told, or a session has no name yet."""
        told = all(each.next_row == NO_ROW for each in self.transcripts)
        return bool(self.n_rows) and not (self.transcripts and told)

    def read(self, holds: Holds, *, is_quiet: bool) -> None:
        """Read the complete lines that are new, and give every session in them its transcript.

        ``is_quiet``: nobody writes any more, so a last line without newline may be complete.
        """
        if not self._is_loaded:
            self._is_loaded = True
            self._take(self._rows(self.position.offset, is_quiet=True))
            self._open(is_quiet=is_quiet or self.position.session is not None)
            for each in self.transcripts:
                self._pass_over(each, holds)
        self._take(self._rows(None, is_quiet=is_quiet))
        self._open(is_quiet=is_quiet)

    def ready(
        self, transcript: GrowingTranscript, holds: Holds, *, is_quiet: bool
    ) -> Iterator[list[Item]]:
        """Yield what the next rows of a session became, a row at a time."""
        session = transcript.session_id
        return transcript.ready(self._source, lambda name: holds(session, name), is_quiet=is_quiet)

    def told(self, tip: str | None) -> Position:
        """Return the position after everything that was told so far."""
        waiting = [each.next_row for each in self.transcripts if each.next_row != NO_ROW]
        offset, line = self._next, self._number
        if waiting or not self.transcripts:
            row = self._index.row(min(waiting)) if waiting else None
            start = self.position
            offset, line = (row.offset, row.number) if row else (start.offset, start.line)
        main = self.transcripts[0].session_id if self.transcripts else self.position.session
        return msgspec.structs.replace(
            self.position,
            session=main,
            offset=offset,
            line=line,
            fingerprint=fingerprint(self.file, offset),
            first=self.position.first or first_line(self.file),
            tip=tip or self.position.tip,
        )

    def told_of_the_cut(self, tip: str | None) -> Position:
        """Return the position after what was remembered: the lines count on from there."""
        tip = tip or self.position.tip
        return msgspec.structs.replace(self.position, line=self._number, tip=tip)

    def remember(self) -> None:
        """Keep the bytes of the rows that wait, for the case that the file is cut."""
        waiting = [each.next_row for each in self.transcripts if each.next_row != NO_ROW]
        self._held = None
        if waiting:
            start = self._index.row(min(waiting)).offset
            if self._next - start <= MAX_HELD_BYTES:
                self.file.seek(start)
                self._held = Held(self.file.read(self._next - start), start)

    def cut(self) -> bool:
        """Go on with the remembered bytes alone; say whether there are any."""
        if self._held is None:
            return False
        self._source = self._held
        return True

    def close(self) -> None:
        self.file.close()

    def _take(self, rows: Iterator[Row]) -> None:
        first = next(rows, None)
        if first is not None:
            self._index.read(self.file, chain((first,), rows))

    def _rows(self, before: int | None, *, is_quiet: bool) -> Iterator[Row]:
        """Yield the complete lines from where reading stopped to the offset ``before``."""
        if self._next and before is None:
            self.file.seek(self._next - 1)
            around = self.file.read(3)
            if around[:1] not in (b"\n", b"") and around[1:2] in (b"\n", b"\r"):
                # The line was taken before its newline was written.
                self._next += 1 if around[1:2] == b"\n" else len(around) - 1
        self.has_tail = False
        for row in rows_of(self.file, start=self._next, number=self._number):
            if before is not None and row.offset >= before:
                return
            if not row.terminated and not (is_quiet and is_object(self.file, row)):
                self.has_tail = True
                return
            self._next, self._number = row.end, row.number + 1
            yield row

    def _open(self, *, is_quiet: bool) -> None:
        """Give each thread of the file a transcript, once the file's session has its name."""
        index, position = self._index, self.position
        if not index.thread_names:
            return
        named = position.session or self._ancestor_session
        if named is None and index.native.session_id(index.thread_names[0]) is None:
            is_decided = is_quiet or self._name in _NAMELESS or self.n_rows >= LOOKED_AT
            if not is_decided:
                return
        main = named or own_session(self._origin, index, index.thread_names[0])
        for thread in range(len(self.transcripts), len(index.thread_names)):
            name = index.thread_names[thread]
            session = main
            if thread:
                native = index.native.session_id(name)
                session = fit(native) if native else fit(f"{main}:{name}")
            part_of = ""
            if index.native.threads_are == "sub_agents" and name:
                part_of = fit(index.native.session_id("") or main)
            self.transcripts.append(
                GrowingTranscript(
                    Path(position.path),
                    index,
                    thread,
                    tenant=self._tenant,
                    session=session,
                    part_of=part_of,
                    copied_facts=self._copied_facts,
                    tip=None if thread else position.above,
                    start=position.start,
                )
            )
        for each in self.transcripts:
            each.grow()

    def _pass_over(self, transcript: GrowingTranscript, holds: Holds) -> None:
        session = transcript.session_id
        last = transcript.pass_over(
            self.file, self.position.offset, lambda name: holds(session, name)
        )
        tip = self.position.tip
        if transcript is self.transcripts[0] and last is not None and tip not in (None, last):
            self.renamed_by_session[session] = {last: tip} if tip else {}
