"""Transcript files onto the log: each session once, whatever was imported before.

The log is append-only, so what the session holds already is left out before the append: the state
is caught up first, then every id is looked up in it. Equal entries count as duplicates, other
content under a known id is a conflict and stays off the log.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import UNSET
from ombus_schemas.admission import admit
from ombus_schemas.entries import Entry
from ombus_schemas.errors import Rejected
from ombus_schemas.ids import session_key
from ombus_streams.memory.rows import Overlay
from ombus_streams.memory.session import Session
from ombus_streams.memory.tree import known_as

from ombus.importers import Imported, Transcript, open_transcripts
from ombus.operator.control import open_session
from ombus.operator.desk import Desk

BATCH: Final = 200
MAX_LISTED: Final = 1_000
"""Lines and conflicts a report lists one by one; the counts go on."""

Tell = Callable[[int, int], None]
"""Told how many rows of how many are done."""


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
    tell: Tell = lambda done, total: None,
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


def _take_in(desk: Desk, transcript: Transcript, tell: Tell) -> Intake:
    key = session_key(transcript.tenant_id, transcript.session_id)
    desk.catch_up([desk.engine.log.partition_of(key)])
    policy = desk.policy("importer")
    skipped: list[Line] = []
    conflicts: list[Conflict] = []
    n_refused = n_duplicates = n_conflicts = n_entries = 0
    batch: list[Entry] = []
    tip: str | None = None
    position: str | None = None
    is_open = False

    def send() -> None:
        nonlocal is_open, n_entries, position
        if not batch:
            return
        if not is_open:
            # Before the first new entry, so that what it says holds from there on.
            open_session(desk, key)
            is_open = True
        position = str(desk.append(batch)[-1])
        n_entries += len(batch)
        batch.clear()

    with desk.engine.state.snapshot(desk.engine.log.partition_of(key)) as rows:
        known = Session(key, Overlay(rows))
        for item in transcript:
            if not isinstance(item, Imported):
                if item.cause == "bad" and len(skipped) < MAX_LISTED:
                    skipped.append(Line(item.line, item.reason))
                continue
            tell(transcript.report.lines, transcript.n_rows)
            entry = item.entry
            if entry.parent_id is UNSET:
                entry = msgspec.structs.replace(entry, parent_id=tip)
            try:
                entry = admit(entry, policy)
            except Rejected as error:
                n_refused += 1
                if len(skipped) < MAX_LISTED:
                    skipped.append(Line(item.line, str(error)))
                continue
            tip = tip if entry.side else entry.id
            match known_as(known, entry):
                case "new":
                    batch.append(entry)
                    if len(batch) == BATCH:
                        send()
                case "same":
                    n_duplicates += 1
                case "other":
                    n_conflicts += 1
                    if len(conflicts) < MAX_LISTED:
                        conflicts.append(Conflict(item.line, entry.id))
    send()
    tell(transcript.n_rows, transcript.n_rows)
    report = transcript.report
    return Intake(
        file=str(transcript.path),
        format=transcript.format,
        session=key.decode(),
        lines=report.lines,
        entries=n_entries,
        duplicates=n_duplicates,
        repeated=report.duplicates,
        merged=report.merged,
        left_out=report.n_left_out,
        n_skipped=report.n_skipped + n_refused,
        skipped=tuple(sorted(skipped, key=lambda each: each.line)),
        n_conflicts=n_conflicts,
        conflicts=tuple(conflicts),
        position=position,
    )
