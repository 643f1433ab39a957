"""How many effects may be under way at once: in the process, for a tenant, for a provider."""

from collections import Counter
from collections.abc import Mapping

import msgspec

from ombus_streams.runtime.scheduler import Slot


class RunLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one worker process."""

    max_runs: int = 64
    max_runs_per_tenant: int = 32
    max_runs_per_provider: int = 64


class Admission:
    """Counts effects under way. One object a process, whatever the number of partitions."""

    def __init__(self, limits: RunLimits, provider_by_worker: Mapping[str, str]) -> None:
        self._limits, self._provider_by_worker = limits, dict(provider_by_worker)
        self._n_runs = 0
        self._by_tenant = Counter[bytes]()
        self._by_provider = Counter[str]()

    @property
    def n_runs(self) -> int:
        return self._n_runs

    @property
    def n_free(self) -> int:
        return self._limits.max_runs - self._n_runs

    def take(self, slot: Slot) -> bool:
        """Count one more effect, or say that there is no room for it now."""
        tenant, provider = self._named(slot)
        if (
            self.n_free <= 0
            or self._by_tenant[tenant] >= self._limits.max_runs_per_tenant
            or self._by_provider[provider] >= self._limits.max_runs_per_provider
        ):
            return False
        self._n_runs += 1
        self._by_tenant[tenant] += 1
        self._by_provider[provider] += 1
        return True

    def give_back(self, slot: Slot) -> None:
        """Count one less: the effect has ended, however it ended."""
        tenant, provider = self._named(slot)
        self._n_runs -= 1
        self._by_tenant[tenant] -= 1
        self._by_provider[provider] -= 1
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]

    def _named(self, slot: Slot) -> tuple[bytes, str]:
        return slot[0].partition(b"/")[0], self._provider_by_worker.get(slot[2], "")
