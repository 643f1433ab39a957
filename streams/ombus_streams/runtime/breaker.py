"""A provider that fails in a row is left alone, and asked again by few before by many.

Closed: it answers. Open: nobody asks until a time that grows with every failed try. Half open: one
asks. After that the number that may ask at once grows by one with each answer, as a connection
that starts slowly, so that what has waited does not fall upon a provider that has just come back.
Pure: times are arguments and randomness is injected.
"""

from collections.abc import Callable

import msgspec


class BreakerPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When to leave a provider alone, and for how long."""

    failures: int = 5
    """Passing failures in a row that open it."""
    first_ms: int = 2_000
    max_ms: int = 60_000
    max_in_flight: int = 8
    """Runs at once, once it is known to answer."""
    away_after_ms: int = 300_000
    """From here on it is not a pause any more: leaves are parked and say so."""


class Breaker:
    """What is known of one provider."""

    def __init__(self, policy: BreakerPolicy, random: Callable[[], float]) -> None:
        self._policy, self._random = policy, random
        self._n_failures = 0
        self._n_openings = 0
        self._not_before_ms = 0
        self._away_since_ms: int | None = None
        self._room = policy.max_in_flight
        self.n_in_flight = 0

    def wait_ms(self, now_ms: int) -> int:
        """Return how long nobody may ask; 0 = not at all."""
        return max(0, self._not_before_ms - now_ms)

    def has_room(self) -> bool:
        """Say whether one more may ask at once."""
        return self.n_in_flight < self._room

    def is_away(self, now_ms: int) -> bool:
        """Say whether it has not answered for so long that waiting is no plan."""
        since = self._away_since_ms
        return since is not None and now_ms - since >= self._policy.away_after_ms

    def succeeded(self) -> None:
        """It answered: a refusal, too, is an answer."""
        self._n_failures = self._n_openings = 0
        self._away_since_ms = None
        self._room = min(self._room + 1, self._policy.max_in_flight)

    def failed(self, now_ms: int, retry_after_ms: int | None = None) -> None:
        """It failed in a way that may pass; its hint to wait is kept by everybody."""
        self._n_failures += 1
        if self._away_since_ms is None:
            self._away_since_ms = now_ms
        if retry_after_ms is not None:
            self._shut(now_ms + retry_after_ms)
        # Failures of runs that had begun before it was shut say nothing new.
        is_shut = self.wait_ms(now_ms) > 0 and retry_after_ms is None
        if not is_shut and (self._n_failures >= self._policy.failures or self._n_openings):
            pause = min(self._policy.first_ms * 2**self._n_openings, self._policy.max_ms)
            self._n_openings = min(self._n_openings + 1, 16)
            self._shut(now_ms + round(pause * (0.75 + self._random() / 2)))

    def _shut(self, until_ms: int) -> None:
        self._not_before_ms = max(self._not_before_ms, until_ms)
        self._room = 1
