"""What the tests look at in imported sessions."""

from pathlib import Path

from ombus.importers import Imported, Skipped, Transcript, open_transcript
from ombus_schemas.entries import Entry


def imported(path: Path, **options: str) -> tuple[Transcript, list[Entry], list[Skipped]]:
    """Return the first session of a file, its entries, and what it skipped."""
    transcript = open_transcript(path, tenant="acme", **options)
    return transcript, *parted(transcript)


def parted(transcript: Transcript) -> tuple[list[Entry], list[Skipped]]:
    items = list(transcript)
    entries = [item.entry for item in items if isinstance(item, Imported)]
    return entries, [item for item in items if isinstance(item, Skipped)]


def links(entries: list[Entry]) -> dict[str, str | None]:
    """Return id to parent, in order."""
    return {entry.id: entry.parent for entry in entries}


def chain(entries: list[Entry], leaf: str) -> list[str]:
    """Return the ids from the root to ``leaf``."""
    parents = links(entries)
    ids: list[str] = []
    at: str | None = leaf
    while at is not None:
        ids.append(at)
        at = parents[at]
    return ids[::-1]


def texts(entry: Entry) -> list[str]:
    """Return the texts of an entry's message."""
    assert entry.message is not None
    return [str(block["text"]) for block in entry.message.content if block["type"] == "text"]


def assert_accounted(transcript: Transcript) -> None:
    """Every row is accounted for, exactly once."""
    report = transcript.report
    assert report.lines == transcript.n_rows
    parts = report.imported + report.duplicates + report.merged
    assert report.lines == parts + report.n_skipped + report.n_left_out
    assert report.entries == report.imported + report.extra
