"""Which entry each entry of a transcript hangs on: the chain and its true forks.

Native trees fork where nobody went back: parallel tool calls, progress rows, one row per block.
Here a fork is only where two *user texts* share a parent (formats.md section 2); everything else
that looks like one is put behind what is there, in file order. So no result is parted from its
call by a fork, and a branch is always something the user did.

A node is a row that becomes entries; nodes are numbers in file order. A *way* is a stretch of
chain without fork, and knows its last node (its tip). ``ROOT`` stands above all roots.
"""

from array import array
from collections.abc import Sequence
from typing import Final

from ombus.importers.canonical import Voice

MAX_LATE: Final = 900
"""Nodes a child may come before its parent. The log parks it for 1,000 entries (design.md 4)."""

BEFORE: Final = -2
"""Native parent of a node that names none: what stands before it."""
ROOT: Final = -1
"""Native parent of a declared root."""
MISSING: Final = -3
"""Missing parents are this and below: one number for each missing id."""


class Lineage:
    """The parents of a transcript's nodes, and why some differ from what the file says."""

    def __init__(self) -> None:
        self.parents = array("i")
        """By placed node: the node it hangs on, or ``ROOT``."""
        self.missing: set[int] = set()
        """Nodes whose named parent is in no readable row."""
        self.rehung: set[int] = set()
        """Nodes whose named parent would close a circle or comes too late."""
        self.forks = 0


def lineage_of(natives: Sequence[int], voices: Sequence[int]) -> Lineage:
    """Return where each node hangs, given native parents and voices by node; O(n)."""
    places = Places()
    places.extend(natives, voices)
    while places.n_placed < places.n_known:
        places.place()
    return places.lineage


class Places:
    """Nodes in file order, known before they are placed; where a placed one hangs is settled.

    A file that is still written gives its nodes bit by bit: what was placed stays, later nodes
    find their place around it.
    """

    def __init__(self) -> None:
        self.lineage = Lineage()
        self._natives = array("i")
        self._voices = bytearray()
        self._leads = bytearray()
        self._is_linked = True
        # Union-find twice: over nodes (which top is above me?) and over ways (which tip is below?)
        # Slot 0 is the root, the slot of a node is its number + 1.
        self._above = array("i", [0])
        self._way = array("i", [-1])
        self._way_merged = array("i")
        self._tips = array("i")
        self._last_fork_way: dict[int, int] = {}
        self._fork_points: dict[int, int] = {}
        self._anchors: dict[int, int] = {}
        self._last = ROOT
        self._way_of(ROOT)

    @property
    def n_known(self) -> int:
        return len(self._natives)

    @property
    def n_placed(self) -> int:
        return len(self.lineage.parents)

    def extend(self, natives: Sequence[int], voices: Sequence[int]) -> None:
        """Know more nodes: their native parents (which may come later) and voices."""
        first = len(self._natives)
        self._natives.extend(natives)
        self._voices += bytes(voices)
        self._leads += bytes(len(natives))
        self._above.extend(range(first + 1, first + 1 + len(natives)))
        self._way.extend([-1] * len(natives))
        for node in range(first, len(self._natives)):
            self._note_leading(node)
            if node and self._natives[node] == ROOT and self._voices[node] == Voice.TURN:
                # A declared root means a root, but not where turns declare themselves roots too.
                self._is_linked = False

    def native(self, node: int) -> int:
        return self._natives[node]

    def name(self, node: int, native: int) -> None:
        """Say what the native parent of a node is, which was missing before."""
        self._natives[node] = native

    def leads(self, node: int) -> bool:
        """Say whether the conversation below a node is known to begin with a user text."""
        return bool(self._leads[node])

    def is_moved(self, node: int) -> bool:
        """Say whether the next node hangs elsewhere than it says, placed now."""
        native = self._natives[node]
        if native <= BEFORE or (native == ROOT and not self._is_linked):
            return False
        return not self._leads[node] and native < self.n_placed and self._tip(native) != native

    def place(self) -> None:
        """Hang the next node."""
        node = len(self.lineage.parents)
        self.lineage.parents.append(ROOT)
        self._place(node, self._natives[node])
        if self._top(node) == ROOT:
            self._last = node

    def _place(self, node: int, native: int) -> None:
        if native == BEFORE or (native == ROOT and not self._is_linked):
            self._hang(node, self._tip(self._last))
        elif native <= MISSING:
            self.lineage.missing.add(node)
            self._hang_or_fork(node, self._anchors.setdefault(native, self._last))
        elif native - node > MAX_LATE:
            self.lineage.rehung.add(node)
            self._hang(node, self._tip(self._last))
        else:
            self._hang_or_fork(node, native)

    def _hang_or_fork(self, node: int, native: int) -> None:
        """Hang ``node`` below ``native``: on it, beside another user text, or behind its tip."""
        fork = self._fork_points.get(native)
        if self._leads[node] and fork is not None and self._top(fork) != node:
            self.lineage.forks += 1
            self._hang(node, fork)
            self._last_fork_way[native] = self._way_of(node)
            return
        target = self._tip(native)
        if self._top(target) == node:
            self.lineage.rehung.add(node)
            target = self._tip(self._last)
        elif self._leads[node]:
            self._fork_points[native] = target
        self._hang(node, target)

    def _hang(self, node: int, target: int) -> None:
        self.lineage.parents[node] = target
        self._above[node + 1] = target + 1
        way, own = self._way_of(target), self._way[node + 1]
        if self._tips[way] != target:
            self._way_of(node)
        elif own < 0:
            self._way[node + 1] = way
            self._tips[way] = node
        else:
            own = self._merged(own)
            self._way_merged[own] = way
            self._tips[way] = self._tips[own]

    def _tip(self, node: int) -> int:
        way = self._last_fork_way.get(node)
        return self._tips[self._merged(self._way_of(node) if way is None else way)]

    def _way_of(self, node: int) -> int:
        if self._way[node + 1] < 0:
            self._way[node + 1] = len(self._tips)
            self._way_merged.append(len(self._tips))
            self._tips.append(node)
        return self._merged(self._way[node + 1])

    def _merged(self, way: int) -> int:
        merged = self._way_merged
        while merged[way] != way:
            merged[way] = merged[merged[way]]
            way = merged[way]
        return way

    def _top(self, node: int) -> int:
        above = self._above
        slot = node + 1
        while above[slot] != slot:
            above[slot] = above[above[slot]]
            slot = above[slot]
        return slot - 1

    def _note_leading(self, node: int) -> None:
        """Note that the conversation at a user text, and at passive rows above it, begins so.

        A program may write a setting, a label or a branch summary between the place a user went
        back to and the new text: such a passive row speaks for the text that follows it.
        """
        at = node
        while self._voices[node] == Voice.HUMAN and not self._leads[at]:
            self._leads[at] = 1
            at = self._natives[at]
            if not 0 <= at < len(self._voices) or self._voices[at] != Voice.PASSIVE:
                break
