"""What was done to grants, what was read meanwhile, and what no order of events can explain.

The rule is linearizability, read by read. A read may return a marker only if a grant that counts
may precede it: one whose place on the log is after that of every revocation that was acknowledged
before the read began. And a read that says ``not_granted`` is wrong if a grant was acknowledged
before it began and no revocation after that one had begun before it ended.

Reads are judged as they come and then forgotten, each once every change that began before it ended
is known. Instants are those of the monotonic clock, which the processes of one host share.
"""

import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
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
    """What a history comes to."""

    n_reads: int = 0
    n_granted: int = 0
    n_unavailable: int = 0
    n_counted: int = 0
    """Reads that began after an acknowledged revocation of one who had read the marker before."""
    n_changes: int = 0
    served: tuple[str, ...] = ()
    """Markers that were returned after an acknowledged revocation."""
    denied: tuple[str, ...] = ()
    """Reads that were told ``not_granted`` while they were granted."""

    @property
    def is_violated(self) -> bool:
        return bool(self.served or self.denied)

    def __add__(self, other: "Verdict") -> "Verdict":
        """Return what two histories that have nothing in common come to."""
        return Verdict(
            n_reads=self.n_reads + other.n_reads,
            n_granted=self.n_granted + other.n_granted,
            n_unavailable=self.n_unavailable + other.n_unavailable,
            n_counted=self.n_counted + other.n_counted,
            n_changes=self.n_changes + other.n_changes,
            served=self.served + other.served,
            denied=self.denied + other.denied,
        )


class History:
    """Kept by many threads; judged by one.

    The reads of one reader at one owner come in their order, and a read comes after it has ended.
    """

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], _Line] = defaultdict(_Line)
        self._waiting: list[Read] = []
        self._under_way: dict[str, int] = {}
        self._have_read: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._verdict = Verdict()

    def begin(self, owner: str) -> int:
        """Note that a change of this owner begins now, and return when that was."""
        with self._lock:
            began = self._under_way[owner] = time.monotonic_ns()
            return began

    def end(self, owner: str, changes: Iterable[Change]) -> None:
        """Keep what came of the change that was begun."""
        for change in changes:
            self.changed(change)
        with self._lock:
            del self._under_way[owner]

    def changed(self, change: Change) -> None:
        with self._lock:
            self._lines[change.owner, change.principal].add(change)
            verdict = self._verdict
            self._verdict = msgspec.structs.replace(verdict, n_changes=verdict.n_changes + 1)

    def read(self, *reads: Read) -> None:
        with self._lock:
            self._waiting += reads

    def judged(self) -> Verdict:
        """Return the verdict over everything that can be judged by now."""
        with self._lock:
            horizon = min(self._under_way.values(), default=time.monotonic_ns())
            done = [read for read in self._waiting if read.ended <= horizon]
            self._waiting = [read for read in self._waiting if read.ended > horizon]
            for line in self._lines.values():
                line.settle()
            self._verdict += self._over(done)
            return self._verdict

    def _over(self, reads: list[Read]) -> Verdict:
        served: list[str] = []
        denied: list[str] = []
        n_counted = 0
        for read in reads:
            line = self._lines[read.owner, read.reader]
            place = (read.owner, read.reader)
            if not line.may_hold(read.began, read.ended):
                n_counted += place in self._have_read
                if read.seen:
                    served.append(f"{read.reader} read {read.owner}: {read!r}")
            for principal in read.seen - {read.owner}:
                if not self._lines[read.owner, principal].may_hold(read.began, read.ended):
                    served.append(f"{read.reader} saw {principal} in {read.owner}: {read!r}")
            if read.seen:
                self._have_read.add(place)
            if read.reason == "not_granted" and line.must_hold(read.began, read.ended):
                denied.append(f"{read.reader} at {read.owner}: {read!r}")
        return Verdict(
            n_reads=len(reads),
            n_granted=sum(read.reason is None for read in reads),
            n_unavailable=sum(read.reason == "unavailable" for read in reads),
            n_counted=n_counted,
            served=tuple(served),
            denied=tuple(denied),
        )


class _Line:
    """The changes of one principal at one owner, each question answered by a search."""

    def __init__(self) -> None:
        self._changes: list[Change] = []
        self._is_settled = False
        self.settle()

    def add(self, change: Change) -> None:
        self._changes.append(change)
        self._is_settled = False

    def settle(self) -> None:
        """Lay out how far on the log something reached, by when it began or was acknowledged.

        A change of unknown outcome never was acknowledged, and may lie anywhere.
        """
        if self._is_settled:
            return
        grants = [each for each in self._changes if each.act == "grant"]
        revocations = [each for each in self._changes if each.act == "revoke"]
        self._granted_by_start = _reach(grants, acknowledged=False)
        self._granted_by_end = _reach(grants, acknowledged=True)
        self._revoked_by_start = _reach(revocations, acknowledged=False)
        self._revoked_by_end = _reach(revocations, acknowledged=True)
        self._is_settled = True

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
