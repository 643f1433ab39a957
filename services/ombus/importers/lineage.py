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

    def __init__(self, n_nodes: int) -> None:
        self.parents = array("i", [ROOT]) * n_nodes
        """By node: the node it hangs on, or ``ROOT``."""
        self.missing: set[int] = set()
        """Nodes whose named parent is in no readable row."""
        self.rehung: set[int] = set()
        """Nodes whose named parent would close a circle or comes too late."""
        self.forks = 0


def lineage_of(natives: Sequence[int], voices: Sequence[int]) -> Lineage:
    """Return where each node hangs, given native parents and voices by node; O(n)."""
    return _Builder(natives, voices).build()


class _Builder:
    def __init__(self, natives: Sequence[int], voices: Sequence[int]) -> None:
        n = len(natives)
        self._natives = natives
        self._result = Lineage(n)
        self._root = n
        self._leads = _leading(natives, voices)
        self._is_linked = _is_linked(natives, voices)
        # Union-find twice: over nodes (which top is above me?) and over ways (which tip is below?)
        self._above = array("i", range(n + 1))
        self._way = array("i", [-1]) * (n + 1)
        self._way_merged = array("i")
        self._tips = array("i")
        self._last_fork_way: dict[int, int] = {}
        self._fork_points: dict[int, int] = {}
        self._anchors: dict[int, int] = {}
        self._last = n
        self._way_of(n)

    def build(self) -> Lineage:
        for node, native in enumerate(self._natives):
            self._place(node, native)
            if self._top(node) == self._root:
                self._last = node
        return self._result

    def _place(self, node: int, native: int) -> None:
        if native == BEFORE or (native == ROOT and not self._is_linked):
            self._hang(node, self._tip(self._last))
        elif native == ROOT:
            self._hang_or_fork(node, self._root)
        elif native <= MISSING:
            self._result.missing.add(node)
            self._hang_or_fork(node, self._anchors.setdefault(native, self._last))
        elif native - node > MAX_LATE:
            self._result.rehung.add(node)
            self._hang(node, self._tip(self._last))
        else:
            self._hang_or_fork(node, native)

    def _hang_or_fork(self, node: int, native: int) -> None:
        """Hang ``node`` below ``native``: on it, beside another user text, or behind its tip."""
        fork = self._fork_points.get(native)
        if self._leads[node] and fork is not None and self._top(fork) != node:
            self._result.forks += 1
            self._hang(node, fork)
            self._last_fork_way[native] = self._way_of(node)
            return
        target = self._tip(native)
        if self._top(target) == node:
            self._result.rehung.add(node)
            target = self._tip(self._last)
        elif self._leads[node]:
            self._fork_points[native] = target
        self._hang(node, target)

    def _hang(self, node: int, target: int) -> None:
        self._result.parents[node] = ROOT if target == self._root else target
        self._above[node] = target
        way, own = self._way_of(target), self._way[node]
        if self._tips[way] != target:
            self._way_of(node)
        elif own < 0:
            self._way[node] = way
            self._tips[way] = node
        else:
            own = self._merged(own)
            self._way_merged[own] = way
            self._tips[way] = self._tips[own]

    def _tip(self, node: int) -> int:
        way = self._last_fork_way.get(node)
        return self._tips[self._merged(self._way_of(node) if way is None else way)]

    def _way_of(self, node: int) -> int:
        if self._way[node] < 0:
            self._way[node] = len(self._tips)
            self._way_merged.append(len(self._tips))
            self._tips.append(node)
        return self._merged(self._way[node])

    def _merged(self, way: int) -> int:
        merged = self._way_merged
        while merged[way] != way:
            merged[way] = merged[merged[way]]
            way = merged[way]
        return way

    def _top(self, node: int) -> int:
        above = self._above
        while above[node] != node:
            above[node] = above[above[node]]
            node = above[node]
        return node


def _leading(natives: Sequence[int], voices: Sequence[int]) -> bytearray:
    """Say of each node whether the conversation below it begins with a user text.

    A program may write a setting, a label or a branch summary between the place a user went back
    to and the new text: such a passive row speaks for the text that follows it.
    """
    leads = bytearray(len(natives))
    for node, voice in enumerate(voices):
        at = node
        while voice == Voice.HUMAN and not leads[at]:
            leads[at] = 1
            at = natives[at]
            if at < 0 or voices[at] != Voice.PASSIVE:
                break
    return leads


def _is_linked(natives: Sequence[int], voices: Sequence[int]) -> bool:
    """Say whether a declared root means a root: not where turns declare themselves roots too."""
    return not any(
        native == ROOT and voice == Voice.TURN
        for native, voice in zip(natives[1:], voices[1:], strict=True)
    )
