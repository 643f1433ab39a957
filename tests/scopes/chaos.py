"""``python -m tests.scopes.chaos``: the grant history at full size, on servers of its own.

The reads are made in legs, each over a grants log and sessions of its own, so what a leg has come
to is all that is kept of it. Prints what was read and what went wrong on the way while it goes on,
then what no order of events explains; ends with 1 if there is any such thing, or too few reads.
"""

import argparse
import json
import math
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import structlog
from ombus.dev import kafka as dev_kafka
from ombus_streams.runtime.shared_reads import SharedReads

from tests.scopes.disturbance import Disturber
from tests.scopes.history import Verdict
from tests.scopes.servers import Pair
from tests.scopes.stand import BoundlessReads, CachedReads, Stand
from tests.scopes.telling import Telling, summed_up
from tests.scopes.traffic import Traffic

KINDS: dict[str, type[SharedReads]] = {
    "none": SharedReads,
    "cached": CachedReads,
    "boundless": BoundlessReads,
}


class Run:
    """Leg after leg on the same servers."""

    def __init__(self, said: argparse.Namespace) -> None:
        self._said, self._telling = said, Telling(said.reads)
        self._deadline = time.monotonic() + (said.seconds or math.inf)
        self.verdict, self.disturbed = Verdict(), Counter[str]()
        self.n_starts = self.n_repaired = 0

    def legs(self, folder: Path) -> None:
        """Read until it is enough, or too late, or something is wrong."""
        cluster = dev_kafka.up(folder / "kafka")
        pair, number = Pair(folder / "redis"), 0
        try:
            while not self._is_over:
                number += 1
                self._leg(folder / f"leg{number}", cluster.bootstrap, pair)
        finally:
            pair.close()
            dev_kafka.down(folder / "kafka", wipe=True)

    @property
    def _is_over(self) -> bool:
        is_late = time.monotonic() >= self._deadline
        return is_late or self.verdict.is_violated or self.verdict.n_reads >= self._said.reads

    def _leg(self, folder: Path, bootstrap: str, pair: Pair) -> None:
        said = self._said
        n_reads = min(said.leg, said.reads - self.verdict.n_reads)
        stand = Stand(
            folder,
            bootstrap,
            pair.url,
            n_readers=said.readers,
            n_seats=said.seats,
            kind=KINDS[said.mutation],
        )
        disturber = Disturber(stand, pair, said.seed, said.pause)
        said.seed += 1

        def told(verdict: Verdict) -> None:
            for failure in (disturber.failure, *(each.failure for each in stand.granters)):
                if failure is not None:
                    raise failure
            self._telling.tell(self.verdict + verdict, self.disturbed + disturber.done)

        traffic = Traffic(stand, n_reads, self._deadline - time.monotonic())
        try:
            self.verdict += traffic.run(told)
        finally:
            disturber.close()
            stand.close()
        self.disturbed += disturber.done
        self.n_starts += sum(each.n_starts for each in stand.granters)
        self.n_repaired += sum(each.n_repaired for each in stand.granters)


def main() -> int:
    asked = argparse.ArgumentParser()
    asked.add_argument("--reads", type=int, default=20_000)
    asked.add_argument("--leg", type=int, default=200_000, help="reads over one log")
    asked.add_argument("--readers", type=int, default=8)
    asked.add_argument("--seats", type=int, default=2, help="processes of readers")
    asked.add_argument(
        "--seconds", type=float, default=0, help="fewer reads than asked: ends with 1"
    )
    asked.add_argument("--pause", type=float, default=1.0, help="between two disturbances")
    asked.add_argument("--mutation", choices=KINDS, default="none")
    asked.add_argument("--seed", type=int, default=1)
    said = asked.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    run, began = Run(said), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ombus-grants-") as place:
        run.legs(Path(place))
    print(
        f"disturbed: {json.dumps(dict(run.disturbed))}; granters started {run.n_starts} times, "
        f"repaired {run.n_repaired} maps; this process held at most "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB"
    )
    return summed_up(run.verdict, said.reads, time.monotonic() - began, "through the resolver")


if __name__ == "__main__":
    sys.exit(main())
