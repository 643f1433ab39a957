"""What the fold's rows say beside what the slow model says, leaf by leaf."""

from collections.abc import Iterable, Iterator
from typing import Final

from ombus_schemas.codec import decode_record
from ombus_schemas.entries import Entry
from ombus_schemas.errors import BadRecord
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory import compactor, items, keys, reading
from ombus_streams.memory.compaction import Strategy, compact
from ombus_streams.memory.context import blocks
from ombus_streams.memory.effects import RunCompactor
from ombus_streams.memory.head import IdRow, ItemState, LeafHead
from ombus_streams.memory.ledger import fold
from ombus_streams.memory.session import Session, chain, view
from ombus_streams.memory.summary import Compacted
from ombus_streams.memory.terms import scope_map_of
from ombus_streams.memory.tokens import entry_tokens
from ombus_streams.memory.visible import visible
from ombus_streams.runtime.ports import LogRecord

from tests.memory.model.tree import Tree, build
from tests.memory.model.view import View, is_source, walk

Fact = tuple[str, object, object]
"""What, as the fold has it, as the model has it."""
_OBSERVATION_STATES: Final[tuple[ItemState, ...]] = ("visible", "trimmed", "dropped", "invalidated")
_REFLECTION_STATES: Final[tuple[ItemState, ...]] = ("visible", "hidden", "invalidated")


def entries_of(records: Iterable[LogRecord], key: bytes) -> list[Entry]:
    """Return the entries of one session that can be read at all, in log order."""
    found: list[Entry] = []
    for record in records:
        try:
            entry = decode_record(record.key, record.value)
        except BadRecord:
            continue
        if record.key == key:
            found.append(entry)
    return found


def differences(session: Session, log: list[Entry], parked_for: int) -> list[str]:
    """Return what the fold and the model do not agree on, in words; empty if nothing."""
    tree = build(log, parked_for)
    found = [*_session_facts(session, tree)]
    by_tip = {
        session.leaf(segment).tip_id: session.leaf(segment)
        for segment in session.segments()
        if not session.leaf(segment).conflict
    }
    leaves = {leaf.entry.id: leaf for leaf in tree.leaves()}
    found.append(("leaves", sorted(by_tip), sorted(leaves)))
    for tip, head in by_tip.items():
        if tip in leaves:
            model = walk(tree, leaves[tip])
            found += [
                (f"{tip}: {what}", ours, theirs)
                for what, ours, theirs in _leaf_facts(session, head, model)
            ]
    return [
        f"{what}: the fold has {ours!r}, the model has {theirs!r}"
        for what, ours, theirs in found
        if ours != theirs
    ]


def _session_facts(session: Session, tree: Tree) -> Iterator[Fact]:
    head = session.head
    yield "duplicates", head.n_duplicates, tree.n_duplicates
    yield "repeated runs", head.n_repeated_runs, tree.n_repeated_runs
    yield "refused", head.n_refused, tree.n_refused
    yield "orphans", head.n_orphans, tree.n_orphans
    yield "left out", head.n_left_out, len(tree.left_out)
    yield "parked", head.n_parked, len(tree.parked)
    yield "attached", head.next_ordinal, tree.next_ordinal
    yield (
        "conflicts",
        head.n_conflicts,
        sum(node.conflict for node in tree.nodes.values() if not node.entry.side),
    )
    yield "invalidations", head.n_invalidations, len(tree.invalidations)
    default = session.leaf(head.default_segment).tip_id if head.default_segment else None
    yield "default leaf", default, tree.default_leaf
    for name, node in tree.nodes.items():
        place = session.place_of(name)
        assert place is not None, name
        yield (
            f"place of {name}",
            _place(place),
            ("side" if node.entry.side else "chain", node.ordinal),
        )
    for _, entry in tree.parked:
        place = session.place_of(entry.id)
        yield f"place of {entry.id}", place and place.place, "parked"
    for name in tree.left_out:
        place = session.place_of(name)
        yield f"place of {name}", place and place.place, "left_out"


def _place(place: IdRow) -> tuple[str, int]:
    return place.place, place.ordinal


def _leaf_facts(session: Session, leaf: LeafHead, model: View) -> Iterator[Fact]:
    yield (
        "chain",
        [ordinal for ordinal, _ in chain(session, leaf.lineage)],
        [node.ordinal for node in model.chain],
    )
    yield (
        "view",
        [ordinal for ordinal, _ in view(session, leaf.lineage)],
        [node.ordinal for node in model.tree.view(model.leaf)],
    )
    yield "coverage", (leaf.coverage_id, leaf.coverage_ordinal), (model.coverage_id, model.coverage)
    pending = model.pending()
    yield "pending", leaf.n_pending, len(pending)
    yield "pending tokens", leaf.pending_tokens, sum(entry_tokens(node.entry) for node in pending)
    yield "observer's obligation", leaf.threshold_ordinal, model.threshold
    yield "reflector's obligation", leaf.reflect_to, model.reflect_to
    yield (
        "flushes",
        [(flush.cause, flush.ordinal, flush.full, flush.reflect_to) for flush in leaf.flushes],
        [
            (
                flush.cause,
                flush.ordinal,
                flush.full,
                -1 if flush.reflect_to is None else flush.reflect_to,
            )
            for flush in model.flushes
        ],
    )
    yield "requests", [request.cause for request in leaf.compact_requests], model.requests
    yield from _ledger_facts(session, leaf, model)
    yield (
        "last records",
        (leaf.last_record, leaf.reflection_id, leaf.drop_id, leaf.compaction_id),
        (
            next(iter(model.accepted_ids.get("observations", [])[::-1]), None),
            model.reflection_id,
            model.drop_id,
            model.compaction_id,
        ),
    )
    yield "records", leaf.n_records, model.n_records
    yield "read records", leaf.reflected_records, model.n_read
    yield "boundary", (leaf.through_id, leaf.through_ordinal), (model.through_id, model.through)
    yield (
        "chain tokens",
        leaf.chain_tokens,
        sum(entry_tokens(node.entry) for node in model.chain if node.ordinal > model.through),
    )
    yield "run", leaf.run_id, model.run_id
    scope_map = model.scope_map()
    yield "scopes", (leaf.n_scopes, leaf.scope_id), (len(scope_map.scopes) - 1, scope_map.leaf)
    yield "scope map", scope_map_of(session, leaf), scope_map
    rejected = {
        name: count
        for name in leaf.rejections.__struct_fields__
        if (count := getattr(leaf.rejections, name))
    }
    yield "rejected", rejected, dict(model.rejected)
    kinds = {}
    prefix = keys.of_leaf(session.prefix, b"a", leaf.segment)
    for key, _ in session.rows.scan(prefix):
        kinds[key[len(prefix) :].decode()] = True
    yield "accepted", sorted(kinds), sorted(entry.id for entry in model.accepted)


def _ledger_facts(session: Session, leaf: LeafHead, model: View) -> Iterator[Fact]:
    for state in _OBSERVATION_STATES:
        yield (
            f"{state} observations",
            [row.item for row in items.observations(session, leaf, state)],
            [item for item in model.observations.values() if model.state(item) == state],
        )
    for state in _REFLECTION_STATES:
        yield (
            f"{state} reflections",
            [row.item for row in items.reflections(session, leaf, state)],
            [item for item in model.reflections.values() if model.reflection_state(item) == state],
        )
    active, uncovered = model.active(), model.uncovered()
    yield "observations", leaf.n_observations, len(model.observations)
    yield "reflections", leaf.n_reflections, len(model.reflections)
    yield "dropped ids", leaf.n_dropped, len(model.reasons)
    yield "active", leaf.n_active, len(active)
    yield "active tokens", leaf.active_tokens, sum(item.token_count for item in active)
    yield "uncovered", leaf.n_uncovered, len(uncovered)
    yield "uncovered tokens", leaf.uncovered_tokens, sum(item.token_count for item in uncovered)
    yield (
        "invalidated",
        leaf.n_invalidated,
        sum(model.state(item) == "invalidated" for item in model.observations.values()),
    )


def tiling_faults(model: View) -> list[str]:
    """Return where the spans of a view's own records overlap; a gap cannot be but between them.

    Imports may cover anything once, so a span may begin after one; it never begins before.
    """
    found: list[str] = []
    reached = 0
    for after, up_to in model.spans:
        if after < reached:
            found.append(f"span {after}..{up_to} begins before {reached}")
        reached = max(reached, up_to)
    if reached > model.coverage:
        found.append(f"spans reach {reached}, the coverage is {model.coverage}")
    return found


def reading_differences(session: Session, tree: Tree) -> list[str]:
    """Return where reads from rows and the pure functions over the flat view do not agree.

    Left aside: a newest user message that is withdrawn; scopes (a record's own bind is not in the
    flat map); coverage that an import has moved back (the pure function follows it, row 5); a
    payload of ours before an imported one; and where a compaction cuts if there are entries past
    the coverage that are no sources.
    """
    found: list[Fact] = []
    leaves = {leaf.entry.id: leaf for leaf in tree.leaves()}
    for segment in session.segments():
        head = session.leaf(segment)
        if head.conflict or head.n_scopes or head.tip_id not in leaves:
            continue
        model = walk(tree, leaves[head.tip_id])
        entries, invalid = model.flat(), frozenset(model.invalid_ids)
        tip, keep = head.tip_id, model.settings.context.recent_messages
        if model.payload is None or not model.payload.imported_since:
            seen, flat = reading.visible(session, head), visible(entries, invalid)
            found.append((f"{tip}: shown observations", seen.observations, flat.observations))
            found.append((f"{tip}: shown reflections", seen.reflections, flat.reflections))
        ledger = fold(entries)
        if ledger.observation_coverage_id != model.coverage_id:
            continue
        said = [entry for entry in entries if is_source(entry) and _role(entry) == "user"]
        withdrawn = bool(said) and said[-1].id in invalid
        if not withdrawn and (model.payload is None or not model.payload.imported_since):
            found.append(
                (
                    f"{tip}: blocks",
                    reading.context(session, head),
                    blocks(entries, keep, invalidated_ids=invalid),
                )
            )
        run = compactor.decide(session, head)
        if isinstance(run, RunCompactor):
            ours = compactor.compact(session, head, run)
            strategy = Strategy(pool_max_tokens=model.settings.context.observations_pool_max_tokens)
            theirs = compact(entries, keep, invalidated_ids=invalid, strategy=strategy)
            if isinstance(theirs, Compacted):
                found.append((f"{tip}: memory", _memory(ours.data), _memory(theirs.data)))
                if _covers_to_the_window(model, theirs):
                    for name in ("throughEntryId", "keepEntryIds"):
                        found.append((f"{tip}: {name}", ours.data.get(name), theirs.data.get(name)))
                found.append((f"{tip}: summary", ours.summary, theirs.summary))
            else:
                found.append((f"{tip}: compaction", "one", theirs))
    return [
        f"{what}: from rows {ours!r}, from the flat view {theirs!r}"
        for what, ours, theirs in found
        if ours != theirs
    ]


def _role(entry: Entry) -> str:
    return "" if entry.message is None else entry.message.role


def _memory(data: JsonObject) -> JsonObject:
    """Return the payload with its dropped ids sorted: no rule gives them an order."""
    memory = data.get("memory")
    assert isinstance(memory, dict)
    dropped = memory.get("droppedObservationIds")
    assert isinstance(dropped, list)
    return {**memory, "droppedObservationIds": [*sorted(map(str, dropped))]}


def _covers_to_the_window(model: View, compacted: Compacted) -> bool:
    through = compacted.data.get("throughEntryId")
    node = model.tree.nodes.get(through) if isinstance(through, str) else None
    return node is not None and node.ordinal <= model.coverage


def leaf_named(tree: Tree, tip: str) -> View:
    """Return the memory of the leaf that ends at ``tip``."""
    return walk(tree, next(leaf for leaf in tree.leaves() if leaf.entry.id == tip))


__all__ = ["differences", "entries_of", "leaf_named", "reading_differences", "tiling_faults"]
