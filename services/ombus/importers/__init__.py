"""Transcripts of other tools become entries; one module per format, over one canonical form.

for transcript in open_transcripts(path, tenant="acme"):
    for item in transcript:     # Imported(entry, line) or Skipped(line, reason, cause)
        ...
    transcript.report           # counts: complete now
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Final

from ombus_schemas.jsontext import JsonObject

from ombus.importers.canonical import Format, Imported, Item, Report, Skipped
from ombus.importers.claude_code import AnthropicWeb, ClaudeCode
from ombus.importers.codex import Codex
from ombus.importers.detect import FORMATS, Detected, FormatName, Layout, detect
from ombus.importers.documents import Document, read_document
from ombus.importers.dumps import Messages
from ombus.importers.forked import ancestor_of
from ombus.importers.gemini import Gemini
from ombus.importers.index import Index
from ombus.importers.lines import Row, open_utf8, rows_of
from ombus.importers.ombus_jsonl import OmbusJsonl
from ombus.importers.openhands import OpenHands
from ombus.importers.pi import Pi
from ombus.importers.prism import Prism
from ombus.importers.sweagent import SweAgent
from ombus.importers.transcript import Transcript, fit, transcripts_of

__all__ = [
    "FORMATS",
    "Imported",
    "Item",
    "Report",
    "Skipped",
    "Transcript",
    "format_named",
    "open_transcript",
    "open_transcripts",
]

_LISTS: Final[dict[str, tuple[str, ...]]] = {
    "swe-agent": ("history", "trajectory"),
    "openhands": ("history", ""),
    "anthropic-web": ("loglines", ""),
    "messages": ("messages", "contents", "conversations", "chat_messages", "conversation", ""),
}
"""The list that holds the rows of a document, the preferred one first."""


_OF_ONE: Final = (".json", ".traj")
"""Names of files that hold one document, also where it is one line."""


def open_transcript(
    path: Path | str, *, tenant: str, session: str | None = None, format: str | None = None
) -> Transcript:
    """Return the first session in the file: of most files the only one.

    The sub-agents of old Claude Code files, and runs after the first, are further sessions:
    ``open_transcripts``.
    """
    return next(open_transcripts(path, tenant=tenant, session=session, format=format))


def open_transcripts(
    path: Path | str, *, tenant: str, session: str | None = None, format: str | None = None
) -> Iterator[Transcript]:
    """Yield every session in the file; at least one, also of a file in which nothing is readable.

    ``session`` names the first session instead of the file; ``format`` (one of ``FORMATS``) is
    taken instead of what the content says. A pi file forked from another one that is there is a
    branch of that one's session. Reads the file once here and once per iteration.
    Raises ``OSError`` if the file cannot be read, ``ValueError`` for an unknown ``format``.
    """
    path = Path(path)
    with open_utf8(path) as file:
        found = detect(file)
        if found.layout == "document_a_line" and path.suffix in _OF_ONE and _is_one_line(file):
            # Written anew with more in it, it is still the same session: its first row names it.
            found = Detected(found.name, "one_document")
        if format is not None:
            name = _named(format)
            found = Detected(name, _layout(name, found.layout))
        for n_documents, (native, rows, identity) in enumerate(_sources(file, found), start=1):
            above = ancestor_of(path) if found.name == "pi" and session is None else None
            index = Index(native, identity, above.index if above is not None else None)
            index.read(file, rows)
            own = session
            if session is not None and n_documents > 1:
                own = f"{session}:{n_documents}"
            facts = None
            if above is not None:
                own, facts = fit(above.session_id or path.stem), above.facts
            yield from transcripts_of(path, index, tenant=tenant, session=own, copied_facts=facts)


def _is_one_line(file: IO[bytes]) -> bool:
    return sum(row.size != 0 for row in islice(rows_of(file), 2)) == 1


def _named(format: str) -> FormatName:
    for name in FORMATS:
        if name == format:
            return name
    raise ValueError(f"format {format!r} is unknown: use one of {', '.join(FORMATS)}")


def _layout(name: FormatName, found: Layout) -> Layout:
    if name not in _LISTS:
        return "lines"
    if found == "lines" and name in ("swe-agent", "anthropic-web"):
        return "document_a_line"
    return found


def _sources(
    file: IO[bytes], found: Detected
) -> Iterator[tuple[Format, Iterator[Row] | list[Row], bytes | None]]:
    """Yield each document's format, rows, and the bytes that name it if it names itself not."""
    if found.layout == "lines":
        yield format_named(found.name, {}), rows_of(file), None
        return
    if found.layout == "one_document":
        end = file.seek(0, 2)
        document = read_document(file, 0, end)
        yield format_named(found.name, document.facts), _rows(found, document, Row(1, 0, end)), None
        return
    holders: Iterator[Row] | list[Row] = rows_of(file)
    if found.layout == "document_an_element":
        holders = read_document(file, 0, file.seek(0, 2)).lists.get("", [])
    for holder in holders:
        size = max(holder.size, 0)
        document = read_document(file, holder.offset, holder.offset + size)
        file.seek(holder.offset)
        identity = file.read(min(size, 1024 * 1024))
        yield format_named(found.name, document.facts), _rows(found, document, holder), identity


def _rows(found: Detected, document: Document, holder: Row) -> list[Row]:
    for name in _LISTS[found.name]:
        if name in document.lists:
            return document.lists[name]
    return [holder]


def format_named(name: FormatName, facts: JsonObject) -> Format:
    """Return a reader for one file of the format; ``facts`` are those of its document."""
    match name:
        case "pi":
            return Pi()
        case "claude-code":
            return ClaudeCode()
        case "ombus":
            return OmbusJsonl()
        case "prism":
            return Prism()
        case "codex":
            return Codex()
        case "gemini":
            return Gemini()
        case "swe-agent":
            return SweAgent(facts)
        case "openhands":
            return OpenHands(facts)
        case "anthropic-web":
            return AnthropicWeb()
        case "messages":
            return Messages(facts)
