"""Many parents with many children under the manual clock: what each parent hears adds up.

``python -m tests.supervision.load --seconds 60`` is the full size: 32 parents, 32 children each,
ten events a second offered by each child, by half of them in bursts.
"""

import argparse
import resource
import sys
import time
from collections import Counter, defaultdict

import msgspec
from ombus_schemas.codec import encode, key_of
from ombus_schemas.entries import Entry
from ombus_schemas.supervision import (
    ChildEventsCapped,
    ChildEventsClosed,
    ChildEventsCoalesced,
    ChildMilestone,
    Delegation,
    SupervisionEvent,
    supervision_event_of,
)
from ombus_streams.runtime.deriver import Deriver
from ombus_streams.supervision.limits import DEFAULT

from tests.supervision.children import delegation, first, told
from tests.support.engine import ManualClock, MemoryLog, MemoryStore

TICK_MS = 100
PER_SECOND = 10
WINDOW_MS = 1_000
MAX_ROW_BYTES = 4_096


class Offered(msgspec.Struct):
    """What a child had to say."""

    said: Delegation
    is_bursty: bool
    n_events: int = 0


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """What all parents heard of all children."""

    children: int
    offered: int
    delivered: int
    coalesced: int
    capped: int
    n_capped_children: int
    max_row_bytes: int
    mib: int
    seconds: float


class Ear:
    """What one parent heard of one child, checked as it comes."""

    def __init__(self) -> None:
        self.delivered = self.coalesced = 0
        self.is_capped = False
        self.closed: ChildEventsClosed | None = None
        self.windows: list[int] = []
        self._place = (-1, -1)

    def hear(self, body: SupervisionEvent, at_ms: int, limits: dict[str, int]) -> None:
        place = (body.child_ordinal or 0, body.n)
        assert place > self._place, "an event came twice, or before an earlier one"
        self._place = place
        assert self.closed is None, "something came after the end"
        match body:
            case ChildMilestone():
                assert not self.is_capped, "an event came behind the cap"
                self.delivered += 1
                assert self.delivered <= limits["childEvents"]
                self._rate(at_ms, limits["childEventsPerSecond"])
            case ChildEventsCoalesced(dropped=dropped):
                self.coalesced += dropped
            case ChildEventsCapped():
                assert not self.is_capped, "capped twice"
                self.is_capped = True
            case ChildEventsClosed():
                self.closed = body

    def _rate(self, at_ms: int, max_per_second: int) -> None:
        if not self.windows or at_ms >= self.windows[0] + WINDOW_MS:
            self.windows = [at_ms]
        else:
            self.windows.append(at_ms)
        assert len(self.windows) <= max_per_second, "more than the rate in one window"


def load(parents: int, children: int, seconds: int, max_batch: int = 1_000) -> Sums:
    """Offer the load, fold it, and check each child's sums against what it offered.

    Raises:
        AssertionError: a cap or a rate did not hold, or a dropped event is in no marker.
    """
    began = time.monotonic()
    clock = ManualClock()
    entries, events, store = MemoryLog(clock), MemoryLog(clock), MemoryStore()
    deriver = Deriver(store, entries, events, 0)
    offered = [
        Offered(delegation(parent=f"p{parent}", request=f"ask-{child}"), (parent + child) % 2 == 1)
        for parent in range(parents)
        for child in range(children)
    ]
    ears: dict[str, Ear] = defaultdict(Ear)

    def hear() -> None:
        while deriver.step(max_batch):
            pass
        # Neither log is what is measured.
        for record in events.records:
            entry = msgspec.json.decode(record.value or b"", type=Entry)
            body = supervision_event_of(entry)
            assert body is not None
            ears[body.delegation_id].hear(body, record.at_ms, dict(DEFAULT))
        events.records.clear()

    def put(child: Offered, entry: Entry) -> None:
        entries.put(key_of(entry), encode(entry))
        child.n_events += 1

    for child in offered:
        put(child, first(child.said))
    hear()
    for tick in range(seconds * 1_000 // TICK_MS):
        clock.at_ms += TICK_MS
        for child in offered:
            # Ten a second on average: one a tick, or twenty at once every other second.
            n_now = (2 * PER_SECOND if tick % 20 == 0 else 0) if child.is_bursty else 1
            for _ in range(n_now):
                put(child, told(child.said, f"e{child.n_events}", "tool_execution_blocked"))
        hear()
    for child in offered:
        put(child, told(child.said, "end", "agent_finished"))
    hear()
    sums: Counter[str] = Counter()
    for child in offered:
        ear = ears[child.said.delegation_id]
        assert ear.closed is not None
        assert ear.closed.offered == child.n_events
        assert ear.closed.delivered == ear.delivered
        assert ear.closed.coalesced == ear.coalesced
        assert (ear.closed.capped > 0) == ear.is_capped
        assert child.n_events == ear.delivered + ear.coalesced + ear.closed.capped
        sums.update(delivered=ear.delivered, coalesced=ear.coalesced, capped=ear.closed.capped)
        sums.update(n_capped_children=ear.is_capped, offered=child.n_events)
    return Sums(
        children=len(offered),
        offered=sums["offered"],
        delivered=sums["delivered"],
        coalesced=sums["coalesced"],
        capped=sums["capped"],
        n_capped_children=sums["n_capped_children"],
        max_row_bytes=max(len(value) for value in store.rows.rows.values()),
        mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_024,
        seconds=time.monotonic() - began,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parents", type=int, default=32)
    parser.add_argument("--children", type=int, default=32)
    parser.add_argument("--seconds", type=int, default=60)
    said = parser.parse_args()
    sums = load(said.parents, said.children, said.seconds)
    assert sums.max_row_bytes <= MAX_ROW_BYTES
    print(
        f"{sums.children:,} children offered {sums.offered:,} events: {sums.delivered:,} "
        f"delivered, {sums.coalesced:,} coalesced, {sums.capped:,} behind the caps of "
        f"{sums.n_capped_children:,}; "
        f"the largest row has {sums.max_row_bytes:,} bytes; {sums.mib:,} MiB with both logs; "
        f"{sums.seconds:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
