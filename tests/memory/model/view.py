"""The memory of one leaf as design.md section 5 words it: the whole view is walked and judged.

Written from the page, not from the fold: lists and sets, every question answered by looking at all
there is.
"""

from collections import Counter
from dataclasses import dataclass, field

from msgspec import UNSET
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.records import (
    Compaction,
    FoldedMemory,
    Observation,
    ObservationsDropped,
    ObservationsRecorded,
    Reflection,
    ReflectionsRecorded,
    compaction_of,
    folded_of,
    record_of,
)
from ombus_schemas.resolution import resolve_settings
from ombus_schemas.settings import MemorySettings
from ombus_streams.memory import scopes
from ombus_streams.memory.tokens import entry_tokens

from tests.memory.model.tree import ROOT, Invalidation, Node, Tree

NOT_SOURCES = ("injected", "summary", "worker")


@dataclass
class Flushed:
    cause: str
    ordinal: int
    full: bool
    reflect_to: int | None = None


@dataclass
class Payload:
    """The last payload of ours: what it lists, and how many records it has folded."""

    ids: set[str]
    n_folded: int
    imported_since: set[str] = field(default_factory=set)
    """An import does not say what it has folded: what it brings is in sight."""


@dataclass
class View:
    """What one leaf remembers."""

    tree: Tree
    leaf: Node
    chain: list[Node] = field(default_factory=list)
    accepted: list[Entry] = field(default_factory=list)
    """Worker records and compactions that count, in view order."""
    accepted_ids: dict[str, list[str]] = field(default_factory=dict)
    """By kind."""
    rejected: Counter[str] = field(default_factory=Counter)
    rejected_ids: set[str] = field(default_factory=set)
    coverage: int = 0
    coverage_id: str | None = None
    spans: list[tuple[int, int]] = field(default_factory=list)
    """Of accepted records of ours: after which ordinal, up to which."""
    observations: dict[str, Observation] = field(default_factory=dict)
    listed_in: dict[str, int] = field(default_factory=dict)
    """The number of the last accepted record that lists an observation; 0: only a payload."""
    reflections: dict[str, Reflection] = field(default_factory=dict)
    reasons: dict[str, list[bool]] = field(default_factory=dict)
    """Of each dropped id: whether each drop was a pruning."""
    reflection_id: str | None = None
    reflection_items: int = 0
    n_read: int = 0
    pool: int = 0
    dropped_for: set[str] = field(default_factory=set)
    drop_id: str | None = None
    compaction_id: str | None = None
    through: int = 0
    through_id: str | None = None
    payload: Payload | None = None
    threshold: int = 0
    reflect_to: int = 0
    flushes: list[Flushed] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    run_id: str | None = None
    settings: MemorySettings = field(default_factory=MemorySettings)
    scope_entries: list[Entry] = field(default_factory=list)

    @property
    def n_records(self) -> int:
        return len(self.accepted_ids.get("observations", []))

    @property
    def invalid_ids(self) -> set[str]:
        return {name for each in self.tree.invalidations for name in each.ids}

    def sources(self) -> list[Node]:
        return [node for node in self.chain if is_source(node.entry)]

    def pending(self) -> list[Node]:
        return [node for node in self.sources() if node.ordinal > self.coverage]

    def state(self, observation: Observation) -> str:
        """Return what became of an observation, by all the view has said."""
        if self.is_hit(observation, self.invalid_ids):
            return "invalidated"
        if observation.id in self.reasons:
            return "dropped"
        if self.payload is not None and not (
            observation.id in self.payload.ids | self.payload.imported_since
            or self.listed_in[observation.id] > self.payload.n_folded
        ):
            return "trimmed"
        return "visible"

    def is_hit(self, observation: Observation, ids: set[str]) -> bool:
        return observation.id in ids or not ids.isdisjoint(observation.source_entry_ids)

    def reflection_state(self, reflection: Reflection) -> str:
        supports, invalid = reflection.supporting_observation_ids, self.invalid_ids
        held = [self.observations[item] for item in supports if item in self.observations]
        if (
            reflection.id in invalid
            or not invalid.isdisjoint(supports)
            or any(self.is_hit(item, invalid) for item in held)
        ):
            return "invalidated"
        named = (reflection.id, *supports)
        if any(item in self.reasons and not all(self.reasons[item]) for item in named):
            return "hidden"
        return "visible"

    def active(self) -> list[Observation]:
        return [
            item
            for item in self.observations.values()
            if self.state(item) in ("visible", "trimmed")
        ]

    def uncovered(self) -> list[Observation]:
        return [item for item in self.active() if self.listed_in[item.id] > self.n_read]

    def flat(self) -> list[Entry]:
        """Return the view as pure functions take it: without the records that it rejects."""
        return [
            node.entry
            for node in self.tree.view(self.leaf)
            if node.entry.id not in self.rejected_ids
        ]

    def scope_map(self) -> scopes.ScopeMap:
        return scopes.fold(self.scope_entries)


def is_source(entry: Entry) -> bool:
    return (
        entry.kind == "message"
        and entry.message is not None
        and entry.message.role in ("user", "assistant", "tool")
        and entry.origin not in NOT_SOURCES
        and not entry.side
    )


def walk(tree: Tree, leaf: Node) -> View:
    """Return the memory of ``leaf``: every record of its view judged in view order."""
    walker = _Walker(tree, leaf)
    for node in tree.view(leaf):
        walker.step(node)
    return walker.end()


class _Walker:
    """Walks a view once. Invalidations take effect where they stand (``Invalidation.ordinal``)."""

    def __init__(self, tree: Tree, leaf: Node) -> None:
        self.view = View(Tree(), leaf)
        self._tree = tree
        self._left = list(tree.invalidations)

    def step(self, node: Node) -> None:
        view, entry = self.view, node.entry
        while self._left and self._left[0].ordinal <= node.ordinal:
            view.tree.invalidations.append(self._left.pop(0))
        view.tree.nodes[entry.id] = node
        if not entry.side:
            view.chain.append(node)
            if is_source(entry):
                self._oblige_observer()
        if not isinstance(entry.data, dict):
            return
        compaction, payload, record = compaction_of(entry), folded_of(entry), record_of(entry)
        if compaction is not None:
            self._compact(node, compaction)
        elif payload is not None:
            self._import(payload)
        match record:
            case ObservationsRecorded():
                self._observe(node, record)
            case ReflectionsRecorded():
                self._reflect(node, record)
            case ObservationsDropped():
                self._drop(node, record)
            case None:
                self._fact(node, entry.data)

    def end(self) -> View:
        self.view.tree = self._tree
        return self.view

    def _observe(self, node: Node, record: ObservationsRecorded) -> None:
        view = self.view
        covers = record.covers_up_to_id
        place = self._place(covers)
        if record.base is not UNSET:
            if record.base != view.coverage_id:
                return self._reject(node, "stale_base")
            if place is None or place != node.anchor or place <= view.coverage:
                return self._reject(node, "bad_anchor")
            span = {
                source.entry.id
                for source in view.sources()
                if view.coverage < source.ordinal <= place
            }
            if self._fresh(record.seen) & span:
                return self._reject(node, "invalidated")
            view.spans.append((view.coverage, place))
        self._accept("observations", node.entry)
        for item in record.observations:
            view.observations.setdefault(item.id, item)
            view.listed_in[item.id] = view.n_records
        if covers is not None:
            reached = place
            if reached is None:  # unknown: up to the record's own place
                reached = node.anchor if node.anchor != ROOT else 0
            if reached > view.coverage:
                view.coverage = reached
                view.coverage_id = next(
                    each.entry.id for each in view.chain if each.ordinal == reached
                )
        self._oblige_observer()
        self._oblige_reflector()
        return None

    def _reflect(self, node: Node, record: ReflectionsRecorded) -> None:
        view = self.view
        through = view.n_records
        if record.through is not None and record.through in view.accepted_ids.get(
            "observations", []
        ):
            through = view.accepted_ids["observations"].index(record.through) + 1
        elif record.through is not None and record.base is not UNSET:
            reason = "stale_base" if record.base != view.reflection_id else "not_accepted"
            return self._reject(node, reason)
        if record.base is not UNSET:
            if record.base != view.reflection_id:
                return self._reject(node, "stale_base")
            full = any(flush.cause == record.cause and flush.full for flush in view.flushes)
            first = -1 if full else view.n_read
            if self._has_lost(record.seen, first, through):
                return self._reject(node, "invalidated")
        self._accept("reflections", node.entry)
        for item in record.reflections:
            view.reflections.setdefault(item.id, item)
        view.reflection_id, view.reflection_items = node.entry.id, len(record.reflections)
        view.pool = view.n_records
        view.n_read = max(view.n_read, through)
        for flush in view.flushes:
            if flush.cause == record.cause:
                flush.full = False
        self._oblige_reflector()
        return None

    def _drop(self, node: Node, record: ObservationsDropped) -> None:
        view = self.view
        if record.base is not UNSET:
            if record.base is None or record.base != view.reflection_id:
                return self._reject(node, "stale_base")
            if record.base in view.dropped_for or len(view.scope_map().scopes) > 1:
                return self._reject(node, "superseded")
            if self._has_lost(record.seen, -1, view.pool):
                return self._reject(node, "invalidated")
            view.dropped_for.add(record.base)
            view.drop_id = node.entry.id
        self._accept("drops", node.entry)
        for name in record.observation_ids:
            view.reasons.setdefault(name, []).append(record.reason == "pruned")
        return None

    def _compact(self, node: Node, record: Compaction) -> None:
        view = self.view
        place = self._place(record.through_entry_id)
        if record.base is not UNSET:
            if record.base != view.compaction_id:
                return self._reject(node, "stale_base")
            through = record.folded_through
            named = (
                {}
                if through is None
                else {
                    "observations": through.observations,
                    "reflections": through.reflections,
                    "drops": through.drops,
                }
            )
            for kind, last in named.items():
                if last is not None and last not in view.accepted_ids.get(kind, []):
                    return self._reject(node, "not_accepted")
            if place is None or place > node.anchor or record.memory is None:
                return self._reject(node, "bad_anchor")
            if place <= view.through:
                return self._reject(node, "no_progress")
            ids = self._fresh(record.seen)
            if any(view.is_hit(item, ids) for item in record.memory.observations):
                return self._reject(node, "invalidated")
            for reflection in record.memory.reflections:
                supports = reflection.supporting_observation_ids
                held = [view.observations[item] for item in supports if item in view.observations]
                if (
                    reflection.id in ids
                    or not ids.isdisjoint(supports)
                    or any(view.is_hit(item, ids) for item in held)
                ):
                    return self._reject(node, "invalidated")
        self._accept("compaction", node.entry)
        if record.memory is not None:
            if record.base is UNSET:
                self._import(record.memory)
            else:
                folded = record.folded_through
                last = None if folded is None else folded.observations
                known = view.accepted_ids.get("observations", [])
                n_folded = known.index(last) + 1 if last in known else 0
                ids = {item.id for item in record.memory.observations}
                view.payload = Payload(ids, n_folded)
        view.compaction_id = node.entry.id
        view.requests = [cause for cause in view.requests if cause != record.cause]
        if place is not None and place > view.through:
            view.through, view.through_id = place, record.through_entry_id
        return None

    def _import(self, payload: FoldedMemory) -> None:
        view = self.view
        for item in payload.observations:
            if item.id not in view.observations and view.payload is not None:
                view.payload.imported_since.add(item.id)
            view.observations.setdefault(item.id, item)
            view.listed_in.setdefault(item.id, 0)
        for reflection in payload.reflections:
            view.reflections.setdefault(reflection.id, reflection)
        for name in payload.dropped_observation_ids:
            view.reasons.setdefault(name, []).append(False)

    def _fact(self, node: Node, data: JsonObject) -> None:
        view, entry = self.view, node.entry
        match data.get("type"):
            case "om.settings.changed":
                said = data.get("settings")
                view.settings = resolve_settings(said if isinstance(said, dict) else {})
                self._oblige_observer()
                self._oblige_reflector()
            case "om.flush.requested":
                ordinal = node.anchor if node.anchor != ROOT else 0
                full = data.get("fullReflectionRebuild") is True
                view.flushes.append(Flushed(entry.id, ordinal, full))
                self._oblige_observer()
            case "om.flush.completed" | "om.flush.failed":
                view.flushes = [
                    flush for flush in view.flushes if flush.cause != data.get("flushId")
                ]
            case "om.compact.requested":
                view.requests.append(entry.id)
            case "om.compact.completed" | "om.compact.failed":
                view.requests = [cause for cause in view.requests if cause != data.get("requestId")]
            case "om.run.started":
                run = data.get("runId")
                view.run_id = run if isinstance(run, str) else entry.run_id or entry.id
            case "om.run.finished":
                if data.get("runId") == view.run_id:
                    view.run_id = None
            case str() as name if name.startswith("om.scope."):
                view.scope_entries.append(entry)

    def _oblige_observer(self) -> None:
        """The shortest prefix of what is pending that reaches the threshold must be covered."""
        view = self.view
        if view.threshold <= view.coverage:
            view.threshold = 0
        if not view.threshold:
            reached = 0
            for source in view.pending():
                reached += entry_tokens(source.entry)
                if reached >= view.settings.observation.message_tokens:
                    view.threshold = source.ordinal
                    break
        for flush in view.flushes:
            if flush.reflect_to is None and flush.ordinal <= view.coverage:
                flush.reflect_to = view.n_records

    def _oblige_reflector(self) -> None:
        view = self.view
        if view.reflect_to <= view.n_read:
            view.reflect_to = 0
        waiting = sum(item.token_count for item in view.uncovered())
        if (
            not view.reflect_to
            and view.uncovered()
            and waiting >= view.settings.reflection.observation_tokens
        ):
            view.reflect_to = view.n_records

    def _place(self, entry_id: str | None) -> int | None:
        """Return where a chain entry of the view stands; a side record stands for its anchor."""
        node = None if entry_id is None else self.view.tree.nodes.get(entry_id)
        if node is None:
            return None
        return node.anchor if node.anchor != ROOT else 0

    def _fresh(self, seen: str | None) -> set[str]:
        """Return the ids that were invalidated after ``seen`` and not by then."""
        applied = self.view.tree.invalidations
        names = [each.id for each in applied]
        at = names.index(seen) + 1 if seen in names else 0
        return _ids(applied[at:]) - _ids(applied[:at])

    def _has_lost(self, seen: str | None, after: int, up_to: int) -> bool:
        """Say whether an observation of records after ``after`` up to ``up_to`` was taken since."""
        view, ids = self.view, self._fresh(seen)
        known = _ids(view.tree.invalidations) - ids
        return any(
            after < view.listed_in[item.id] <= up_to
            and view.is_hit(item, ids)
            and not view.is_hit(item, known)
            for item in view.observations.values()
        )

    def _accept(self, kind: str, entry: Entry) -> None:
        self.view.accepted.append(entry)
        self.view.accepted_ids.setdefault(kind, []).append(entry.id)

    def _reject(self, node: Node, reason: str) -> None:
        self.view.rejected[reason] += 1
        self.view.rejected_ids.add(node.entry.id)


def _ids(invalidations: list[Invalidation]) -> set[str]:
    return {name for each in invalidations for name in each.ids}
