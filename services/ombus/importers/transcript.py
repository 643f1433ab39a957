"""A transcript file as entries: two passes, the content of one row at a time.

Pass one keeps, for each row, its place, its id, its parent and what becomes of it: about 130
bytes, whatever the row holds. Then the chain is known (``lineage``), late parents and rows that
belong together included. Pass two reads each row again and gives its entries.
"""

import hashlib
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import msgspec
from msgspec import UNSET
from ombus_schemas.entries import SCHEMA_VERSION, Entry, Message
from ombus_schemas.jsontext import JsonObject, JsonValue

from ombus.importers.canonical import (
    Draft,
    Fate,
    Imported,
    Item,
    Report,
    Skipped,
)
from ombus.importers.index import IS_LINEAR, IS_NAMED, NO_ROW, ROOT_ROW, Index, key_of
from ombus.importers.instants import instant
from ombus.importers.lineage import BEFORE, MISSING, ROOT, Lineage, lineage_of
from ombus.importers.lines import BadRow, open_utf8, read_row

_ID: Final = re.compile(r"[!-~]{1,200}")
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._:-]")
_MAX_SESSION_ID: Final = 128
_PARENT_KEYS: Final = ("parentId", "parentUuid", "logicalParentUuid", "cause")


class Transcript:
    """One session of a transcript file. Iterating reads the file; ``report`` is complete then."""

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
    ) -> None:
        self.path = path
        self.format = index.native.name
        self.tenant_id = tenant
        self.session_id = session
        self.report = Report()
        self._index = index
        self._thread = thread
        self._part_of = part_of
        self._rows = array("i", (at for at, of in enumerate(index.threads) if of == thread))
        self._nodes = array("i", (at for at in self._rows if index.fates[at] == Fate.ENTRY))
        self._first_own = next((at for at in self._nodes if at not in index.copies), NO_ROW)
        self._copied_facts = copied_facts
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
        return self._index.tool_names.get(key_of(call_id))

    def entry_id(self, native_id: str) -> str:
        """Return the entry id of a native one; an id the session does not have stays itself."""
        at = self._index.row_of(self._thread, native_id)
        return self._id(at) if at >= 0 else native_id

    def _resolved(self) -> Lineage:
        if self._lineage is None:
            index, nodes = self._index, self._nodes
            missing: dict[int, int] = {}
            natives = array("i", (self._native(at, missing) for at in nodes))
            voices = bytes(index.voices[at] for at in nodes)
            self._lineage = lineage_of(natives, voices)
        return self._lineage

    def _native(self, at: int, missing: dict[int, int]) -> int:
        """Return the node a row says it hangs on, or what else it says (``lineage``)."""
        index = self._index
        kind, key = index.parent_kinds[at], index.parent_keys[at]
        if kind != IS_NAMED:
            return BEFORE if kind == IS_LINEAR else ROOT
        row = index.resolve(self._thread, key)
        if row >= 0:
            return bisect_left(self._nodes, row)
        if row == NO_ROW:
            return missing.setdefault(key, MISSING - len(missing))
        return ROOT if row == ROOT_ROW else BEFORE

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
        parent_id = self._parent_id(node, lineage)
        notes: JsonObject = {}
        if node in lineage.missing or node in lineage.rehung:
            notes["missingParent" if node in lineage.missing else "namedParent"] = named(rows[0])
        if node == 0 or at == self._first_own:
            facts = self._facts(at)
            if facts:
                notes["session"] = facts
        for piece, draft in enumerate(drafts, start=1):
            own_id = entry_id if piece == len(drafts) else self._free(f"{entry_id}.{piece}")
            yield self._entry(draft, own_id, parent_id, at, notes)
            parent_id, notes = own_id, {}

    def _parent_id(self, node: int, lineage: Lineage) -> str | None:
        above = lineage.parents[node]
        return None if above == ROOT else self._id(self._nodes[above])

    def _facts(self, at: int) -> JsonObject:
        """Return what the file says of the session; of a copied row, what the original's says."""
        if at in self._index.copies and self._copied_facts is not None:
            return self._copied_facts
        facts = self._index.native.facts(self._index.thread_names[self._thread])
        return {**facts, "parentSession": self._part_of} if self._part_of else facts

    def _entry(
        self, draft: Draft, entry_id: str, parent_id: str | None, at: int, notes: JsonObject
    ) -> Entry:
        if draft.verbatim is not None:
            return self._own(draft.verbatim, parent_id)
        timestamp, quality = instant(draft.timestamp)
        native: JsonObject = {
            "format": self.format,
            "type": draft.native_type,
            "line": self._index.copies.get(at, self._index.numbers[at]),
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

    def _own(self, entry: Entry, parent_id: str | None) -> Entry:
        """Return an entry of ours for this session. It hangs where it hung: the fold waits for a
        parent that is not there, or gives it up, as it did before.
        """
        own = parent_id if entry.parent_id is UNSET else entry.parent_id
        return msgspec.structs.replace(
            entry, session_id=self.session_id, tenant_id=self.tenant_id, parent_id=own
        )

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
                (at for n, at in enumerate(readable) if n == boundary.first_kept_index), NO_ROW
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
        while key_of(f"{self._thread}\0{entry_id}") in self._index.row_by_id:
            entry_id += "~"
        return entry_id


def transcripts_of(
    path: Path,
    index: Index,
    *,
    tenant: str,
    session: str | None,
    copied_facts: JsonObject | None = None,
) -> Iterator[Transcript]:
    """Yield the sessions of one indexed file: the main one, then its sub-agents."""
    native = index.native
    main = ""
    for thread, name in enumerate(index.thread_names):
        if session is not None:
            own = fit(f"{session}:{name}") if main else session
        else:
            own = own_session(path, index, name)
        main = main or own
        part_of = ""
        if native.threads_are == "sub_agents" and name:
            # The file of one sub-agent alone names its parent's session, too.
            part_of = session or fit(native.session_id("") or main)
        yield Transcript(
            path,
            index,
            thread,
            tenant=tenant,
            session=own,
            part_of=part_of,
            copied_facts=copied_facts,
        )


def named(row: JsonObject) -> JsonValue:
    """Return the parent a row names."""
    return next((row[key] for key in _PARENT_KEYS if row.get(key)), None)


def fit(native: str) -> str:
    """Return a session id of the wire's grammar; one that had to change ends in its hash."""
    clean = _UNFIT.sub("-", native)
    if clean == native and 0 < len(clean) <= _MAX_SESSION_ID:
        return clean
    mark = hashlib.sha256(native.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{clean[: _MAX_SESSION_ID - 9]}-{mark}"


def own_session(path: Path, index: Index, thread: str = "") -> str:
    """Return the session id of a thread of a file: what it says, else what it is called."""
    native = index.native.session_id(thread)
    return fit(native) if native else unnamed(path, index, thread)


def unnamed(path: Path, index: Index, thread: str = "") -> str:
    """Return the session id of a file that names none: its own name and its first row's hash."""
    mark = hashlib.sha256(index.identity or b"").hexdigest()[:8]
    return fit(f"{path.stem[:90]}-{mark}" + (f":{thread}" if thread else ""))


def _key_text(text: str) -> str:
    return "h:" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
