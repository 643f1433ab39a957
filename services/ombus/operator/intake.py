"""Transcript files onto the log: each session once, whatever was imported before.

The log is append-only, so what the session holds already is left out before the append: the state
is caught up first, then every id is looked up in it. Equal entries count as duplicates, other
content under a known id is a conflict and stays off the log.
"""

import hashlib
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
from msgspec import UNSET
from ombus_schemas.admission import admit
from ombus_schemas.codec import encode
from ombus_schemas.control import SettingsChanged, SourcesLinked
from ombus_schemas.entries import Entry
from ombus_schemas.errors import Rejected
from ombus_schemas.facts import fact_of
from ombus_schemas.ids import session_key
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.rows import Overlay
from ombus_streams.memory.session import Session
from ombus_streams.memory.tree import known_as

from ombus.importers import Imported, Transcript, open_transcripts
from ombus.memory_settings import giving_only_to, workspaces_of
from ombus.operator.control import open_session
from ombus.operator.desk import Desk
from ombus.operator.progress import Tell, untold

BATCH: Final = 200
BATCH_BYTES: Final = 4 * 1024 * 1024
"""Entries appended at once, and about how many bytes of them are held before."""
MAX_LISTED: Final = 1_000
"""Lines and conflicts a report lists one by one; the counts go on."""


class Line(msgspec.Struct, frozen=True):
    """A row that gave no entry, and why."""

    line: int
    reason: str


class Conflict(msgspec.Struct, frozen=True):
    """An id the session knows with other content."""

    line: int
    id: str


class Intake(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of one session of one file."""

    file: str
    format: str
    session: str
    """``tenant/session``."""
    lines: int
    entries: int
    """Appended now."""
    duplicates: int
    """On the log already, with the same content."""
    repeated: int
    """Lines whose id came before in the file."""
    merged: int
    """Lines that are part of another line's entry."""
    left_out: int
    """Lines in which nothing was said or done."""
    n_skipped: int
    skipped: tuple[Line, ...]
    """Lines that cannot be read or are refused; the first ones."""
    n_conflicts: int
    conflicts: tuple[Conflict, ...]
    position: str | None
    """Of the last appended entry."""


def import_file(
    desk: Desk,
    path: Path,
    session: str | None = None,
    format: str | None = None,
    tell: Tell = untold,
) -> Iterator[Intake]:
    """Append what is new in ``path`` and yield a report for each session in it.

    Raises:
        OSError: the file cannot be read.
        ValueError: nobody knows ``format``.
        Unanswered: whoever folds did not get on.
    """
    transcripts = open_transcripts(
        path, tenant=desk.settings.tenant, session=session, format=format
    )
    for transcript in transcripts:
        yield _take_in(desk, transcript, tell)


class Taker:
    """Takes entries of one session, in order, and appends those that the log has not.

    A context: what is known is what was folded when it was entered. ``renames`` (for files that
    are rewritten while they are followed): other content under an id that only counts rows is not
    left out, but gets an id of its own, and what hangs on it follows.
    """

    def __init__(self, desk: Desk, key: bytes, *, renames: bool = False) -> None:
        self._desk, self._key, self._renames = desk, key, renames
        self._policy = desk.policy("importer")
        self._opened = ExitStack()
        self._batch: list[Entry] = []
        self._n_bytes = 0
        self._is_open = False
        self.renamed: dict[str, str] = {}
        self.tip: str | None = None
        """The last chain entry that was offered, under the id it has on the log."""
        self.position: str | None = None
        self.skipped: list[Line] = []
        self.conflicts: list[Conflict] = []
        self.n_entries = self.n_duplicates = self.n_refused = self.n_conflicts = 0

    def __enter__(self) -> Self:
        partition = self._desk.engine.log.partition_of(self._key)
        rows = self._opened.enter_context(self._desk.engine.state.snapshot(partition))
        self._known = Session(self._key, Overlay(rows))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.close()

    @property
    def is_full(self) -> bool:
        return len(self._batch) >= BATCH or self._n_bytes >= BATCH_BYTES

    def holds(self, entry_id: str) -> bool:
        """Say whether the session has an entry with this id on its chains."""
        place = self._known.place_of(entry_id)
        return place is not None and place.place == "chain"

    def skip(self, line: int, reason: str) -> None:
        """Note a row that gave no entry."""
        if len(self.skipped) < MAX_LISTED:
            self.skipped.append(Line(line, reason))

    def offer(self, entry: Entry, line: int) -> None:
        """Keep an entry to be sent unless the log has it or may not have it."""
        if entry.parent_id is UNSET:
            entry = msgspec.structs.replace(entry, parent_id=self.tip)
        elif entry.parent_id in self.renamed:
            entry = msgspec.structs.replace(entry, parent_id=self.renamed[entry.parent_id])
        try:
            entry = admit(entry, self._policy)
        except Rejected as error:
            self.n_refused += 1
            self.skip(line, str(error))
            return
        known = known_as(self._known, entry)
        if known != "same":
            heard = self._of_this_host(entry, line)
            if heard is None:
                return
            if heard is not entry:
                entry, known = heard, known_as(self._known, heard)
        if known == "other" and self._renames and _COUNTED.fullmatch(entry.id):
            own = f"{entry.id}~{_mark(entry)}"
            self.renamed[entry.id] = own
            entry = msgspec.structs.replace(entry, id=own)
            known = known_as(self._known, entry)
        self.tip = self.tip if entry.side else entry.id
        match known:
            case "new":
                self._batch.append(entry)
                self._n_bytes += len(encode(entry))
            case "same":
                self.n_duplicates += 1
            case "other":
                self.n_conflicts += 1
                if len(self.conflicts) < MAX_LISTED:
                    self.conflicts.append(Conflict(line, entry.id))

    def _of_this_host(self, entry: Entry, line: int) -> Entry | None:
        """Return ``entry`` as it may speak here: a file sends nothing to a session of this host.

        Settings lose a funnel that the settings files here do not name, a link to copies in such a
        workspace is refused. What the log has already has been judged before.
        """
        allowed = workspaces_of(self._desk.settings.memory_said)
        match fact_of(entry):
            case SourcesLinked(target_session_id=target) if target not in allowed:
                self.n_refused += 1
                self.skip(line, f"links copies in {target}, which is no funnel.workspace here")
                return None
            case SettingsChanged(settings=said) if workspaces_of(said) - allowed:
                named = ", ".join(sorted(workspaces_of(said) - allowed))
                self.skip(line, f"its funnel.workspace {named} is left out: set it here to keep it")
                assert isinstance(entry.data, dict)
                data: JsonObject = {**entry.data, "settings": giving_only_to(said, allowed)}
                return msgspec.structs.replace(entry, data=data)
            case _:
                return entry

    def send(self) -> None:
        """Append what is kept; durable once this returns."""
        if not self._batch:
            return
        if not self._is_open:
            # Before the first new entry, so that what it says holds from there on.
            open_session(self._desk, self._key)
            self._is_open = True
        self.position = str(self._desk.append(self._batch)[-1])
        self.n_entries += len(self._batch)
        self._batch.clear()
        self._n_bytes = 0


_COUNTED: Final = re.compile(r"L[0-9]+(?:\.[0-9]+)?")
"""Ids that importers make of a row's number."""


def _mark(entry: Entry) -> str:
    content = msgspec.structs.replace(entry, parent_id=None, timestamp="")
    return hashlib.sha256(encode(content)).hexdigest()[:8]


def _take_in(desk: Desk, transcript: Transcript, tell: Tell) -> Intake:
    key = session_key(transcript.tenant_id, transcript.session_id)
    desk.catch_up([desk.engine.log.partition_of(key)])
    with Taker(desk, key) as taker:
        for item in transcript:
            if not isinstance(item, Imported):
                if item.cause == "bad":
                    taker.skip(item.line, item.reason)
                continue
            tell(transcript.report.lines, transcript.n_rows)
            taker.offer(item.entry, item.line)
            if taker.is_full:
                taker.send()
        taker.send()
    tell(transcript.n_rows, transcript.n_rows)
    report = transcript.report
    return Intake(
        file=str(transcript.path),
        format=transcript.format,
        session=key.decode(),
        lines=report.lines,
        entries=taker.n_entries,
        duplicates=taker.n_duplicates,
        repeated=report.duplicates,
        merged=report.merged,
        left_out=report.n_left_out,
        n_skipped=report.n_skipped + taker.n_refused,
        skipped=tuple(sorted(taker.skipped, key=lambda each: each.line)),
        n_conflicts=taker.n_conflicts,
        conflicts=tuple(taker.conflicts),
        position=taker.position,
    )
