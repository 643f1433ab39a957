"""``python -m tests.scopes.cost``: what sharing costs, on a Kafka and a Redis of its own.

Prints an own read beside shared ones (median and p99; quiet, and while entries are appended), and
what happens when Redis is stopped, and when it is wiped.
"""

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog
from ombus.dev import kafka as dev_kafka
from ombus_schemas.ids import session_key
from ombus_streams.memory import reading
from ombus_streams.memory.shared import SharedMemory
from ombus_streams.runtime.row_branches import RowBranches
from ombus_streams.runtime.shared_reads import SharedReads

from tests.scopes.fleet import TENANT, asking, make_sessions, sharing
from tests.scopes.servers import Server, wait_until
from tests.scopes.stand import Resolver, Stand

N_READS = 400
N_PEERS = 49
N_OWNERS_WIPED = 2_000
ENTRIES_A_SECOND = 1_000


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--reads", type=int, default=N_READS)
    n_reads = asked.parse_args().reads
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with tempfile.TemporaryDirectory(prefix="ombus-cost-") as place:
        folder = Path(place)
        cluster = dev_kafka.up(folder / "kafka")
        server = Server(folder / "redis")
        stand = Stand(folder, cluster.bootstrap, server.url, n_granters=1)
        resolver = Resolver(stand.seats[0])
        try:
            _measure(stand, resolver, server, n_reads)
        finally:
            resolver.close()
            stand.close()
            server.kill()
            dev_kafka.down(folder / "kafka", wipe=True)


def _measure(stand: Stand, resolver: Resolver, server: Server, n_reads: int) -> None:
    peers = [f"p{n}" for n in range(N_PEERS)]
    make_sessions(stand.engine, peers)
    reads = resolver.over(RowBranches(stand.engine.reading))
    stand.change("grant", "o0", "r0")
    stand.change("grant", "o1", "r0", *peers)
    one, many = asking(stand.engine, "r0", "o0"), asking(stand.engine, "r0", "o1")
    wait_until(lambda: len(reads.resolve(many).observations) == N_PEERS + 1)

    def own(shared: SharedMemory | None = None) -> None:
        with stand.engine.reading(session_key(TENANT, "r0")) as live:
            leaf = live.session.leaf(live.session.head.default_segment)
            reading.context(live.session, leaf, shared=shared)

    kinds: list[tuple[str, Callable[[], None]]] = [
        ("own read", own),
        ("shared read, 1 branch", lambda: own(reads.resolve(one))),
        (f"shared read, {N_PEERS + 1} branches", lambda: own(reads.resolve(many))),
    ]
    for name, read in kinds:
        print(f"quiet: {name}: {_times(read, n_reads)}")
    with Appending(stand) as appending:
        for name, read in kinds:
            print(f"at {ENTRIES_A_SECOND:,} entries/s: {name}: {_times(read, n_reads)}")
    print(f"appended meanwhile: {appending.n_entries / appending.seconds:,.0f} entries/s")
    server.kill()
    began = time.perf_counter()
    shared = reads.resolve(one)
    print(
        f"Redis stopped: {len(shared.observations)} shared, denied as "
        f"{resolver.decisions.last().access.reason} in {time.perf_counter() - began:.3f} s; own: "
        f"{_times(own, n_reads)}"
    )
    server.start()
    wait_until(lambda: len(reads.resolve(one).observations) == 1)
    _wipe(stand, server, reads)


def _wipe(stand: Stand, server: Server, reads: SharedReads) -> None:
    from tests.scopes.fleet import Owner

    for n in range(N_OWNERS_WIPED):
        owner = Owner(stand.log, f"w{n}")
        owner.take()
        owner.grant("r0", "r1")
    one = asking(stand.engine, "r0", "o0")
    wait_until(lambda: len(reads.resolve(one).observations) == 1, 60)
    began = time.perf_counter()
    server.client().flushall()
    wait_until(lambda: len(reads.resolve(one).observations) == 1, 60)
    n_records = sum(stand.log.end(each) for each in range(stand.log.partitions))
    print(
        f"Redis wiped: the maps of {N_OWNERS_WIPED + len(stand.owners):,} sessions "
        f"({n_records:,} records) are served again after {time.perf_counter() - began:.2f} s"
    )


def _times(read: Callable[[], None], n_reads: int) -> str:
    found: list[float] = []
    for _ in range(n_reads):
        began = time.perf_counter()
        read()
        found.append((time.perf_counter() - began) * 1_000)
    return _shown(found)


def _shown(found: Sequence[float]) -> str:
    p99 = statistics.quantiles(found, n=100)[98]
    return f"median {statistics.median(found):.2f} ms, p99 {p99:.2f} ms"


class Appending:
    """Appends entries of other sessions and folds them, at about so many a second."""

    def __init__(self, stand: Stand) -> None:
        self._stand, self._ending = stand, threading.Event()
        self._thread = threading.Thread(target=self._append)
        self.n_entries, self.seconds = 0, 1.0

    def __enter__(self) -> "Appending":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _append(self) -> None:
        began, n_sessions = time.monotonic(), 0
        while not self._ending.is_set():
            entries = [each for n in range(20) for each in sharing(f"noise{n_sessions + n}")]
            n_sessions += 20
            self._stand.engine.append(entries)
            while self._stand.engine.fold():
                pass
            self.n_entries += len(entries)
            self.seconds = max(time.monotonic() - began, 0.001)
            self._ending.wait(max(0.0, self.n_entries / ENTRIES_A_SECOND - self.seconds))


if __name__ == "__main__":
    main()
