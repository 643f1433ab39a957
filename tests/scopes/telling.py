"""What a long history prints while it goes on, and at its end."""

import json
import time
from collections.abc import Mapping
from types import MappingProxyType

from tests.scopes.history import Verdict

EVERY_S = 10.0
EMPTY: Mapping[str, int] = MappingProxyType({})


class Telling:
    """Prints a line now and then."""

    def __init__(self, n_wanted: int) -> None:
        self._n_wanted, self._began = n_wanted, time.monotonic()
        self._last = self._began

    def tell(self, verdict: Verdict, disturbed: Mapping[str, int] = EMPTY) -> None:
        """Print how far it is, if it was not said just now."""
        now = time.monotonic()
        if now - self._last < EVERY_S:
            return
        self._last = now
        print(
            f"{now - self._began:,.0f} s: {verdict.n_reads:,} of {self._n_wanted:,} reads, "
            f"{verdict.n_counted:,} counted after a revocation, {len(verdict.served)} served, "
            f"{len(verdict.denied)} denied what they were granted"
            + (f"; disturbed: {json.dumps(dict(disturbed))}" if disturbed else ""),
            flush=True,
        )


def summed_up(verdict: Verdict, n_wanted: int, seconds: float, how: str) -> int:
    """Print what it comes to; return 1 if that is too little, or wrong."""
    for line in (*verdict.served[:10], *verdict.denied[:10]):
        print(line)
    print(
        f"{verdict.n_reads:,} reads {how} in {seconds:.0f} s ({verdict.n_granted:,} granted, "
        f"{verdict.n_unavailable:,} unavailable), {verdict.n_changes:,} grants and revocations; "
        f"{verdict.n_counted:,} counted after an acknowledged revocation of one who had read: "
        f"{len(verdict.served)} served, {len(verdict.denied)} denied what they were granted"
    )
    if verdict.n_reads < n_wanted and not verdict.is_violated:
        print(f"{n_wanted:,} reads were asked for: the time was over")
    return 1 if verdict.is_violated or verdict.n_reads < n_wanted else 0
