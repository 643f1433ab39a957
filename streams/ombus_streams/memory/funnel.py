"""What one session gives to another: messages copied to a workspace, in order, once (section 10).

The decider appends links to the source session; a link that is folded emits the copies, so the log
knows of a copy before it exists. What is invalidated in the source is invalidated in each copy, in
whichever order link and invalidation come. Everything follows from the log: emitting again appends
what the target holds already, and that folds to nothing.
"""

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import Final

from ombus_schemas.codec import decode, encode
from ombus_schemas.control import SourceLink, SourcesLinked, reason_of
from ombus_schemas.copies import copy_id, copy_of, derived_invalidation
from ombus_schemas.entries import Entry
from ombus_schemas.facts import fact_of
from ombus_schemas.ids import is_entry_id, is_result_entry_id, run_id
from ombus_schemas.limits import MAX_ENTRY_BYTES

from ombus_streams.memory import keys
from ombus_streams.memory.coverage import is_eligible
from ombus_streams.memory.effects import RunFunnel
from ombus_streams.memory.head import EntryRow, InvalidationRow, LeafHead
from ombus_streams.memory.session import Session
from ombus_streams.memory.terms import settings_of

WORKER: Final = "funnel"
MAX_LINKS: Final = 100
"""Messages of one link record."""


def is_given(entry: Entry) -> bool:
    """Say whether a workspace gets a copy: of what somebody said here, never of a copy."""
    return is_eligible(entry) and entry.origin != "other_session"


def is_due(session: Session, leaf: LeafHead) -> bool:
    """Say whether the session has messages its workspace may lack; the default leaf asks."""
    return (
        leaf.segment == session.head.default_segment
        and leaf.given_ordinal > session.head.linked_ordinal
        and _target(session, leaf) is not None
    )


def decide(session: Session, leaf: LeafHead) -> RunFunnel | None:
    """Return the next messages of all branches to be linked, in the order they attached.

    What is invalidated is not given, nor what would be too large with its origin beside it.
    """
    target = _target(session, leaf)
    if not is_due(session, leaf) or target is None or settings_of(session, leaf).passive:
        return None
    ids = tuple(entry.id for entry in islice(_givable(session, target), MAX_LINKS))
    if not ids:
        return None
    seen = session.head.last_invalidation
    return RunFunnel(
        run_id=run_id(
            WORKER,
            session.tenant_id,
            session.session_id,
            target,
            session.head.last_link,
            seen,
            leaf.tip_id,
            ids,
        ),
        tenant_id=session.tenant_id,
        session_id=session.session_id,
        segment=leaf.segment,
        base=session.head.last_link,
        seen=seen,
        cause=target,
        anchor_id=leaf.tip_id,
        target_id=target,
        links=tuple(
            SourceLink(
                source_id=each,
                copy_id=copy_id(session.tenant_id, session.session_id, each, target),
            )
            for each in ids
        ),
    )


def link(session: Session, entry: Entry) -> list[Entry]:
    """Fold ``om.sources.linked``; return what is to be appended to the target.

    Only a link of ours brings copies: an imported one says that somebody else has made them.
    """
    fact = fact_of(entry)
    if not isinstance(fact, SourcesLinked) or fact.target_session_id == session.session_id:
        return []
    at = entry.timestamp
    target, is_ours = fact.target_session_id, is_result_entry_id(entry.id)
    copies: list[Entry] = []
    fresh: dict[str, str] = {}
    for each in fact.links:
        key = keys.link(session.prefix, each.source_id, target)
        if not is_entry_id(each.source_id) or session.rows.get(key) is not None:
            continue
        session.rows.put(key, each.copy_id.encode())
        fresh[each.source_id] = each.copy_id
        place = session.place_of(each.source_id)
        source = session.entry(each.source_id)
        if place is None or source is None or place.place != "chain":
            continue
        session.head.linked_ordinal = max(session.head.linked_ordinal, place.ordinal)
        if is_ours and is_given(source):
            copies.append(copy_of(source, target))
    session.head.last_link = entry.id
    if session.invalid_from().keys().isdisjoint(fresh):
        return copies
    followed = (
        _derived(session, row, target, [fresh[each] for each in row.ids if each in fresh], at)
        for row in session.invalidations()
    )
    return [*copies, *(each for each in followed if each is not None)]


def follow(session: Session, row: InvalidationRow, timestamp: str) -> list[Entry]:
    """Return the invalidations of copies that an invalidation just folded asks for.

    One that says nothing new about an id asks for nothing, so that no circle of links runs on.
    """
    if session.head.last_link is None:
        return []
    said = _said_before(session, row)
    copies: dict[str, list[str]] = {}
    for name in dict.fromkeys(row.ids):
        if name in said or not is_entry_id(name):
            continue
        prefix = keys.link(session.prefix, name)
        for key, value in session.rows.scan(prefix):
            copies.setdefault(key[len(prefix) :].decode(), []).append(value.decode())
    found = (_derived(session, row, target, ids, timestamp) for target, ids in copies.items())
    return [each for each in found if each is not None]


def _said_before(session: Session, row: InvalidationRow) -> set[str]:
    """Return the ids of which this or more was said.

    ``corrected`` is less than the other reasons, and nothing to hold less than a hold.
    """
    found: set[str] = set()
    for earlier in session.invalidations():
        if earlier.id == row.id:
            break
        as_hidden = row.reason == "corrected" or earlier.reason != "corrected"
        if as_hidden and (earlier.hold or not row.hold):
            found.update(earlier.ids)
    return found


def _derived(
    session: Session, row: InvalidationRow, target: str, copy_ids: list[str], timestamp: str
) -> Entry | None:
    if not copy_ids:
        return None
    return derived_invalidation(
        session.tenant_id,
        session.session_id,
        row.id,
        reason_of(row.reason),
        target,
        tuple(dict.fromkeys(copy_ids)),
        timestamp,
        hold=row.hold,
    )


def _target(session: Session, leaf: LeafHead) -> str | None:
    workspace = settings_of(session, leaf).funnel.workspace
    return None if workspace == session.session_id else workspace


def _givable(session: Session, target: str) -> Iterator[Entry]:
    hidden = session.invalid_from()
    after = session.head.linked_ordinal
    for _, row in heapq.merge(
        *(_segment(session, segment, after) for segment in session.segments()),
        key=lambda one: one[0],
    ):
        entry = decode(row.value)
        if not is_given(entry) or entry.id in hidden:
            continue
        if len(encode(copy_of(entry, target))) <= MAX_ENTRY_BYTES:
            yield entry


def _segment(session: Session, segment: int, after: int) -> Iterator[tuple[int, EntryRow]]:
    if session.leaf(segment).conflict:
        return
    start = keys.entry(session.prefix, segment, after + 1)
    for key, row in session.scan(keys.entries(session.prefix, segment), EntryRow, start):
        yield keys.number_at_end(key), row
