"""A transcript file as entries: two passes, the content of one row at a time.

Pass one keeps, for each row, its place, its id, its parent and what becomes of it: about 150
bytes, whatever the row holds. Then the chain is known (``lineage``), late parents and rows that
belong together included. Pass two reads each row again and gives its entries.
"""

import hashlib
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path
from sys import intern
from typing import IO, Final

import msgspec
from msgspec import UNSET
from ombus_schemas.entries import SCHEMA_VERSION, Entry, Message
from ombus_schemas.jsontext import JsonObject, JsonValue

from ombus.importers.canonical import (
    Draft,
    Fate,
    Format,
    Imported,
    Item,
    Linear,
    Mark,
    Report,
    Skipped,
)
from ombus.importers.instants import instant
from ombus.importers.lineage import BEFORE, MISSING, ROOT, Lineage, lineage_of
from ombus.importers.lines import BadRow, Row, open_utf8, read_row

_ID: Final = re.compile(r"[!-~]{1,200}")
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._:-]")
_MAX_SESSION_ID: Final = 128
_PARENT_KEYS: Final = ("parentId", "parentUuid", "logicalParentUuid", "cause")
_NO_ROW: Final = -1
_MAX_REASONS: Final = 1_000
_OTHER_REASON: Final = "of another kind"
_ROOT_ROW, _BEFORE_ROW = -2, -3
_IS_LINEAR, _IS_ROOT, _IS_NAMED = 0, 1, 2


class Index:
    """Pass one over a file: columns by row, and what the format learned."""

    def __init__(self, native: Format, identity: bytes | None = None) -> None:
        self.native = native
        self.identity = identity
        """The bytes a session without id is named by: its document, else its first row."""
        self.numbers = array("Q")
        self.offsets = array("Q")
        self.sizes = array("q")
        self.unended = -1
        self.fates = bytearray()
        self.voices = bytearray()
        self.threads = array("i")
        self.parent_kinds = bytearray()
        self.parent_keys = array("Q")
        self.primaries = array("q")
        self.reasons = array("H")
        self.thread_names: list[str] = []
        self.reason_texts: list[str] = []
        self.row_by_id: dict[int, int] = {}
        self.members: dict[int, list[int]] = {}
        self.tool_names: dict[int, str] = {}
        self._id_text = bytearray()
        self._id_ends = array("Q")
        self._row_by_group: dict[int, int] = {}
        self._reason_numbers: dict[str, int] = {}
        self._thread_numbers: dict[str, int] = {}

    def read(self, file: IO[bytes], rows: Iterable[Row]) -> None:
        """Mark every row; a row that cannot be read or marked is bad, and no more than that."""
        thread = _NO_ROW
        for row in rows:
            if self.identity is None and row.size > 0:
                file.seek(row.offset)
                self.identity = file.read(min(row.size, 65_536))
            mark = _mark(file, row, self.native)
            if mark.fate in (Fate.ENTRY, Fate.MERGED) or mark.id is not None:
                thread = self._thread(mark.thread)
            self._append(row, mark, thread)
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
        return self.resolve(thread, _key(f"{thread}\0{native_id}"))

    def resolve(self, thread: int, key: int) -> int:
        """Return the row that stands for the named parent; rows left out stand for theirs."""
        passed: list[int] = []
        while (at := self.row_by_id.get(key, _NO_ROW)) >= 0 and self.fates[at] == Fate.LEFT_OUT:
            passed.append(at)
            if self.parent_kinds[at] != _IS_NAMED or len(passed) > len(self.numbers):
                return _ROOT_ROW if self.parent_kinds[at] == _IS_ROOT else _BEFORE_ROW
            key = self.parent_keys[at]
        for row in passed:
            self.parent_keys[row] = key
        return self.primaries[at] if at >= 0 else _NO_ROW

    def _append(self, row: Row, mark: Mark, thread: int) -> None:
        at = len(self.numbers)
        fate, primary = mark.fate, at
        key = 0
        if mark.id is not None and fate in (Fate.ENTRY, Fate.LEFT_OUT):
            key = _key(f"{thread}\0{mark.id}")
            if key in self.row_by_id:
                fate = Fate.DUPLICATE if fate == Fate.ENTRY else fate
            else:
                self.row_by_id[key] = at
        if fate == Fate.ENTRY and mark.group is not None:
            group = _key(f"{thread}\0{mark.group}")
            primary = self._row_by_group.setdefault(group, at)
            if primary != at:
                fate = Fate.MERGED
                self.members.setdefault(primary, []).append(at)
        for call_id, name in mark.calls:
            self.tool_names.setdefault(_key(call_id), intern(name))
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
        kind = _IS_LINEAR
        parent = mark.parent
        if parent is None:
            kind = _IS_ROOT
        elif not isinstance(parent, Linear):
            kind = _IS_NAMED
        self.parent_kinds.append(kind)
        self.parent_keys.append(_key(f"{thread}\0{parent}") if isinstance(parent, str) else 0)
        if mark.id is not None and fate in (Fate.ENTRY, Fate.DUPLICATE):
            self._id_text += mark.id.encode("utf-8", "replace")
        self._id_ends.append(len(self._id_text))

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


class Transcript:
    """One session of a transcript file. Iterating reads the file; ``report`` is complete then."""

    def __init__(
        self, path: Path, index: Index, thread: int, *, tenant: str, session: str, part_of: str
    ) -> None:
        self.path = path
        self.format = index.native.name
        self.tenant_id = tenant
        self.session_id = session
        self.report = Report()
        self._index = index
        self._thread = thread
        self._part_of = part_of
        self._rows = array("q", (at for at, of in enumerate(index.threads) if of == thread))
        self._nodes = array("q", (at for at in self._rows if index.fates[at] == Fate.ENTRY))
        self._lineage: Lineage | None = None

    @property
    def n_rows(self) -> int:
        """Rows of this session in the file, readable or not."""
        return len(self._rows)

    def __iter__(self) -> Iterator[Item]:
        self.report = Report()
        lineage = self._resolved()
        self.report.forks = lineage.forks
        self.report.missing_parents = len(lineage.missing)
        node = 0
        with open_utf8(self.path) as file:
            for at in self._rows:
                if self._index.fates[at] != Fate.ENTRY:
                    skipped = self._skipped(file, at)
                    self.report.add(skipped)
                    yield skipped
                    continue
                entries = list(self._entries(file, at, node, lineage))
                node += 1
                number = self._index.numbers[at]
                if not entries:
                    skipped = Skipped(number, "the file changed while it was read")
                    self.report.add(skipped)
                    yield skipped
                    continue
                self.report.add_row(len(entries))
                for entry in entries:
                    item = Imported(entry, number)
                    self.report.add(item)
                    yield item

    def tool_name(self, call_id: str) -> str | None:
        return self._index.tool_names.get(_key(call_id))

    def entry_id(self, native_id: str) -> str:
        """Return the entry id of a native one; an id the session does not have stays itself."""
        at = self._index.row_of(self._thread, native_id)
        return self._id(at) if at >= 0 else native_id

    def _resolved(self) -> Lineage:
        if self._lineage is None:
            index, nodes = self._index, self._nodes
            missing: dict[int, int] = {}
            natives = array("q")
            for at in nodes:
                kind, key = index.parent_kinds[at], index.parent_keys[at]
                native = BEFORE if kind == _IS_LINEAR else ROOT
                if kind == _IS_NAMED:
                    row = index.resolve(self._thread, key)
                    if row >= 0:
                        native = bisect_left(nodes, row)
                    elif row == _NO_ROW:
                        native = missing.setdefault(key, MISSING - len(missing))
                    else:
                        native = ROOT if row == _ROOT_ROW else BEFORE
                natives.append(native)
            voices = bytes(index.voices[at] for at in nodes)
            self._lineage = lineage_of(natives, voices)
        return self._lineage

    def _skipped(self, file: IO[bytes], at: int) -> Skipped:
        index = self._index
        number = index.numbers[at]
        match index.fates[at]:
            case Fate.DUPLICATE:
                return Skipped(number, f"id {index.native_id(at)} came before", "duplicate")
            case Fate.MERGED:
                primary = index.primaries[at]
                reason = index.reason_texts[index.reasons[at]]
                if primary != at:
                    reason = f"part of the message at {index.numbers[primary]}"
                return Skipped(number, reason, "merged")
            case Fate.LEFT_OUT:
                return Skipped(number, index.reason_texts[index.reasons[at]], "left_out")
            case _:
                try:
                    read_row(file, index.row(at))
                except BadRow as error:
                    return Skipped(number, str(error))
                return Skipped(number, index.reason_texts[index.reasons[at]])

    def _entries(self, file: IO[bytes], at: int, node: int, lineage: Lineage) -> Iterator[Entry]:
        index = self._index
        members = [at, *index.members.get(at, ())]
        rows = [row for member in members if (row := self._read(file, member)) is not None]
        if not rows:
            return
        drafts = index.native.drafts(rows, index.numbers[at], self) or [Draft(kind="metadata")]
        entry_id = self._id(at)
        above = lineage.parents[node]
        parent_id = None if above == ROOT else self._id(self._nodes[above])
        notes: JsonObject = {}
        if node in lineage.missing or node in lineage.rehung:
            named = next((rows[0][key] for key in _PARENT_KEYS if rows[0].get(key)), None)
            notes["missingParent" if node in lineage.missing else "namedParent"] = named
        if node == 0:
            facts = index.native.facts(index.thread_names[self._thread])
            if self._part_of:
                facts = {**facts, "parentSession": self._part_of}
            if facts:
                notes["session"] = facts
        for piece, draft in enumerate(drafts, start=1):
            own_id = entry_id if piece == len(drafts) else self._free(f"{entry_id}.{piece}")
            yield self._entry(draft, own_id, parent_id, at, notes)
            parent_id, notes = own_id, {}

    def _entry(
        self, draft: Draft, entry_id: str, parent_id: str | None, at: int, notes: JsonObject
    ) -> Entry:
        if draft.verbatim is not None:
            return self._own(draft.verbatim, parent_id, notes)
        timestamp, quality = instant(draft.timestamp)
        native: JsonObject = {
            "format": self.format,
            "type": draft.native_type,
            "line": self._index.numbers[at],
        }
        version = self._index.native.version()
        if version is not None:
            native["version"] = version
        metadata: JsonObject = {"native": native, **draft.metadata, **notes}
        if draft.rule:
            metadata["originRule"] = draft.rule
        if quality != "native":
            metadata["timestampQuality"] = quality
        message = None
        if draft.role:
            message = Message(
                role=draft.role,
                content=list(draft.content),
                id=draft.message_id,
                metadata=draft.message_metadata or None,
            )
        return Entry(
            id=entry_id,
            session_id=self.session_id,
            tenant_id=self.tenant_id,
            parent_id=parent_id,
            timestamp=timestamp,
            kind=draft.kind,
            schema_version=SCHEMA_VERSION,
            message=message,
            data=self._bounded(draft, parent_id),
            summary=draft.summary,
            label=draft.label,
            model=draft.model,
            metadata=metadata,
            origin=draft.origin,
        )

    def _own(self, entry: Entry, parent_id: str | None, notes: JsonObject) -> Entry:
        """Return an entry of ours for this session; only a parent that is lost is replaced."""
        entry = msgspec.structs.replace(entry, session_id=self.session_id, tenant_id=self.tenant_id)
        if entry.side or ("missingParent" not in notes and entry.parent_id is not UNSET):
            return entry
        metadata = entry.metadata
        if "missingParent" in notes:
            metadata = {**(metadata or {}), "missingParent": notes["missingParent"]}
        return msgspec.structs.replace(entry, parent_id=parent_id, metadata=metadata)

    def _bounded(self, draft: Draft, parent_id: str | None) -> JsonValue:
        """Return the draft's data, with the last entry a compaction summarises, if there is one."""
        boundary, data = draft.boundary, draft.data
        if boundary is None or not isinstance(data, dict):
            return data
        through: str | None = parent_id
        if boundary.first_kept_id is not None:
            through = self._before(self._index.row_of(self._thread, boundary.first_kept_id))
        elif boundary.first_kept_index is not None:
            readable = (at for at in self._rows if self._index.fates[at] != Fate.BAD)
            kept = next(
                (at for n, at in enumerate(readable) if n == boundary.first_kept_index), _NO_ROW
            )
            through = self._before(kept)
        return data if through is None else {"throughEntryId": through, **data}

    def _before(self, at: int) -> str | None:
        """Return the id of the entry that the entry of row ``at`` hangs on."""
        if at < 0 or self._index.fates[at] != Fate.ENTRY:
            return None
        above = self._resolved().parents[bisect_left(self._nodes, at)]
        return None if above == ROOT else self._id(self._nodes[above])

    def _read(self, file: IO[bytes], at: int) -> JsonObject | None:
        try:
            value = read_row(file, self._index.row(at))
        except BadRow:
            return None
        return value if isinstance(value, dict) else None

    def _id(self, at: int) -> str:
        native = self._index.native_id(at)
        if _ID.fullmatch(native) and not native.startswith("om:"):
            return native
        return self._free(f"L{self._index.numbers[at]}")

    def _free(self, entry_id: str) -> str:
        """Return ``entry_id``, or a variant of it, that is no native id of the session."""
        entry_id = entry_id if len(entry_id) <= 200 else _key_text(entry_id)
        while _key(f"{self._thread}\0{entry_id}") in self._index.row_by_id:
            entry_id += "~"
        return entry_id


def transcripts_of(
    path: Path, index: Index, *, tenant: str, session: str | None
) -> Iterator[Transcript]:
    """Yield the sessions of one indexed file: the main one, then its sub-agents."""
    native = index.native
    main = ""
    for thread, name in enumerate(index.thread_names):
        named = native.session_id(name)
        if session is not None:
            own = fit(f"{session}:{name}") if main else session
        else:
            own = fit(named) if named else unnamed(path, index, name)
        main = main or own
        part_of = ""
        if native.threads_are == "sub_agents" and name:
            # The file of one sub-agent alone names its parent's session, too.
            part_of = session or fit(native.session_id("") or main)
        yield Transcript(path, index, thread, tenant=tenant, session=own, part_of=part_of)


def fit(native: str) -> str:
    """Return a session id of the wire's grammar; one that had to change ends in its hash."""
    clean = _UNFIT.sub("-", native)
    if clean == native and 0 < len(clean) <= _MAX_SESSION_ID:
        return clean
    mark = hashlib.sha256(native.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{clean[: _MAX_SESSION_ID - 9]}-{mark}"


def unnamed(path: Path, index: Index, thread: str = "") -> str:
    """Return the session id of a file that names none: its own name and its first row's hash."""
    mark = hashlib.sha256(index.identity or b"").hexdigest()[:8]
    return fit(f"{path.stem[:90]}-{mark}" + (f":{thread}" if thread else ""))


def _mark(file: IO[bytes], row: Row, native: Format) -> Mark:
    try:
        value = read_row(file, row)
    except BadRow:
        return Mark(fate=Fate.BAD)
    if not isinstance(value, dict):
        return Mark(fate=Fate.BAD, reason="not an object")
    return native.mark(value, row.number)


def _key(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def _key_text(text: str) -> str:
    return "h:" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
