"""One step of the memory of one leaf: what an entry of its view does to it.

``step`` sees the entries of a view in view order, one by one as they attach, or all of them when a
branch forks; both ways give the same head and rows. It is total and reads no process settings.
"""

from typing import Final

import msgspec
from msgspec import UNSET
from ombus_schemas.codec import decode
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import (
    Compaction,
    FoldedMemory,
    FoldedThrough,
    ObservationsDropped,
    ObservationsRecorded,
    ReflectionsRecorded,
    compaction_of,
    folded_of,
    record_of,
)

from ombus_streams.memory import acceptance, items, keys, scopes
from ombus_streams.memory.coverage import is_eligible
from ombus_streams.memory.head import (
    AcceptedRow,
    CompactRequest,
    EntryRow,
    Flush,
    LeafHead,
    ScopeRow,
)
from ombus_streams.memory.session import Session, chain
from ombus_streams.memory.terms import scope_map_of, settings_of

_MAX_SAFE: Final = 2**53 - 1
MAX_REQUESTS: Final = 64
"""Flushes, and compaction requests, that may wait on a leaf; later ones fold to nothing."""


class Item(msgspec.Struct, frozen=True, gc=False):
    """An attached entry: its place in the session, its row, and the row's value decoded."""

    ordinal: int
    row: EntryRow
    entry: Entry

    @property
    def anchor(self) -> int:
        """The ordinal of the chain entry it is, or hangs on."""
        return self.row.anchor


def step(session: Session, leaf: LeafHead, item: Item) -> None:
    """Fold the next entry of the leaf's view."""
    entry, tokens = item.entry, item.row.tokens
    if not item.row.side:
        leaf.chain_tokens += tokens
        if entry.message is not None and is_eligible(entry):
            leaf.n_pending += 1
            leaf.pending_tokens += tokens
            if entry.origin != "other_session":
                leaf.given_ordinal = item.ordinal
            if entry.message.role == "user" and entry.origin in (None, "human"):
                leaf.user_ordinal = item.ordinal
            if not leaf.threshold_ordinal:
                wanted = settings_of(session, leaf).observation.message_tokens
                if leaf.pending_tokens >= wanted:
                    leaf.threshold_ordinal = item.ordinal
        session.changed(leaf)
    if entry.kind == "model_change" and entry.model is not None:
        leaf.model = entry.model
        session.changed(leaf)
    if entry.data is None:
        return
    session.changed(leaf)
    if isinstance(entry.data, dict):
        _fold_data(session, leaf, item, entry.data)


def _fold_data(session: Session, leaf: LeafHead, item: Item, data: JsonObject) -> None:
    entry = item.entry
    compaction = compaction_of(entry)
    if compaction is not None:
        _compact(session, leaf, item, compaction)
    elif (payload := folded_of(entry)) is not None:
        _show(session, leaf, item, payload, FoldedThrough(), is_import=True)
    record = record_of(entry)
    match record:
        case ObservationsRecorded():
            _observe(session, leaf, item, record)
        case ReflectionsRecorded():
            _reflect(session, leaf, item, record)
        case ObservationsDropped():
            _drop(session, leaf, item, record)
        case None:
            _fold_fact(session, leaf, item, data)


def _observe(session: Session, leaf: LeafHead, item: Item, record: ObservationsRecorded) -> None:
    verdict = acceptance.judge_observations(session, leaf, record, item.anchor, item.ordinal)
    if verdict != "accepted":
        _reject(leaf, verdict)
        return
    leaf.n_records += 1
    leaf.last_record = item.entry.id
    number_key = keys.item(session.prefix, b"n", leaf.segment, leaf.n_records)
    session.rows.put(number_key, item.entry.id.encode())
    _accept(session, leaf, item, "observations", leaf.n_records)
    n_new = 0
    for observation in record.observations:
        n_new += items.add_observation(
            session,
            leaf,
            observation,
            record=item.entry.id,
            record_number=leaf.n_records,
            scope_id=record.scope_id,
            ordinal=item.ordinal,
        )
    for flush in leaf.flushes:
        flush.n_observations += n_new
    if record.covers_up_to_id is not None:
        _cover(session, leaf, item, record.covers_up_to_id)
    _oblige_reflector(session, leaf)


def _cover(session: Session, leaf: LeafHead, item: Item, covers: str) -> None:
    """Move coverage to ``covers``, forward only; an unknown id covers up to the record's place."""
    ordinal = acceptance.ordinal_of(session, leaf, covers, item.ordinal)
    if ordinal is None:
        ordinal = item.anchor
    if ordinal <= leaf.coverage_ordinal:
        return
    for at, row in chain(session, leaf.lineage, leaf.coverage_ordinal, ordinal):
        entry = decode(row.value)
        if at == ordinal:
            leaf.coverage_id = entry.id
        if is_eligible(entry):
            leaf.n_pending -= 1
            leaf.pending_tokens -= row.tokens
    leaf.coverage_ordinal = ordinal
    _oblige_observer(session, leaf)


def _oblige_observer(session: Session, leaf: LeafHead) -> None:
    """Fix what the threshold obliges to cover: the shortest prefix that reaches it."""
    if leaf.threshold_ordinal <= leaf.coverage_ordinal:
        leaf.threshold_ordinal = 0
    wanted = settings_of(session, leaf).observation.message_tokens
    if not leaf.threshold_ordinal and leaf.n_pending and leaf.pending_tokens >= wanted:
        reached = 0
        for at, row in chain(session, leaf.lineage, leaf.coverage_ordinal):
            if is_eligible(decode(row.value)):
                reached += row.tokens
                if reached >= wanted:
                    leaf.threshold_ordinal = at
                    break
    for flush in leaf.flushes:
        if flush.reflect_to < 0 and flush.ordinal <= leaf.coverage_ordinal:
            reached = leaf.uncovered_tokens >= (
                settings_of(session, leaf).reflection.observation_tokens
            )
            passed_over = flush.respects_thresholds and not reached
            flush.reflect_to = 0 if passed_over else leaf.n_records
            flush.full = flush.full and not passed_over


def _reflect(session: Session, leaf: LeafHead, item: Item, record: ReflectionsRecorded) -> None:
    verdict = acceptance.judge_reflections(session, leaf, record, item.ordinal)
    if verdict != "accepted":
        _reject(leaf, verdict)
        return
    through = leaf.n_records
    if record.through is not None:
        number = acceptance.accepted_number(session, leaf, "observations", record.through)
        through = leaf.n_records if number is None else number
    leaf.n_reflection_records += 1
    leaf.reflection_id = item.entry.id
    leaf.reflection_items = len(record.reflections)
    leaf.reflection_tip_id, leaf.pool_records = leaf.tip_id, leaf.n_records
    leaf.reflected_records = max(leaf.reflected_records, through)
    _accept(session, leaf, item, "reflections", leaf.n_reflection_records)
    n_new = 0
    for reflection in record.reflections:
        n_new += items.add_reflection(
            session,
            leaf,
            reflection,
            record=item.entry.id,
            scope_id=record.scope_id,
            ordinal=item.ordinal,
        )
    for flush in leaf.flushes:
        flush.n_reflections += n_new
        if flush.cause == record.cause:
            flush.full = False
    items.recount_uncovered(session, leaf)
    _oblige_reflector(session, leaf)


def _oblige_reflector(session: Session, leaf: LeafHead) -> None:
    if leaf.reflect_to <= leaf.reflected_records:
        leaf.reflect_to = 0
    wanted = settings_of(session, leaf).reflection.observation_tokens
    if not leaf.reflect_to and leaf.n_uncovered and leaf.uncovered_tokens >= wanted:
        leaf.reflect_to = leaf.n_records


def _drop(session: Session, leaf: LeafHead, item: Item, record: ObservationsDropped) -> None:
    verdict = acceptance.judge_drops(session, leaf, record, item.ordinal)
    if verdict != "accepted":
        _reject(leaf, verdict)
        return
    if record.base is not UNSET:
        leaf.drop_id, leaf.dropped_for = item.entry.id, record.base
    _accept(session, leaf, item, "drops", 0)
    n_gone = items.drop(session, leaf, record.observation_ids, pruned=record.reason == "pruned")
    for flush in leaf.flushes:
        flush.n_dropped += n_gone


def _compact(session: Session, leaf: LeafHead, item: Item, record: Compaction) -> None:
    verdict = acceptance.judge_compaction(session, leaf, record, item.anchor, item.ordinal)
    if verdict != "accepted":
        _reject(leaf, verdict)
        return
    _accept(session, leaf, item, "compaction", 0)
    if record.memory is not None:
        folded = record.folded_through or FoldedThrough()
        is_import = record.base is UNSET
        _show(session, leaf, item, record.memory, folded, is_import=is_import)
    leaf.compaction_id = item.entry.id
    leaf.compact_requests = [
        request for request in leaf.compact_requests if request.cause != record.cause
    ]
    through_id = record.through_entry_id
    if through_id is not None:
        through = acceptance.ordinal_of(session, leaf, through_id, item.ordinal)
        if through is not None and through > leaf.through_ordinal:
            leaf.through_id, leaf.through_ordinal = through_id, through
            # Bounded: where a branch forks, later entries of its chain are stored already.
            after = chain(session, leaf.lineage, through, item.ordinal)
            leaf.chain_tokens = sum(row.tokens for _, row in after)


def _show(
    session: Session,
    leaf: LeafHead,
    item: Item,
    payload: FoldedMemory,
    folded: FoldedThrough,
    *,
    is_import: bool,
) -> None:
    """Let a payload be what is visible of what it folded; an import also brings its items."""
    if is_import:
        for observation in payload.observations:
            items.add_observation(
                session,
                leaf,
                observation,
                record=item.entry.id,
                record_number=0,
                scope_id=None,
                ordinal=item.ordinal,
            )
        for reflection in payload.reflections:
            items.add_reflection(
                session,
                leaf,
                reflection,
                record=item.entry.id,
                scope_id=None,
                ordinal=item.ordinal,
            )
        items.drop(session, leaf, payload.dropped_observation_ids, pruned=False)
        return  # what is active stays in sight: an import does not say what it has folded
    n_folded = None
    if folded.observations is not None:
        n_folded = acceptance.accepted_number(session, leaf, "observations", folded.observations)
    shown = frozenset(observation.id for observation in payload.observations)
    items.show_payload(session, leaf, shown, n_folded or 0)


def _fold_fact(session: Session, leaf: LeafHead, item: Item, data: JsonObject) -> None:
    entry = item.entry
    kind = entry.data_type
    if kind.startswith("om.scope."):
        _scope(session, leaf, item, data)
        return
    match kind:
        case "om.run.started":
            leaf.run_id = _text(data.get("runId")) or entry.run_id or entry.id
            leaf.run_at_ms = item.row.at_ms
        case "om.run.finished":
            if (_text(data.get("runId")) or entry.run_id) == leaf.run_id:
                leaf.run_id = None
        case "om.settings.changed":
            said = data.get("settings")
            leaf.settings = said if isinstance(said, dict) else {}
            session.settings_by_leaf.pop(leaf.segment, None)
            _oblige_observer(session, leaf)
            _oblige_reflector(session, leaf)
        case "om.flush.requested":
            if len(leaf.flushes) < MAX_REQUESTS:
                leaf.flushes = [*leaf.flushes, _flush(session, leaf, item, data)]
                _oblige_observer(session, leaf)
        case "om.flush.completed" | "om.flush.failed":
            ended = data.get("flushId")
            leaf.flushes = [flush for flush in leaf.flushes if flush.cause != ended]
        case "om.compact.requested":
            if len(leaf.compact_requests) < MAX_REQUESTS:
                request = CompactRequest(
                    cause=entry.id,
                    trigger=_text(data.get("trigger")) or "manual",
                    keep_recent=_count(data.get("keepRecentEntries")),
                )
                leaf.compact_requests = [*leaf.compact_requests, request]
        case "om.compact.completed" | "om.compact.failed":
            ended = data.get("requestId")
            leaf.compact_requests = [
                request for request in leaf.compact_requests if request.cause != ended
            ]


def _flush(session: Session, leaf: LeafHead, item: Item, data: JsonObject) -> Flush:
    respects = data.get("respectThresholds") is True
    wanted = settings_of(session, leaf).observation.message_tokens
    passed_over = respects and leaf.pending_tokens < wanted
    return Flush(
        cause=item.entry.id,
        ordinal=0 if passed_over else item.anchor,
        full=data.get("fullReflectionRebuild") is True,
        respects_thresholds=respects,
    )


def _scope(session: Session, leaf: LeafHead, item: Item, data: JsonObject) -> None:
    before = scope_map_of(session, leaf)
    after = scopes.evolve(before, item.entry)
    # What records bind by themselves is in no map: an unbinding of that must be known, too.
    if after is before and scopes.unbound(before, item.entry) is None:
        return
    session.scope_maps[leaf.segment] = after
    leaf.n_scopes, leaf.scope_id = len(after.scopes) - 1, after.leaf
    key = keys.item(session.prefix, b"g", leaf.segment, item.ordinal)
    session.write(key, ScopeRow(after.leaf, data, item.entry.id))


def _accept(session: Session, leaf: LeafHead, item: Item, kind: str, number: int) -> None:
    key = keys.named(session.prefix, b"a", leaf.segment, item.entry.id)
    session.write(key, msgspec.convert((kind, number), AcceptedRow))


def _reject(leaf: LeafHead, verdict: acceptance.Verdict) -> None:
    setattr(leaf.rejections, verdict, getattr(leaf.rejections, verdict) + 1)


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: JsonValue) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= _MAX_SAFE else None
