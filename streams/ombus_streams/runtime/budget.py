"""How many runs at once, and how many tokens a day: for the process, a provider, a tenant.

Nothing waits here. A run that may not start is put off by an error that says until when; its
effect is derived from state and is asked for again. Source: design.md section 5.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from ombus_streams.runtime.errors import Deferred
from ombus_streams.runtime.usage import UsageBook

BUSY_MS: Final = 200
"""After this long, jittered, a run that found no free place is asked for again."""


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """What a process may use up. ``None``: without a limit."""

    max_runs: int = 16
    max_tenant_runs: int = 4
    """One tenant's backlog leaves places for the others."""
    max_tokens_per_day: int | None = None
    """Input and output of all runs of the process on a UTC day: the stop-loss."""
    max_tenant_tokens_per_day: int | None = None


class Budget:
    """Places in use, and what is left of the day. The accounts are ``book``'s."""

    def __init__(self, caps: Caps, book: UsageBook) -> None:
        self._caps, self._book = caps, book
        self._tenants: Counter[str] = Counter()

    def take(self, tenant: str, tokens: int, now: datetime) -> None:
        """Take a place for a run that is expected to cost ``tokens``.

        Raises:
            Deferred: ``busy``, or ``budget_exhausted`` until the day ends.
        """
        limits = (
            ("the process", self._caps.max_tokens_per_day, None),
            (f"tenant {tenant}", self._caps.max_tenant_tokens_per_day, tenant),
        )
        for whose, most, account in limits:
            spent = 0 if most is None else self._book.tokens(day_of(now), account)
            if most is not None and spent + tokens > most:
                raise Deferred(
                    f"{whose} has spent {spent:,} of {most:,} tokens today and the run needs about "
                    f"{tokens:,}: raise the budget, or wait for the next day (UTC)",
                    "budget_exhausted",
                    _until_tomorrow_ms(now),
                    parks=True,
                )
        if self._tenants.total() >= self._caps.max_runs:
            raise Deferred("all places of the process are taken", "busy", BUSY_MS)
        if self._tenants[tenant] >= self._caps.max_tenant_runs:
            raise Deferred(f"all places of tenant {tenant} are taken", "busy", BUSY_MS)
        self._tenants[tenant] += 1

    def give_back(self, tenant: str) -> None:
        """Free the place of a run that has ended."""
        self._tenants[tenant] -= 1
        if self._tenants[tenant] <= 0:
            del self._tenants[tenant]


def day_of(now: datetime) -> str:
    """Return the UTC day accounts are kept by."""
    return now.astimezone(UTC).date().isoformat()


def _until_tomorrow_ms(now: datetime) -> int:
    at = now.astimezone(UTC)
    midnight = datetime(at.year, at.month, at.day, tzinfo=UTC) + timedelta(days=1)
    return max(1, round((midnight - at).total_seconds() * 1_000))
