"""``python -m tests.scopes.chaos``: the grant history at full size, on servers of its own.

Prints what was read, what went wrong on the way, and what no order of events explains; ends with 1
if there is any such thing.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import structlog
from ombus.dev import kafka as dev_kafka
from ombus_streams.runtime.shared_reads import SharedReads

from tests.scopes.disturbance import Disturber
from tests.scopes.servers import Pair
from tests.scopes.stand import BoundlessReads, CachedReads, Stand
from tests.scopes.traffic import Traffic

KINDS: dict[str, type[SharedReads]] = {
    "none": SharedReads,
    "cached": CachedReads,
    "boundless": BoundlessReads,
}


def main() -> int:
    asked = argparse.ArgumentParser()
    asked.add_argument("--reads", type=int, default=20_000)
    asked.add_argument("--seconds", type=float, default=3_600)
    asked.add_argument("--pause", type=float, default=1.0, help="between two disturbances")
    asked.add_argument("--mutation", choices=KINDS, default="none")
    asked.add_argument("--seed", type=int, default=1)
    said = asked.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with tempfile.TemporaryDirectory(prefix="ombus-grants-") as place:
        folder = Path(place)
        cluster = dev_kafka.up(folder / "kafka")
        pair = Pair(folder / "redis")
        stand = Stand(folder, cluster.bootstrap, pair.url, kind=KINDS[said.mutation])
        disturber = Disturber(stand, pair, said.seed, said.pause)
        traffic = Traffic(stand, said.reads, said.seconds)
        started = time.monotonic()
        try:
            verdict = traffic.run()
        finally:
            seconds = time.monotonic() - started
            disturber.close()
            stand.close()
            pair.close()
            dev_kafka.down(folder / "kafka", wipe=True)
    for line in (*verdict.served[:10], *verdict.denied[:10]):
        print(line)
    print(
        f"disturbed: {json.dumps(dict(disturber.done))}; granters started "
        f"{sum(each.n_starts for each in stand.granters)} times, repaired "
        f"{sum(each.n_repaired for each in stand.granters)} maps"
    )
    print(
        f"{verdict.n_reads:,} reads in {seconds:.0f} s ({verdict.n_granted:,} granted, "
        f"{verdict.n_unavailable:,} unavailable), {verdict.n_changes:,} grants and revocations; "
        f"{verdict.n_counted:,} counted after an acknowledged revocation of one who had read: "
        f"{len(verdict.served)} served, {len(verdict.denied)} denied what they were granted"
    )
    return 1 if verdict.served or verdict.denied else 0


if __name__ == "__main__":
    sys.exit(main())
