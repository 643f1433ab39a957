"""How many effects may be under way at once, in the process and for one tenant.

Models have bounds of their own behind this (``runtime.dispatch``: providers, budgets); here is what
keeps one process, and one tenant's backlog in it, from starting more than it can finish.
"""

from collections import Counter

import msgspec

from ombus_streams.runtime.scheduler import Slot


class RunLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one worker process."""

    max_runs: int = 64
    max_tenant_runs: int = 32


class Admission:
    """Counts effects under way. One object a process, whatever the number of partitions."""

    def __init__(self, limits: RunLimits) -> None:
        self._limits = limits
        self._n_runs = 0
        self._by_tenant = Counter[bytes]()

    @property
    def n_runs(self) -> int:
        return self._n_runs

    @property
    def n_free(self) -> int:
        return self._limits.max_runs - self._n_runs

    def take(self, slot: Slot) -> bool:
        """Count one more effect, or say that there is no room for it now."""
        tenant = _tenant(slot)
        if self.n_free <= 0 or self._by_tenant[tenant] >= self._limits.max_tenant_runs:
            return False
        self._n_runs += 1
        self._by_tenant[tenant] += 1
        return True

    def give_back(self, slot: Slot) -> None:
        """Count one less: the effect has ended, however it ended."""
        tenant = _tenant(slot)
        self._n_runs -= 1
        self._by_tenant[tenant] -= 1
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]


def _tenant(slot: Slot) -> bytes:
    return slot[0].partition(b"/")[0]
