"""The reads: each from the rows of one leaf at one instant, in a thread (design.md section 8)."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec
from ombus_schemas import api
from ombus_schemas.codec import decode
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import compaction_of
from ombus_schemas.redaction import redact
from ombus_streams.memory import reading
from ombus_streams.memory.commands import view_json
from ombus_streams.memory.head import LeafHead
from ombus_streams.memory.pages import page_json
from ombus_streams.memory.pairing import paired
from ombus_streams.memory.recall import recall_json
from ombus_streams.memory.render import render_memory
from ombus_streams.memory.session import Session, chain, is_on
from ombus_streams.memory.shared import SharedMemory
from ombus_streams.runtime.shared_reads import Asking

from ombus.gateway import scoping
from ombus.gateway.calls import Call
from ombus.gateway.limits import Limits
from ombus.gateway.problems import ApiError
from ombus.operator import invalidating
from ombus.operator.desk import Desk
from ombus.operator.errors import NoLeaf
from ombus.operator.lookup import Lens, looking
from ombus.operator.overview import status_of
from ombus.operator.sharing import asking_of
from ombus.operator.withholding import withholding

DEFAULT_PAGE: Final = 100


class Sealed(msgspec.Struct, frozen=True):
    """An answer as bytes, with the position it reflects and the hash of what it says."""

    body: bytes
    position: str
    hash: str


Reader = Callable[[Desk, Lens, Call, Limits], api.Read]
SharedReader = Callable[[Desk, Lens, Call, SharedMemory | None], api.Read]


def read(
    desk: Desk, call: Call, limits: Limits, shared: SharedMemory | None = None
) -> Sealed | Asking:
    """Return the answer to a read; known secrets are taken out of all of it.

    If the leaf declares shared scopes and the read shows them, what must be asked for first is
    returned instead; the same read with ``shared`` is answered.
    """
    name = call.route.name
    with looking(desk, call.key, call.text("leaf"), call.text("asOf")) as lens:
        if name in SHARED_READERS:
            if shared is None and call.text("mode") != "full":
                asking = asking_of(lens, call.path.get("memory"))
                if asking is not None:
                    return asking
            answer = SHARED_READERS[name](desk, lens, call, shared)
        else:
            answer = READERS[name](desk, lens, call, limits)
        return _sealed(answer, str(lens.position), desk.settings.secrets)


def sessions(desk: Desk, call: Call, limits: Limits) -> api.SessionsAnswer:
    """Return a page of the sessions the caller may see."""
    prefix = f"{call.principal.tenant}/".encode()
    after = call.text("after") or ""
    limit = min(call.whole("limit") or DEFAULT_PAGE, limits.max_page)
    keys = [key for key in desk.engine.sessions() if key.startswith(prefix)]
    names = [key[len(prefix) :].decode() for key in keys]
    seen = [name for name in sorted(names) if name > after and call.principal.may_use(name)]
    page = [_summary(desk, prefix + name.encode(), name) for name in seen[:limit]]
    more = len(seen) > limit
    return api.SessionsAnswer(sessions=tuple(page), next=seen[limit - 1] if more else None)


def _sealed(answer: api.Read, position: str, secrets: tuple[str, ...]) -> Sealed:
    raw = msgspec.json.encode(answer)
    if secrets:
        # Decoded once more: a redaction sees what a reader will, lists and not our tuples.
        tree: JsonValue = msgspec.json.decode(raw)
        raw = msgspec.json.encode(redact(tree, secrets, max_depth=None))
    digest = hashlib.sha256(raw).hexdigest()
    sealed = msgspec.json.decode(raw, type=type(answer)) if secrets else answer
    body = msgspec.json.encode(msgspec.structs.replace(sealed, position=position, hash=digest))
    return Sealed(body, position, digest)


def _where(lens: Lens) -> dict[str, str]:
    session = lens.session.session_id
    return {"session": session, "leaf": lens.leaf.tip_id, "position": "", "hash": ""}


def _entries(desk: Desk, lens: Lens, call: Call, limits: Limits) -> api.EntriesAnswer:
    limit = min(call.whole("limit") or DEFAULT_PAGE, limits.max_page)
    after, start = call.text("after"), 0
    if after is not None:
        place = lens.session.place_of(after)
        if (
            place is None
            or place.place != "chain"
            or not is_on(lens.leaf.lineage, place.segment, place.ordinal)
        ):
            raise ApiError("bad_position", "after names no entry of this branch")
        start = place.ordinal
    hidden, found = withholding(lens.session), list[JsonObject]()
    n_seen = n_bytes = withheld = 0
    last: str | None = None
    is_more = False
    for _, row in chain(lens.session, lens.leaf.lineage, start):
        if n_seen == limit or (n_seen and n_bytes + len(row.value) > limits.max_page_bytes):
            is_more = True
            break
        entry = decode(row.value)
        last, n_seen, n_bytes = entry.id, n_seen + 1, n_bytes + len(row.value)
        if hidden.hides(entry):
            withheld += 1
        else:
            found.append(msgspec.json.decode(row.value, type=JsonObject))
    return api.EntriesAnswer(
        **_where(lens), entries=tuple(found), next=last if is_more else None, withheld=withheld
    )


def _branches(desk: Desk, lens: Lens, call: Call, limits: Limits) -> api.BranchesAnswer:
    session = lens.session
    # A leaf folded for this read is none of the session's.
    own = range(1, session.head.n_segments)
    leaves = [session.leaf(segment) for segment in own]
    rows = [_branch(session, leaf) for leaf in leaves if not leaf.conflict and leaf.tip_id]
    return api.BranchesAnswer(**_where(lens), branches=tuple(rows))


def _branch(session: Session, leaf: LeafHead) -> api.BranchRow:
    return api.BranchRow(
        leaf=leaf.tip_id,
        is_default=leaf.segment == session.head.default_segment,
        observations=leaf.n_active,
        reflections=leaf.n_reflections,
        pending_sources=leaf.n_pending,
        compacted_through=leaf.through_id,
        last_at_ms=leaf.at_ms,
    )


def _rebuild(desk: Desk, lens: Lens, call: Call, limits: Limits) -> api.RebuildAnswer:
    session, leaf = lens.session, lens.leaf
    hidden = withholding(session)
    rest = list(_after(session, leaf))
    summaries = [
        entry.summary
        for entry in rest
        if entry.kind == "summary" and entry.summary is not None and not hidden.hides(entry)
    ]
    kept: list[Entry] = []
    compaction = session.entry(leaf.compaction_id) if leaf.compaction_id is not None else None
    if compaction is not None:
        said = compaction_of(compaction)
        later = {entry.id for entry in rest}
        named = said.keep_entry_ids if said else ()
        # Imported compactions list the whole window, which comes anyway (section 12, row 22).
        kept = reading.entries_on(session, leaf, [each for each in named if each not in later])
        summary = compaction.summary or ""
        if session.head.n_invalidations:
            # Never as stored: it may quote what was invalidated since (design.md section 9).
            memory = reading.scoped(session, leaf, reading.visible(session, leaf))
            summary = render_memory(
                memory.observations, memory.reflections, memory.outline, desk.settings.secrets
            )
        summaries.insert(0, summary)
    messages = [
        entry
        for entry in (*kept, *rest)
        if entry.message is not None and entry.kind == "message" and not hidden.hides(entry)
    ]
    return api.RebuildAnswer(
        **_where(lens),
        messages=tuple(_object(entry) for entry in paired(messages)),
        summaries=tuple(text for text in summaries if text),
    )


def _after(session: Session, leaf: LeafHead) -> Iterator[Entry]:
    for _, row in chain(session, leaf.lineage, leaf.through_ordinal):
        yield decode(row.value)


def _context(desk: Desk, lens: Lens, call: Call, shared: SharedMemory | None) -> api.ContextAnswer:
    blocks = reading.context(
        lens.session,
        lens.leaf,
        call.whole("recent"),
        call.number("maxTokens"),
        desk.settings.secrets,
        shared,
    )
    return api.ContextAnswer(
        **_where(lens),
        blocks=tuple(
            api.ContextBlock(title=block.title, content=block.content, priority=block.priority)
            for block in blocks
        ),
    )


def _recall(desk: Desk, lens: Lens, call: Call, shared: SharedMemory | None) -> api.RecallAnswer:
    memory_id = call.path["memory"]
    found = reading.recall_at(lens.session, lens.leaf, memory_id, desk.settings.secrets, shared)
    return api.RecallAnswer(**_where(lens), recalled=recall_json(found))


def _pages(desk: Desk, lens: Lens, call: Call, limits: Limits) -> api.PageAnswer:
    limit = call.whole("limit")
    found = reading.page_at(
        lens.session,
        lens.leaf,
        call.text("cursor"),
        msgspec.UNSET if limit is None else limit,
        call.text("direction"),
        call.text("detail"),
        desk.settings.secrets,
    )
    return api.PageAnswer(**_where(lens), page=page_json(found))


def _status(desk: Desk, lens: Lens, call: Call, limits: Limits) -> api.StatusAnswer:
    return api.StatusAnswer(**_where(lens), status=status_of(desk, lens).as_json())


def _view(desk: Desk, lens: Lens, call: Call, shared: SharedMemory | None) -> api.ViewAnswer:
    mode = call.text("mode")
    if mode not in (None, "", "full", "visible"):
        raise ApiError("bad_request", "mode is full, or not given")
    found = reading.view(
        lens.session,
        lens.leaf,
        "full" if mode == "full" else "visible",
        desk.settings.secrets,
        shared,
    )
    return api.ViewAnswer(**_where(lens), view=view_json(found))


def _invalidations(desk: Desk, lens: Lens, call: Call, limits: Limits) -> api.InvalidationsAnswer:
    return api.InvalidationsAnswer(
        **_where(lens), invalidations=invalidating.invalidations_of(lens.session)
    )


READERS: Final[Mapping[str, Reader]] = {
    "entries": _entries,
    "branches": _branches,
    "rebuild": _rebuild,
    "pages": _pages,
    "status": _status,
    "invalidations": _invalidations,
    "scopes": scoping.scopes,
    "scope_memory": scoping.memory,
}
SHARED_READERS: Final[Mapping[str, SharedReader]] = {
    "context": _context,
    "recall": _recall,
    "view": _view,
}
"""Reads that show what other sessions share, too (S19)."""


def _summary(desk: Desk, key: bytes, name: str) -> api.SessionSummary:
    with desk.engine.reading(key) as live:
        head = live.session.head
        leaves = [live.session.leaf(segment) for segment in live.session.segments()]
        leaf = live.session.leaf(head.default_segment) if head.default_segment else None
        return api.SessionSummary(
            session=name,
            entries=head.arrivals,
            branches=sum(not each.conflict for each in leaves),
            observations=leaf.n_active if leaf else 0,
            reflections=leaf.n_reflections if leaf else 0,
            last_at_ms=head.at_ms,
            leaf=leaf.tip_id if leaf else None,
        )


def is_there(desk: Desk, key: bytes) -> bool:
    """Say whether anything of the session is folded."""
    with desk.engine.reading(key) as live:
        return not live.session.is_new


def leaf_id(desk: Desk, key: bytes, asked: str | None) -> str:
    """Return the id of the leaf that is named, or of the default one.

    Raises:
        NoLeaf: see there.
    """
    with looking(desk, key, asked) as lens:
        if not lens.leaf.tip_id:
            raise NoLeaf(key.decode(), asked)
        return lens.leaf.tip_id


def _object(entry: Entry) -> JsonObject:
    value: JsonObject = msgspec.to_builtins(entry)
    return value
