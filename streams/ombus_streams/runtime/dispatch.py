"""Between a run and its model: may it start, is it asked again, what has it cost.

One object a process. Breakers are per provider, places and tokens per tenant and process; the
accounts outlive the process (``usage``).
"""

import asyncio
import random as randomness
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import structlog

from ombus_streams.memory.retry import RetryPolicy
from ombus_streams.runtime.breaker import Breaker, BreakerPolicy
from ombus_streams.runtime.budget import Budget, Caps, day_of
from ombus_streams.runtime.errors import Deferred
from ombus_streams.runtime.ports import Clock
from ombus_streams.runtime.provider import ModelProvider, ModelRequest, TurnEvent, Usage
from ombus_streams.runtime.report import report
from ombus_streams.runtime.retrying import Retrying, Sleep
from ombus_streams.runtime.usage import Spender, Spent, UsageBook

SPREAD_MS = 1_000
"""Runs that were put off together come back over at least this long."""

_log = structlog.get_logger("ombus.models")


class Dispatch:
    """Admits runs, guards providers, keeps the accounts."""

    def __init__(
        self,
        clock: Clock,
        *,
        caps: Caps | None = None,
        breaker: BreakerPolicy | None = None,
        retry: RetryPolicy | None = None,
        book: UsageBook | None = None,
        random: Callable[[], float] = randomness.random,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.book = book or UsageBook()
        self._clock, self._random, self._sleep = clock, random, sleep
        self._budget = Budget(caps or Caps(), self.book)
        self._policy = breaker or BreakerPolicy()
        self._retry = retry or RetryPolicy()
        self._breakers: dict[str, Breaker] = {}

    @asynccontextmanager
    async def run(
        self, partition: int, tenant: str, worker: str, provider: ModelProvider, tokens: int
    ) -> AsyncIterator[ModelProvider]:
        """Lend the provider to one run that is expected to cost ``tokens``, and book what it did.

        Raises:
            Deferred: not now: the provider is left alone, or a place or a budget is lacking.
        """
        breaker = self._admit(tenant, provider, tokens)
        spender = Spender(tenant, worker, provider.name, provider.model)
        # A run over midnight is booked on the day it began, where its reservation is.
        day = day_of(self._clock.now())
        metered = _Metered(
            Retrying(
                provider, breaker, self._now_ms,
                policy=self._retry, random=self._random, sleep=self._sleep,
            )
        )  # fmt: skip
        breaker.n_in_flight += 1
        try:
            self.book.add(partition, day, spender, Spent(n_runs=1, reserved_tokens=tokens))
            n_failed = 1
            try:
                yield metered
                n_failed = 0
            finally:
                spent = metered.settled(tokens, n_failed)
                report(
                    tokens_input=spent.input_tokens,
                    tokens_output=spent.output_tokens,
                    tokens_cached=spent.cached_tokens,
                )
                self.book.add(partition, day, spender, spent)
        finally:
            breaker.n_in_flight -= 1
            self._budget.give_back(tenant)

    def _admit(self, tenant: str, provider: ModelProvider, tokens: int) -> Breaker:
        breaker = self._breakers.get(provider.name)
        if breaker is None:
            breaker = self._breakers[provider.name] = Breaker(self._policy, self._random)
        now_ms = self._now_ms()
        wait_ms = breaker.wait_ms(now_ms)
        if wait_ms or not breaker.has_room():
            spread = SPREAD_MS + wait_ms // 2
            raise Deferred(
                f"provider {provider.name} is left alone for {wait_ms:,} ms"
                if wait_ms
                else f"all places of provider {provider.name} are taken",
                "provider_away" if wait_ms else "busy",
                wait_ms + round(self._random() * spread),
                parks=breaker.is_away(now_ms),
            )
        try:
            self._budget.take(tenant, tokens, self._clock.now())
        except Deferred as deferred:
            if deferred.reason == "busy":
                deferred.retry_after_ms = round(
                    (deferred.retry_after_ms or 0) * (1 + 4 * self._random())
                )
            else:
                _log.error("budget.exhausted", tenant=tenant, provider=provider.name)
            raise
        return breaker

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1_000)


class _Metered:
    """Counts the turns and tokens of one run as they pass."""

    def __init__(self, provider: ModelProvider) -> None:
        self.name, self.model = provider.name, provider.model
        self._provider = provider
        self._n_turns = 0
        self._usage: Usage | None = None

    async def turn(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        self._n_turns += 1
        async with aclosing(self._provider.turn(request)) as events:
            async for event in events:
                if isinstance(event, Usage):
                    before = self._usage or Usage()
                    self._usage = Usage(
                        input_tokens=before.input_tokens + event.input_tokens,
                        output_tokens=before.output_tokens + event.output_tokens,
                        cached_tokens=before.cached_tokens + event.cached_tokens,
                    )
                yield event

    def settled(self, reserved: int, n_failed: int) -> Spent:
        """Return what turns the reservation into what was spent."""
        usage = self._usage
        if usage is None:  # nobody says: a run that asked has cost what it was expected to
            usage = Usage(input_tokens=reserved if self._n_turns else 0)
        return Spent(
            n_failed=n_failed,
            n_turns=self._n_turns,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            reserved_tokens=-reserved,
        )
