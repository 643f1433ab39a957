"""Proving a store: fold the log afresh to its position, compare every row, check what must hold.

Beside byte equality, on every leaf: accepted spans and pending sources tile all eligible sources
(coverage), and each pending source is in the window or named in its omission line (no hole).
"""

from collections.abc import Callable, Iterator

import msgspec
from ombus_schemas.codec import decode
from ombus_schemas.records import ObservationsRecorded, record_of

from ombus_streams.memory import keys
from ombus_streams.memory.acceptance import accepted_number, ordinal_of
from ombus_streams.memory.coverage import is_eligible
from ombus_streams.memory.head import LeafHead
from ombus_streams.memory.recent import recent
from ombus_streams.memory.rows import Overlay, Rows
from ombus_streams.memory.session import Session, chain, view
from ombus_streams.runtime.pages import pages
from ombus_streams.runtime.ports import EntryLog, PositionRow, StateStore
from ombus_streams.runtime.processor import Processor

MAX_DIFFERENCES = 20
BATCH = 1_000


class Difference(msgspec.Struct, frozen=True):
    """One thing that does not hold."""

    session: str
    """The session's record key; empty for rows above sessions."""
    what: str
    """Which row, in words, or which rule on which leaf."""
    fact: str


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared on one partition, and the first differences."""

    partition: int
    position: PositionRow | None
    n_rows: int = 0
    n_sessions: int = 0
    n_leaves: int = 0
    n_sources: int = 0
    differences: tuple[Difference, ...] = ()

    @property
    def is_equal(self) -> bool:
        return not self.differences


def verify(
    live: Rows,
    position: PositionRow | None,
    log: EntryLog,
    partition: int,
    scratch: StateStore,
    progress: Callable[[int], None] = lambda _: None,
) -> Verified:
    """Fold ``log`` into the empty ``scratch`` up to ``position`` and compare it with ``live``.

    ``live`` must be a snapshot taken with ``position``. ``progress`` is told how many records have
    been folded.
    """
    processor = Processor(scratch, log, partition, emits=False)
    end = position.next_offset if position is not None else 0
    # A log that ends below the stored position shows: the position row differs.
    for page in pages(log, partition, processor.next_offset, end, BATCH):
        processor.fold(page)
        progress(processor.next_offset)
    found: list[Difference] = []
    n_rows = 0
    for difference in _compare(live, scratch):
        n_rows += 1
        if difference is not None and len(found) < MAX_DIFFERENCES:
            found.append(difference)
    if processor.position != position and len(found) < MAX_DIFFERENCES:
        fact = f"stored {position}, folded {processor.position}"
        found.append(Difference("", "position row", fact))
    n_sessions = n_leaves = n_sources = 0
    prefix = keys.session_mark()
    for mark, _ in scratch.scan(prefix):
        session = Session(mark[len(prefix) :], Overlay(scratch))
        n_sessions += 1
        for segment in session.segments():
            leaf = session.leaf(segment)
            if leaf.conflict:
                continue
            n_leaves += 1
            n_sources += _check_leaf(session, leaf, found)
    return Verified(
        partition=partition,
        position=position,
        n_rows=n_rows,
        n_sessions=n_sessions,
        n_leaves=n_leaves,
        n_sources=n_sources,
        differences=tuple(found[:MAX_DIFFERENCES]),
    )


def _compare(live: Rows, fresh: Rows) -> Iterator[Difference | None]:
    """Yield once a row: ``None`` where both are equal."""
    ours, theirs = live.scan(b""), fresh.scan(b"")
    mine, other = next(ours, None), next(theirs, None)
    while mine is not None or other is not None:
        if other is None or (mine is not None and mine[0] < other[0]):
            assert mine is not None
            yield _difference(mine[0], "is stored, the log does not give it")
            mine = next(ours, None)
        elif mine is None or other[0] < mine[0]:
            yield _difference(other[0], "is missing, the log gives it")
            other = next(theirs, None)
        else:
            equal = mine[1] == other[1]
            yield None if equal else _difference(mine[0], "holds other bytes than the log gives")
            mine, other = next(ours, None), next(theirs, None)


def _difference(key: bytes, fact: str) -> Difference:
    session, row = keys.described(key)
    return Difference(session, row, fact)


def _check_leaf(session: Session, leaf: LeafHead, found: list[Difference]) -> int:
    """Check coverage and no-hole of one leaf; return how many sources it has."""

    def fail(rule: str, fact: str) -> None:
        if len(found) < MAX_DIFFERENCES:
            where = f"{rule} on leaf {leaf.tip_id}"
            found.append(Difference(session.key.decode(), where, fact))

    covered_to, base = 0, None
    for at, row in view(session, leaf.lineage):
        entry = decode(row.value)
        record = record_of(entry)
        if not isinstance(record, ObservationsRecorded) or not row.side:
            continue
        if not isinstance(record.base, str | None):
            covers = record.covers_up_to_id
            if covers is not None:
                reached = ordinal_of(session, leaf, covers, at)
                reached = row.anchor if reached is None else reached
                base, covered_to = leaf.coverage_id, max(covered_to, reached)
            continue
        if accepted_number(session, leaf, "observations", entry.id) is None:
            continue
        if row.anchor <= covered_to and record.base == base:
            fail("coverage", f"record {entry.id} covers what is covered already")
        base, covered_to = record.covers_up_to_id, max(covered_to, row.anchor)
    n_sources = n_pending = tokens = 0
    pending: list[str] = []
    for ordinal, row in chain(session, leaf.lineage):
        entry = decode(row.value)
        if not is_eligible(entry):
            continue
        n_sources += 1
        if ordinal > leaf.coverage_ordinal:
            n_pending += 1
            tokens += row.tokens
            pending.append(entry.id)
    if covered_to > leaf.coverage_ordinal:
        fail("coverage", "an accepted record lies past the coverage")
    if (n_pending, tokens) != (leaf.n_pending, leaf.pending_tokens):
        fail(
            "coverage",
            f"{n_pending} sources of {tokens} tokens are pending, the head says "
            f"{leaf.n_pending} of {leaf.pending_tokens}",
        )
    window = recent(session, leaf)
    shown = {entry.id for entry in window.entries}
    hidden = [entry_id for entry_id in pending if entry_id not in shown]
    n_named = sum(each.n_entries for each in window.omissions if each.reason != "cut")
    if len(hidden) > n_named:
        fail("no-hole", f"{len(hidden)} pending sources from {hidden[0]}, {n_named} are named")
    return n_sources
