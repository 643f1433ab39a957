"""What was done to grants, what was read meanwhile, and what no order of events can explain.

The rule is linearizability, read by read. A read may return a marker only if a grant that counts
may precede it: one whose place on the log is after that of every revocation that was acknowledged
before the read began. And a read that says ``not_granted`` is wrong if a grant was acknowledged
before it began and no revocation after that one had begun before it ended.
"""

import threading
from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from typing import Literal

import msgspec

Act = Literal["grant", "revoke"]
NEVER = 1 << 62


class Change(msgspec.Struct, frozen=True):
    """A grant or a revocation of one principal; without an offset its outcome is not known."""

    act: Act
    owner: str
    principal: str
    began: int
    ended: int = NEVER
    offset: int | None = None


class Read(msgspec.Struct, frozen=True):
    """One read of an owner's scope: whose markers it returned, or why it was denied."""

    owner: str
    reader: str
    began: int
    ended: int
    seen: frozenset[str]
    reason: str | None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the history comes to."""

    n_reads: int
    n_granted: int
    n_unavailable: int
    n_counted: int
    """Reads that began after an acknowledged revocation of one who had read the marker before."""
    n_changes: int
    served: tuple[str, ...]
    """Markers that were returned after an acknowledged revocation."""
    denied: tuple[str, ...]
    """Reads that were told ``not_granted`` while they were granted."""


class History:
    """Kept by many threads; judged by one."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.reads: list[Read] = []
        self._lock = threading.Lock()

    def changed(self, change: Change) -> None:
        with self._lock:
            self.changes.append(change)

    def read(self, read: Read) -> None:
        with self._lock:
            self.reads.append(read)

    def judged(self) -> Verdict:
        """Return the verdict over everything that was kept."""
        of: dict[tuple[str, str], _Line] = defaultdict(_Line)
        for change in self.changes:
            of[change.owner, change.principal].add(change)
        for line in of.values():
            line.settle()
        served: list[str] = []
        denied: list[str] = []
        n_counted = 0
        have_read: set[tuple[str, str]] = set()
        for read in sorted(self.reads, key=lambda each: each.began):
            line = of[read.owner, read.reader]
            place = (read.owner, read.reader)
            if not line.may_hold(read.began, read.ended):
                n_counted += place in have_read
                if read.seen:
                    served.append(f"{read.reader} read {read.owner}: {read!r}")
            for principal in read.seen - {read.owner}:
                if not of[read.owner, principal].may_hold(read.began, read.ended):
                    served.append(f"{read.reader} saw {principal} in {read.owner}: {read!r}")
            if read.seen:
                have_read.add(place)
            if read.reason == "not_granted" and line.must_hold(read.began, read.ended):
                denied.append(f"{read.reader} at {read.owner}: {read!r}")
        return Verdict(
            n_reads=len(self.reads),
            n_granted=sum(read.reason is None for read in self.reads),
            n_unavailable=sum(read.reason == "unavailable" for read in self.reads),
            n_counted=n_counted,
            n_changes=len(self.changes),
            served=tuple(served),
            denied=tuple(denied),
        )


class _Line:
    """The changes of one principal at one owner, each question answered by a search."""

    def __init__(self) -> None:
        self._changes: list[Change] = []
        self.settle()

    def add(self, change: Change) -> None:
        self._changes.append(change)

    def settle(self) -> None:
        """Lay out how far on the log something reached, by when it began or was acknowledged.

        A change of unknown outcome never was acknowledged, and may lie anywhere.
        """
        grants = [each for each in self._changes if each.act == "grant"]
        revocations = [each for each in self._changes if each.act == "revoke"]
        self._granted_by_start = _reach(grants, acknowledged=False)
        self._granted_by_end = _reach(grants, acknowledged=True)
        self._revoked_by_start = _reach(revocations, acknowledged=False)
        self._revoked_by_end = _reach(revocations, acknowledged=True)

    def may_hold(self, began: int, ended: int) -> bool:
        """Say whether some order lets the principal hold a grant during the read."""
        return _before(self._granted_by_start, ended) > _before(self._revoked_by_end, began)

    def must_hold(self, began: int, ended: int) -> bool:
        """Say whether every order has the principal hold a grant during the whole read."""
        return _before(self._granted_by_end, began) > _before(self._revoked_by_start, ended)


Reach = tuple[list[int], list[int]]


def _reach(changes: list[Change], *, acknowledged: bool) -> Reach:
    known = [each for each in changes if not acknowledged or each.offset is not None]
    known.sort(key=lambda each: each.ended if acknowledged else each.began)
    instants = [each.ended if acknowledged else each.began for each in known]
    offsets = (NEVER if each.offset is None else each.offset for each in known)
    return instants, list(accumulate(offsets, max))


def _before(reach: Reach, instant: int) -> int:
    """Return the highest place on the log before ``instant``; -1: there is nothing."""
    index = bisect_left(reach[0], instant)
    return reach[1][index - 1] if index else -1
