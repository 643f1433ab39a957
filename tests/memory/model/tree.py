"""The tree of a session as design.md section 4 words it: slow, flat, nothing incremental.

Everything is rebuilt from the list of entries in log order; nothing is shared with the fold.
"""

from dataclasses import dataclass, field, replace

import msgspec
from ombus_schemas.copies import copied_from
from ombus_schemas.entries import Entry

ROOT = -1
"""The place above every root."""


@dataclass(frozen=True)
class Invalidation:
    """Applies to every leaf, before whatever attaches from ``ordinal`` on."""

    ordinal: int
    id: str
    ids: tuple[str, ...]


@dataclass
class Node:
    """An attached entry. ``anchor``: the chain entry it is, or hangs on (``ROOT`` above all)."""

    entry: Entry
    ordinal: int
    parent: int
    anchor: int
    conflict: bool = False
    orphan: bool = False


@dataclass
class Tree:
    nodes: dict[str, Node] = field(default_factory=dict)
    by_ordinal: dict[int, Node] = field(default_factory=dict)
    invalidations: list[Invalidation] = field(default_factory=list)
    parked: list[tuple[int, Entry]] = field(default_factory=list)
    left_out: dict[str, Entry] = field(default_factory=dict)
    default_leaf: str | None = None
    n_duplicates: int = 0
    n_repeated_runs: int = 0
    n_refused: int = 0
    n_orphans: int = 0
    next_ordinal: int = 1

    def leaves(self) -> list[Node]:
        """Return the chain entries that lost no race and that no accepted chain entry follows."""
        chain = [node for node in self.nodes.values() if not node.entry.side and not node.conflict]
        followed = {node.parent for node in chain}
        return [node for node in chain if node.ordinal not in followed]

    def chain(self, leaf: Node) -> list[Node]:
        """Return the chain in parent order."""
        found = [leaf]
        while found[-1].parent != ROOT:
            found.append(self.by_ordinal[found[-1].parent])
        return found[::-1]

    def view(self, leaf: Node) -> list[Node]:
        """Return the chain and the side records anchored on it, in the order they attached."""
        on_chain = {node.ordinal for node in self.chain(leaf)} | {ROOT}
        chain = self.chain(leaf)
        sides = [
            node for node in self.nodes.values() if node.entry.side and node.anchor in on_chain
        ]
        return sorted(chain + sides, key=lambda node: node.ordinal)


def build(log: list[Entry], parked_for: int) -> Tree:
    """Return the tree of the entries of one session, in the order the log has them."""
    tree = Tree()
    first: dict[str, Entry] = {}
    n_arrived = 0
    for entry in log:
        if entry.id in first:
            _again(tree, first[entry.id], entry)
            continue
        first[entry.id] = entry
        n_arrived += 1
        _invalidate(tree, entry)
        tree.parked.append((n_arrived, entry))
        _attach_what_can(tree, orphan=False)
        while tree.parked and n_arrived - tree.parked[0][0] >= parked_for:
            _, given_up = tree.parked.pop(0)
            if given_up.side:
                tree.left_out[given_up.id] = given_up
                continue
            tree.n_orphans += 1
            _attach(tree, given_up, ROOT, orphan=True)
            _attach_what_can(tree, orphan=True)
    return tree


def _attach_what_can(tree: Tree, *, orphan: bool) -> None:
    """Attach what has its parent: in arrival order, again and again until nothing attaches."""
    moved = True
    while moved:
        moved = False
        for arrival, entry in list(tree.parked):
            parent = _parent(tree, entry)
            if parent is not None:
                tree.parked.remove((arrival, entry))
                _attach(tree, entry, parent, orphan=orphan)
                moved = True


def _parent(tree: Tree, entry: Entry) -> int | None:
    if entry.parent is None:
        is_copy = copied_from(entry) is not None and tree.default_leaf is not None
        return tree.nodes[tree.default_leaf].ordinal if is_copy and tree.default_leaf else ROOT
    node = tree.nodes.get(entry.parent)
    return None if node is None else node.anchor


def _attach(tree: Tree, entry: Entry, parent: int, *, orphan: bool) -> None:
    ordinal = tree.next_ordinal
    tree.next_ordinal += 1
    anchor = parent if entry.side else ordinal
    node = Node(entry, ordinal, parent, anchor, orphan=orphan)
    if not entry.side:
        above = tree.by_ordinal.get(parent)
        if above is not None and above.conflict:
            node = replace(node, conflict=True)
        elif entry.expected_leaf is not None:
            siblings = [
                other
                for other in tree.nodes.values()
                if not other.entry.side and not other.conflict and other.parent == parent
            ]
            wins = above is not None and entry.expected_leaf == entry.parent_id and not siblings
            node = replace(node, conflict=not wins)
        if not node.conflict and not orphan:
            tree.default_leaf = entry.id
    tree.nodes[entry.id] = node
    tree.by_ordinal[ordinal] = node


def _invalidate(tree: Tree, entry: Entry) -> None:
    data = entry.data
    if not isinstance(data, dict) or data.get("type") != "om.sources.invalidated":
        return
    ids = data.get("ids")
    if isinstance(ids, list):
        names = tuple(name for name in ids if isinstance(name, str))
        if names:
            tree.invalidations.append(Invalidation(tree.next_ordinal, entry.id, names))


def _again(tree: Tree, first: Entry, entry: Entry) -> None:
    if _said(first) == _said(entry):
        tree.n_duplicates += 1
    elif entry.id.startswith("om:"):
        tree.n_repeated_runs += 1
    else:
        tree.n_refused += 1


def _said(entry: Entry) -> Entry:
    return msgspec.structs.replace(
        entry, parent_id=None, timestamp="", origin=None, ownership=None, expected_leaf=None
    )
