"""The one form every transcript takes on its way to entries (formats.md section 7).

A format reads a row twice. ``mark`` says, without keeping content, what becomes of the row and
where it hangs; ``drafts`` gives the entries it becomes, without ids and parents, which are the
same work for every format (``lineage``, ``transcript``).
"""

from collections import Counter
from enum import IntEnum
from typing import ClassVar, Final, Literal, Protocol

import msgspec
from ombus_schemas.entries import Entry, Origin
from ombus_schemas.jsontext import JsonObject, JsonValue

MAX_LISTED_SKIPS: Final = 1_000
"""Skipped rows a report lists one by one; the rest are counted by reason."""


class Imported(msgspec.Struct, frozen=True):
    """An entry and the row (1-based line, or element of a document) it begins at."""

    entry: Entry
    line: int


Cause = Literal["bad", "duplicate", "merged", "left_out"]


class Skipped(msgspec.Struct, frozen=True):
    """A row that gives no entry of its own, and why."""

    line: int
    reason: str
    cause: Cause = "bad"
    """``bad``: it cannot be read. ``duplicate``: its id came before. ``merged``: its content is
    part of another row's entry. ``left_out``: it holds nothing that was said or done."""


Item = Imported | Skipped


class Fate(IntEnum):
    """What becomes of a row."""

    ENTRY = 0
    BAD = 1
    DUPLICATE = 2
    MERGED = 3
    LEFT_OUT = 4


class Voice(IntEnum):
    """What a row does to the conversation, as far as branches are concerned."""

    PASSIVE = 0
    """It is no turn: a setting, an injected text, a summary."""
    HUMAN = 1
    """The user's own text: the only thing that can open a fork."""
    TURN = 2
    """An assistant message or a tool result."""


class Linear(msgspec.Struct, frozen=True):
    """The parent of a row that names none: the row before it."""


LINEAR: Final = Linear()


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What pass one keeps of a row."""

    fate: Fate = Fate.ENTRY
    reason: str = ""
    """Why the row gives no entry."""
    id: str | None = None
    parent: str | None | Linear = LINEAR
    """A native id, ``None`` for a declared root."""
    voice: Voice = Voice.PASSIVE
    group: str | None = None
    """Rows of one group become one entry, at the place of the first."""
    thread: str = ""
    """The sub-agent the row belongs to; empty = the session itself."""
    calls: tuple[tuple[str, str], ...] = ()
    """Tool call ids with their tool's name, for results that do not repeat it."""


class Boundary(msgspec.Struct, frozen=True, kw_only=True):
    """Where an imported compaction cuts: before the first kept row, else right before itself."""

    first_kept_id: str | None = None
    first_kept_index: int | None = None
    """Position among the readable rows of the file, the header included (pi v1)."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An entry to be, without id and parent."""

    kind: str = "message"
    role: str = ""
    content: tuple[JsonObject, ...] = ()
    origin: Origin | None = None
    rule: str = ""
    """The name of the rule that decided the origin."""
    native_type: str = ""
    timestamp: JsonValue = None
    data: JsonValue = None
    summary: str | None = None
    label: str | None = None
    model: JsonObject | None = None
    message_id: str | None = None
    message_metadata: JsonObject = {}
    metadata: JsonObject = {}
    boundary: Boundary | None = None
    verbatim: Entry | None = None
    """An entry of ours: nothing of it is decided again, its parent least of all."""


class Rows(Protocol):
    """What ``drafts`` may ask about the rest of the session."""

    def tool_name(self, call_id: str) -> str | None: ...

    def entry_id(self, native_id: str) -> str: ...


class Format(Protocol):
    """One transcript format. An instance serves one file, in file order, twice."""

    name: ClassVar[str]
    threads_are: ClassVar[Literal["sub_agents", "sessions"]]

    def mark(self, row: JsonObject, number: int) -> Mark:
        """Say what becomes of ``row``. Total: any object of any shape gets a mark."""
        ...

    def drafts(self, rows: list[JsonObject], number: int, session: Rows) -> list[Draft]:
        """Return the entries of a row (or of a group's rows); the last one carries its id."""
        ...

    def session_id(self, thread: str) -> str | None:
        """Return the native session id, once every row was marked."""
        ...

    def facts(self, thread: str) -> JsonObject:
        """Return what the file says about the session; kept on its first entry."""
        ...

    def version(self) -> JsonValue:
        """Return the version the file claims, or ``None``."""
        ...


class Report:
    """What became of the rows of one transcript; complete when its iteration ended.

    Always: ``lines == imported + duplicates + merged + n_skipped + n_left_out``, and
    ``entries == imported + extra``.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.imported = 0
        """Rows that became entries."""
        self.entries = 0
        self.extra = 0
        """Entries beyond the first of their row: a row of several results, a split text."""
        self.duplicates = 0
        self.merged = 0
        self.n_skipped = 0
        self.n_left_out = 0
        self.skipped: list[tuple[int, str]] = []
        """Bad rows, number and reason, at most ``MAX_LISTED_SKIPS``."""
        self.left_out: Counter[str] = Counter()
        self.by_role: Counter[str] = Counter()
        self.by_kind: Counter[str] = Counter()
        self.by_origin: Counter[str] = Counter()
        self.calls = 0
        self.results = 0
        self.forks = 0
        self.missing_parents = 0

    def add(self, item: Item) -> None:
        """Count ``item``; of the entries of one row the caller counts the row itself."""
        if isinstance(item, Imported):
            self._add_entry(item.entry)
            return
        self.lines += 1
        match item.cause:
            case "bad":
                self.n_skipped += 1
                if len(self.skipped) < MAX_LISTED_SKIPS:
                    self.skipped.append((item.line, item.reason))
            case "duplicate":
                self.duplicates += 1
            case "merged":
                self.merged += 1
            case "left_out":
                self.n_left_out += 1
                self.left_out[item.reason] += 1

    def add_row(self, n_entries: int) -> None:
        """Count a row that became ``n_entries`` entries."""
        self.lines += 1
        self.imported += 1
        self.extra += n_entries - 1

    def _add_entry(self, entry: Entry) -> None:
        self.entries += 1
        self.by_kind[entry.kind] += 1
        if entry.origin is not None:
            self.by_origin[entry.origin] += 1
        if entry.message is None:
            return
        self.by_role[entry.message.role] += 1
        for block in entry.message.content:
            kind = block.get("type")
            self.calls += kind == "tool_call"
            self.results += kind == "tool_result"
