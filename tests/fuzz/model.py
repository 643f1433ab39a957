"""What a hostile log must come to, said again and simply: lists and dictionaries, no rows.

The tree is written from design.md section 4; the memory of a view is that of the pure functions,
which the vectors test. Records of workers that name a base are forged here and count for nothing.
"""

from typing import Literal

import msgspec
from msgspec import UNSET
from ombus_schemas.codec import decode_record
from ombus_schemas.control import invalidation_of
from ombus_schemas.entries import Entry
from ombus_schemas.errors import BadRecord
from ombus_schemas.ids import SYSTEM_TENANT
from ombus_streams.memory.projection import Projection, project

PARKED_FOR = 1_000

Outcome = Literal["attached", "parked", "duplicate", "repeated", "dead", "system"]


class Node:
    """An entry that has come, and where it hangs once it does."""

    def __init__(self, entry: Entry, arrival: int) -> None:
        self.entry, self.arrival = entry, arrival
        self.ordinal = 0
        self.state: Literal["parked", "attached", "left_out"] = "parked"
        self.anchor: Node | None = None
        """The chain entry above it; ``None`` is the root."""
        self.conflict = False
        self.extended = False
        """An accepted chain entry hangs on it."""


class SessionModel:
    """One session."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.invalidated: set[str] = set()
        self.default: Node | None = None
        self.n_duplicates = self.n_repeated = self.n_refused = 0
        self.n_orphans = self.n_left_out = self.n_conflicts = 0
        self._ordinal = 0

    @property
    def parked(self) -> list[Node]:
        """What waits, in arrival order."""
        return [node for node in self.nodes.values() if node.state == "parked"]

    def take(self, entry: Entry) -> Outcome:
        known = self.nodes.get(entry.id)
        if known is not None:
            if known.state == "left_out" or _content(known.entry) == _content(entry):
                self.n_duplicates += 1
                return "duplicate"
            if entry.id.startswith("om:"):
                self.n_repeated += 1
                return "repeated"
            self.n_refused += 1
            return "dead"
        node = self.nodes[entry.id] = Node(entry, len(self.nodes) + 1)
        if entry.data_type == "om.sources.invalidated" and isinstance(entry.data, dict):
            invalidation = invalidation_of(entry.data)
            if invalidation is not None:
                self.invalidated |= set(invalidation.ids)
        if self._is_known(entry):
            self._attach(node, self._above(entry), orphan=False)
            self._attach_waiting(node, orphan=False)
        for waiting in self.parked:
            if len(self.nodes) - waiting.arrival < PARKED_FOR:
                break
            if waiting.state == "parked":
                self._give_up(waiting)
        return "parked" if node.state == "parked" else "attached"

    def leaves(self) -> dict[str, list[Node]]:
        """Return the chain of every leaf by the id of its end."""
        chains: dict[str, list[Node]] = {}
        for node in self.nodes.values():
            is_end = not (node.entry.side or node.conflict or node.extended)
            if node.state == "attached" and is_end:
                chain = [node]
                while chain[-1].anchor is not None:
                    chain.append(chain[-1].anchor)
                chains[node.entry.id] = chain[::-1]
        return chains

    def memory(self, chain: list[Node]) -> Projection:
        """Return the memory of the view of a chain."""
        on = set(map(id, chain))
        seen = [
            node
            for node in self.nodes.values()
            if node.state == "attached"
            and (
                id(node) in on
                or (node.entry.side and (node.anchor is None or id(node.anchor) in on))
            )
        ]
        seen.sort(key=lambda node: node.ordinal)
        entries = [node.entry for node in seen if not _names_base(node.entry)]
        return project(entries, None, frozenset(self.invalidated))

    def _is_known(self, entry: Entry) -> bool:
        if entry.parent is None:
            return True
        above = self.nodes.get(entry.parent)
        return above is not None and above.state == "attached"

    def _above(self, entry: Entry) -> Node | None:
        if entry.parent is None:
            return None
        above = self.nodes[entry.parent]
        return above.anchor if above.entry.side else above

    def _attach(self, node: Node, above: Node | None, *, orphan: bool) -> None:
        self._ordinal += 1
        node.ordinal, node.state, node.anchor = self._ordinal, "attached", above
        if node.entry.side:
            return
        node.conflict = above is not None and above.conflict
        expected = node.entry.expected_leaf
        if expected is not None and not node.conflict:
            wins = above is not None and not above.extended and expected == node.entry.parent
            node.conflict = not wins
        if node.conflict:
            self.n_conflicts += 1
            return
        if above is not None:
            above.extended = True
        if not orphan or self.default is None:
            self.default = node

    def _attach_waiting(self, first: Node, *, orphan: bool) -> None:
        """Attach what waited, in arrival order, again and again until nothing attaches."""
        found = True
        while found:
            found = False
            for node in self.parked:
                if self._is_known(node.entry):
                    self._attach(node, self._above(node.entry), orphan=orphan)
                    found = True

    def _give_up(self, node: Node) -> None:
        if node.entry.side:
            node.state = "left_out"
            self.n_left_out += 1
            return
        self.n_orphans += 1
        self._attach(node, None, orphan=True)
        self._attach_waiting(node, orphan=True)


class Model:
    """All sessions of a log."""

    def __init__(self) -> None:
        self.sessions: dict[bytes, SessionModel] = {}

    def take(self, key: bytes | None, value: bytes | None) -> Outcome:
        """Say what a record comes to."""
        try:
            entry = decode_record(key, value)
        except BadRecord:
            return "dead"
        if entry.tenant_id == SYSTEM_TENANT:
            return "system"
        if entry.parent_id is UNSET:
            return "dead"
        assert key is not None
        return self.sessions.setdefault(key, SessionModel()).take(entry)

    def tip(self, key: bytes | None) -> str | None:
        """Return the default leaf of a session."""
        session = self.sessions.get(key) if key is not None else None
        return session.default.entry.id if session is not None and session.default else None


def _content(entry: Entry) -> Entry:
    return msgspec.structs.replace(
        entry, parent_id=UNSET, timestamp="", origin=None, ownership=None, expected_leaf=None
    )


def _names_base(entry: Entry) -> bool:
    return isinstance(entry.data, dict) and "base" in entry.data
