"""A session as a pi v3 file with pi-OM's ledger in it, so that pi users can take it home.

Ids become pi's eight hex digits, memory ids stay. What only our processors read (bases, requests,
run facts, scopes) stays behind; so do records no branch counts. What was invalidated is left out,
and what may not be read any more keeps its place without its words.
"""

import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import (
    FOLDED,
    OBSERVATIONS_DROPPED,
    Observation,
    Reflection,
    compaction_of,
    observation_of,
    reflection_of,
)
from ombus_streams.memory.ledger import blocks_observation, blocks_reflection
from ombus_streams.memory.render import render_memory
from ombus_streams.memory.session import Session

from ombus.exporters.pi_messages import instant_ms, pi_rows
from ombus.exporters.tree import RECORDS, Knot, knots

VERSION: Final = 3
_NATIVE: Final = re.compile(r"[0-9a-f]{8}")
_OURS_ONLY: Final = frozenset(
    {"type", "base", "through", "seen", "producedBy", "cause", "scopeId", "foldedThrough"}
)
_ITEM_FIELDS: Final = frozenset(
    {
        "id",
        "content",
        "timestamp",
        "relevance",
        "sourceEntryIds",
        "supportingObservationIds",
        "tokenCount",
    }
)
_EPOCH: Final = "1970-01-01T00:00:00.000Z"


class PiExport:
    """Iterating gives the lines, the header first; the counts are complete then."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._invalid = set(session.invalid_from())
        self._withheld = frozenset(
            name for row in session.invalidations() if row.reason != "corrected" for name in row.ids
        )
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._tails: dict[str, str] = {}
        self._tokens: dict[str, int] = {}
        self.n_entries = 0
        """Rows without the header."""
        self.n_left_out = 0
        """Entries that are not there, because only our processors read them."""
        self.n_withheld = 0

    def __iter__(self) -> Iterator[bytes]:
        self.n_entries = self.n_left_out = self.n_withheld = 0
        self._names.clear()
        self._tails.clear()
        self._tokens.clear()
        native = (knot.entry.id for knot in knots(self._session))
        self._taken = {name for name in native if _NATIVE.fullmatch(name)}
        firsts = self._first_kept()
        self._spread()
        yield _line(self._header())
        for knot in knots(self._session):
            before = None if knot.before_id is None else self._tails[knot.before_id]
            held = self._tokens.get(knot.before_id or "", 0)
            self._tokens[knot.entry.id] = held + knot.tokens
            rows = list(self._rows(knot, firsts))
            if not rows:
                self.n_left_out += 1
                if before is not None:
                    self._tails[knot.entry.id] = before
                else:
                    self._tails[knot.entry.id] = ""
                continue
            name = self._name(knot.entry.id)
            for at, row in enumerate(rows, start=1):
                own = name if at == len(rows) else self._name(f"{knot.entry.id}\0{at}")
                timestamp = knot.entry.timestamp
                is_instant = instant_ms(timestamp) is not None
                base: JsonObject = {
                    "type": row["type"],
                    "id": own,
                    "parentId": before or None,
                    "timestamp": timestamp if is_instant else _EPOCH,
                }
                yield _line({**base, **row})
                self.n_entries += 1
                before = own
            self._tails[knot.entry.id] = name

    def _spread(self) -> None:
        """Let what rests on an invalidated source be invalid too, so that nothing rests on it."""
        if not self._invalid:
            return
        for knot in knots(self._session):
            data = knot.entry.data if isinstance(knot.entry.data, dict) else {}
            for holder in (data, data.get("memory")):
                if isinstance(holder, dict):
                    for item in _list(holder.get("observations")):
                        found = observation_of(item)
                        if found is not None and blocks_observation(self._invalid, found):
                            self._invalid.add(found.id)

    def _header(self) -> JsonObject:
        facts: JsonObject = {}
        for knot in knots(self._session):
            said = (knot.entry.metadata or {}).get("session")
            if isinstance(said, dict):
                facts = said
            if not knot.entry.side:
                timestamp = knot.entry.timestamp
                break
        else:
            timestamp = ""
        said_at = facts.get("timestamp", timestamp)
        cwd = facts.get("cwd")
        header: JsonObject = {
            "type": "session",
            "version": VERSION,
            "id": self._session.session_id,
            "timestamp": said_at if isinstance(said_at, str) and said_at else _EPOCH,
            "cwd": cwd if isinstance(cwd, str) else "/",
        }
        return header

    def _first_kept(self) -> dict[str, str]:
        """Return by compaction the first entry that it keeps: the next one after its boundary."""
        boundary: dict[str, str] = {}
        for knot in knots(self._session):
            if knot.entry.kind == "compaction" and knot.is_accepted:
                found = compaction_of(knot.entry)
                if found is not None and found.through_entry_id is not None:
                    boundary[knot.entry.id] = found.through_entry_id
        if not boundary:
            return {}
        wanted = set(boundary.values())
        anchors: dict[str, str] = {}
        firsts: dict[str, str] = {}
        for knot in knots(self._session):
            before = knot.before_id
            anchor = anchors.get(before, before) if before is not None else None
            if knot.entry.side:
                if anchor is not None:
                    anchors[knot.entry.id] = anchor
            elif anchor is not None and anchor in wanted:
                firsts.setdefault(anchor, knot.entry.id)
        return {name: firsts.get(through, through) for name, through in boundary.items()}

    def _rows(self, knot: Knot, firsts: dict[str, str]) -> Iterator[JsonObject]:
        entry = knot.entry
        if not knot.is_accepted:
            return
        if entry.id in self._withheld:
            self.n_withheld += 1
            yield _custom("ombus.withheld", {"reason": "invalidated"})
            return
        name = entry.data_type
        if name in RECORDS and isinstance(entry.data, dict):
            yield _custom(name, self._record(entry.data))
        elif entry.kind == "compaction":
            yield self._compaction(entry, firsts)
        elif name.startswith("om."):
            return
        elif entry.message is not None:
            at_ms = instant_ms(entry.timestamp) or 0
            yield from pi_rows(entry, entry.message, at_ms)
        else:
            yield self._other(entry)

    def _other(self, entry: Entry) -> JsonObject:
        data = entry.data if isinstance(entry.data, dict) else {}
        match entry.kind, entry.data_type:
            case "model_change", _:
                model = entry.model or {}
                return {
                    "type": "model_change",
                    "provider": str(model.get("provider", "")),
                    "modelId": str(model.get("model", "")),
                }
            case "label", _:
                target = data.get("targetId", entry.parent)
                return {
                    "type": "label",
                    "targetId": self._name(str(target)),
                    "label": entry.label or "",
                }
            case "summary", _:
                left = data.get("fromId")
                return {
                    "type": "branch_summary",
                    "fromId": self._name(left) if isinstance(left, str) else "root",
                    "summary": entry.summary or "",
                }
            case "metadata", "pi.thinking_level_change" | "pi.session_info":
                rest = {key: value for key, value in data.items() if key != "type"}
                return {"type": entry.data_type.removeprefix("pi."), **rest}
            case "custom", "pi.custom":
                return _custom(str(data.get("customType", "")), data.get("data"))
            case _:
                facts: JsonObject = {
                    key: value
                    for key, value in (
                        ("event", entry.event),
                        ("data", entry.data),
                        ("summary", entry.summary),
                        ("label", entry.label),
                    )
                    if value is not None
                }
                return _custom(entry.data_type or f"ombus.{entry.kind}", facts)

    def _record(self, data: JsonObject) -> JsonObject:
        record: JsonObject = {}
        for key, value in data.items():
            if key in _OURS_ONLY:
                continue
            if key == "coversUpToId" and isinstance(value, str):
                value = self._name(value)
            elif key in ("observations", "reflections") and isinstance(value, list):
                value = self._items(value)
            elif key == "observationIds" and data.get("type") == OBSERVATIONS_DROPPED:
                value = value if isinstance(value, list) else []
            record[key] = value
        return record

    def _items(self, items: list[JsonValue]) -> list[JsonValue]:
        """Return the items that may be shown, their sources under pi's ids."""
        kept: list[JsonValue] = []
        for item in items:
            if not isinstance(item, dict):
                continue
            if self._is_hit(item):
                self.n_withheld += 1
                continue
            sources, timestamp = item.get("sourceEntryIds"), item.get("timestamp")
            named: JsonObject = {key: value for key, value in item.items() if key in _ITEM_FIELDS}
            if isinstance(sources, list):
                named["sourceEntryIds"] = [self._name(str(source)) for source in sources]
            if isinstance(timestamp, str):
                named["timestamp"] = _minute(timestamp)
            kept.append(named)
        return kept

    def _is_hit(self, item: JsonObject) -> bool:
        if not self._invalid:
            return False
        found: Observation | Reflection | None = observation_of(item) or reflection_of(item)
        match found:
            case Observation():
                return blocks_observation(self._invalid, found)
            case Reflection():
                return blocks_reflection(self._invalid, found)
            case None:
                return False

    def _compaction(self, entry: Entry, firsts: dict[str, str]) -> JsonObject:
        data = entry.data if isinstance(entry.data, dict) else {}
        metadata = entry.metadata or {}
        row: JsonObject = {
            "type": "compaction",
            "summary": entry.summary or "",
            "tokensBefore": metadata.get("tokensBefore", self._tokens[entry.id]),
            "fromHook": True,
        }
        kept = firsts.get(entry.id)
        if kept is not None:
            row["firstKeptEntryId"] = self._name(kept)
        memory = data.get("memory")
        if isinstance(memory, dict) and memory.get("type") == FOLDED:
            details: JsonObject = dict(memory)
            n_before = self.n_withheld
            for name in ("observations", "reflections"):
                items = memory.get(name)
                if isinstance(items, list):
                    details[name] = self._items(items)
            row["details"] = details
            if self.n_withheld > n_before:
                # The stored text may say what was taken out: it is rendered again.
                row["summary"] = _rendered(details)
        return row

    def _name(self, entry_id: str) -> str:
        """Return pi's id for an entry, the same whenever it is asked for."""
        if _NATIVE.fullmatch(entry_id):
            return entry_id
        found = self._names.get(entry_id)
        n_tries = 0
        while found is None:
            digest = hashlib.sha256(f"{n_tries}:{entry_id}".encode("utf-8", "replace"))
            candidate = digest.hexdigest()[:8]
            n_tries += 1
            if candidate not in self._taken:
                found = candidate
                self._taken.add(found)
                self._names[entry_id] = found
        return found


def export_pi(session: Session) -> PiExport:
    """Return the lines of a session as pi would have written it."""
    return PiExport(session)


def _minute(timestamp: str) -> str:
    """Return an instant as pi-OM writes it; what is none stays."""
    at_ms = instant_ms(timestamp)
    if at_ms is None:
        return timestamp
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M")


def _rendered(details: JsonObject) -> str:
    held = (observation_of(item) for item in _list(details.get("observations")))
    lines = (reflection_of(item) for item in _list(details.get("reflections")))
    return render_memory(
        [item for item in held if item is not None], [item for item in lines if item is not None]
    )


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _custom(kind: str, data: JsonValue) -> JsonObject:
    return {"type": "custom", "customType": kind, "data": data}


def _line(row: JsonObject) -> bytes:
    return msgspec.json.encode(row) + b"\n"
