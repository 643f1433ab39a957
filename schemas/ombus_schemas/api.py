"""What the gateway is asked and what it answers, over HTTP: one struct a body.

Additive only, like every wire type: readers pass over fields they do not know. Bodies that the
memory shapes (a recall, a page, a status) travel as the objects that the tools of S14 and S22 give.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from ombus_schemas.control import InvalidationReason
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.limits import MAX_ID_CHARS

ApiRole = Literal["publisher", "reader", "supervisor", "operator"]
"""Publishers append and ask for flushes; readers read; supervisors do both and invalidate;
operators do everything and see what the process counts."""


MAX_ITEMS: Final = 1_000
"""Entries or ids of one request."""

OwnId = Annotated[str, Meta(pattern=rf"^(?!om:)[!-~]{{1,{MAX_ID_CHARS}}}$")]
"""The id of a record that a caller asks for; those of workers begin with ``om:``."""
Seconds = Annotated[float, Meta(ge=0)]


class Api(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A body."""


class AppendRequest(Api, frozen=True, kw_only=True):
    """Entries of one session, in order. Without ``parentId`` one hangs on the one before it."""

    entries: Annotated[tuple[JsonObject, ...], Meta(min_length=1, max_length=MAX_ITEMS)]
    """Entries as the wire has them, or messages (``role``, ``content``). Give ids: then sending
    the same again appends nothing twice."""


class EntryResult(Api, frozen=True, kw_only=True):
    """What became of one entry."""

    id: str
    status: Literal["appended", "duplicate", "rejected", "conflict"]
    """``duplicate``: the session has it already. ``conflict``: it is on the log, but its
    ``expectedLeaf`` was not the leaf any more, so it and its children are no leaves."""
    position: str | None = None
    """Where it lies; of a duplicate a position by which it was folded."""
    code: str | None = None
    detail: str | None = None


class AppendAnswer(Api, frozen=True, kw_only=True):
    """Every entry is on the log (200)."""

    session: str
    results: tuple[EntryResult, ...]
    position: str | None = None
    """The last of them: read with ``atLeast`` to see your own writes."""


class FlushRequest(Api, frozen=True, kw_only=True):
    """Cover, reflect and drop everything up to the leaf."""

    id: OwnId | None = None
    """The id of the request on the log; the same one again asks for the same flush."""
    leaf: str | None = None
    wait_seconds: Seconds = 30.0
    """0 asks only. The answer is ``pending`` when the time is over; the flush goes on."""


class FlushAnswer(Api, frozen=True, kw_only=True):
    """How the flush stands; the counts say what was persisted even if it failed."""

    session: str
    leaf: str
    id: str
    status: Literal["completed", "failed", "pending"]
    position: str
    reason: str | None = None
    observations: int = 0
    reflections: int = 0
    dropped: int = 0


class CompactRequestBody(Api, frozen=True, kw_only=True):
    """Compact the leaf as it stands."""

    id: OwnId | None = None
    leaf: str | None = None
    wait_seconds: Seconds = 30.0
    dry_run: bool = False
    """Append nothing; say what would be folded."""


class CompactAnswer(Api, frozen=True, kw_only=True):
    """How the compaction stands, or with ``dryRun`` what it would come to."""

    session: str
    leaf: str
    id: str | None
    status: Literal["completed", "refused", "pending", "would_compact", "would_refuse"]
    position: str
    reason: str | None = None
    through: str | None = None
    """The last entry the summary stands for."""
    observations: int = 0
    reflections: int = 0
    trimmed: int = 0
    summary_bytes: int = 0


class RunRequest(Api, frozen=True, kw_only=True):
    """A fact about a run of the host's agent."""

    id: OwnId | None = None
    leaf: str | None = None


class InvalidationRequest(Api, frozen=True, kw_only=True):
    """Nothing derived from these ids is shown again, on every leaf, once this is answered."""

    ids: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_ITEMS)]
    reason: InvalidationReason
    hold: bool = False
    id: OwnId | None = None


class FactAnswer(Api, frozen=True, kw_only=True):
    """A fact is on the log, and folded."""

    session: str
    id: str
    position: str


class InvalidationAnswer(FactAnswer, frozen=True, kw_only=True):
    """The invalidation is folded: no read of the session shows what rests on it."""

    hidden: int = 0
    """Observations that are hit, each once over all leaves."""
    unknown: tuple[str, ...] = ()
    """Ids that name nothing yet; an entry that comes under one of them is invalid."""
    followed_in: tuple[str, ...] = ()
    """Sessions that hold copies: the same is invalidated there as soon as it is folded."""


class InvalidationRow(Api, frozen=True, kw_only=True):
    """One invalidation."""

    id: str
    reason: InvalidationReason
    ids: tuple[str, ...]
    hold: bool = False


class SessionSummary(Api, frozen=True, kw_only=True):
    """One session; memory is that of its default leaf."""

    session: str
    entries: int
    branches: int
    observations: int
    reflections: int
    last_at_ms: int
    leaf: str | None = None


class SessionsAnswer(Api, frozen=True, kw_only=True):
    """Sessions the caller may see, in the order of their names."""

    sessions: tuple[SessionSummary, ...]
    next: str | None = None
    """Give it as ``after`` for the rest."""


class Read(Api, frozen=True, kw_only=True):
    """What every read of a leaf says."""

    session: str
    leaf: str
    position: str
    """The first position that is not in the answer; ``asOf`` takes it."""
    hash: str
    """SHA-256 of the answer with ``position`` and this empty: equal while nothing changed."""


class EntriesAnswer(Read, frozen=True, kw_only=True):
    """Chain entries of a leaf, in parent order."""

    entries: tuple[JsonObject, ...]
    next: str | None = None
    """Give it as ``after`` for the rest."""
    withheld: int = 0
    """Entries of this page nobody may read any more."""


class BranchRow(Api, frozen=True, kw_only=True):
    """One leaf that is not in conflict."""

    leaf: str
    is_default: bool
    observations: int
    reflections: int
    pending_sources: int
    compacted_through: str | None = None
    last_at_ms: int = 0


class BranchesAnswer(Read, frozen=True, kw_only=True):
    """The leaves of a session; ``leaf`` is the default one."""

    branches: tuple[BranchRow, ...]


class RebuildAnswer(Read, frozen=True, kw_only=True):
    """What a model is given again (S1): summaries, then messages, calls with their results."""

    messages: tuple[JsonObject, ...]
    summaries: tuple[str, ...]


class ContextBlock(Api, frozen=True, kw_only=True):
    """One block of a prompt."""

    title: str
    content: str
    priority: int


class ContextAnswer(Read, frozen=True, kw_only=True):
    """The blocks an agent reads before it answers."""

    blocks: tuple[ContextBlock, ...]


class InvalidationsAnswer(Read, frozen=True, kw_only=True):
    """What was invalidated in the session, in the order in which it holds; for every leaf."""

    invalidations: tuple[InvalidationRow, ...]


class RecallAnswer(Read, frozen=True, kw_only=True):
    """A memory and its exact sources (S14); ``found`` says whether there is one."""

    recalled: JsonObject


class PageAnswer(Read, frozen=True, kw_only=True):
    """Raw messages around a cursor (S14)."""

    page: JsonObject


class StatusAnswer(Read, frozen=True, kw_only=True):
    """What is recorded, what is pending, who waits (S22)."""

    status: JsonObject


class ViewAnswer(Read, frozen=True, kw_only=True):
    """The memory as a person reads it (S22)."""

    view: JsonObject


class Problem(Api, frozen=True, kw_only=True):
    """Why not (RFC 9457, ``application/problem+json``); ``code`` is stable."""

    type: str
    title: str
    status: int
    code: str
    request_id: str
    detail: str | None = None
    results: tuple[EntryResult, ...] = ()
    """Of an append: what became of each entry. Those that could be taken were."""
    folded: str | None = None
    """Of ``behind``: how far the fold has come."""
    end: str | None = None
    """Of ``behind``, while a partition catches up: how far it has to come."""


class TailEvent(Api, frozen=True, kw_only=True):
    """The data of one ``entry`` event; its id is the position."""

    position: str
    at_ms: int
    id: str
    kind: str
    entry: JsonObject | None = None
    """The entry; absent when nobody may read it any more."""
    withheld: bool = False
