"""Places, budgets and accounts; and the one retry layer."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import pytest
from ombus_streams.memory.retry import RetryPolicy
from ombus_streams.providers.scripted import Scripted, call
from ombus_streams.runtime.breaker import BreakerPolicy
from ombus_streams.runtime.budget import Caps
from ombus_streams.runtime.dispatch import Dispatch
from ombus_streams.runtime.errors import Deferred
from ombus_streams.runtime.provider import ModelProvider, TurnEvent, TurnFailed, Usage
from ombus_streams.runtime.usage import Spender, Spent, UsageBook, carry_over, days, read_day

from tests.providers.asking import request
from tests.support.engine import ManualClock, MemoryStore

DAY = "1970-01-01"
DAY_MS = 86_400_000
RATE_LIMITED = TurnFailed(message="slow down", code=429)
SAID = call("record_observation", content="x")


class Sleeper:
    """Sleeps on the manual clock and remembers for how long."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.at_ms += round(seconds * 1_000)


def dispatch(
    caps: Caps | None = None,
    store: MemoryStore | None = None,
    clock: ManualClock | None = None,
    **policies: BreakerPolicy,
) -> tuple[Dispatch, Sleeper]:
    clock = clock or ManualClock()
    sleeper = Sleeper(clock)
    book = UsageBook()
    if store is not None:
        book.adopt(0, store)
    made = Dispatch(
        clock,
        caps=caps,
        breaker=policies.get("breaker"),
        retry=RetryPolicy(max_ms=5_000),
        book=book,
        random=lambda: 0.5,
        sleep=sleeper,
    )
    return made, sleeper


def run(
    made: Dispatch, provider: ModelProvider, tokens: int = 100, tenant: str = "t"
) -> list[TurnEvent]:
    async def one() -> list[TurnEvent]:
        async with (
            made.run(0, tenant, "observer", provider, tokens) as admitted,
            aclosing(admitted.turn(request())) as events,
        ):
            return [event async for event in events]

    return asyncio.run(one())


def accounts(store: MemoryStore, day: str = DAY) -> Spent:
    total = Spent()
    for _, spent in read_day(store, day):
        total += spent
    return total


def test_a_turn_that_said_nothing_is_asked_again_after_a_growing_wait() -> None:
    made, sleeper = dispatch()
    provider = Scripted([[RATE_LIMITED], [TimeoutError("gone")], [SAID]])

    assert run(made, provider) == [SAID]
    assert sleeper.slept == [0.1, 0.2]


def test_a_turn_that_has_spoken_is_never_asked_again() -> None:
    made, sleeper = dispatch()
    provider = Scripted([[SAID, RATE_LIMITED], [SAID]])

    assert run(made, provider) == [SAID, RATE_LIMITED]
    assert sleeper.slept == []


@pytest.mark.parametrize(
    "failed",
    [
        TurnFailed(message="no such model", code=404),
        TurnFailed(message="too long", code=429, is_refusal=True),
    ],
)
def test_what_does_not_pass_is_not_asked_again(failed: TurnFailed) -> None:
    made, _ = dispatch()
    provider = Scripted([[failed], [SAID]])

    assert run(made, provider) == [failed]
    assert len(provider.requests) == 1


def test_a_hint_is_kept_and_a_long_one_is_the_schedulers() -> None:
    hinted, sleeper = dispatch()
    soon = TurnFailed(message="x", code=429, retry_after_ms=3_000)
    assert run(hinted, Scripted([[soon], [SAID]])) == [SAID]
    assert sleeper.slept == [3.0]

    made, sleeper = dispatch()
    late = TurnFailed(message="x", code=429, retry_after_ms=60_000)
    assert run(made, Scripted([[late], [SAID]])) == [late]
    assert sleeper.slept == []


def test_a_provider_that_is_shut_is_not_even_asked() -> None:
    made, _ = dispatch(breaker=BreakerPolicy(failures=3))
    away = Scripted(lambda _: [RATE_LIMITED])
    run(made, away)
    n_before = len(away.requests)

    with pytest.raises(Deferred) as deferred:
        run(made, away)

    assert deferred.value.reason == "provider_away"
    assert len(away.requests) == n_before


def test_what_a_run_has_cost_is_on_the_account_of_who_caused_it() -> None:
    store = MemoryStore()
    made, _ = dispatch(store=store)
    usage = Usage(input_tokens=90, output_tokens=12, cached_tokens=64)

    run(made, Scripted([[SAID, usage]], name="p", model="m"))
    run(made, Scripted([[usage, TurnFailed(message="bad", code=400)]], name="p", model="m"))

    (account,) = read_day(store, DAY)
    assert account[0] == Spender("t", "observer", "p", "m")
    assert account[1] == Spent(2, 0, 2, 180, 24, 128, 0)


def test_a_run_that_raises_is_counted_as_failed_and_costs_what_it_cost() -> None:
    store = MemoryStore()
    made, _ = dispatch(store=store)

    with pytest.raises(ValueError, match="odd"):
        run(made, Scripted([[Usage(input_tokens=7), ValueError("odd")]]))

    assert accounts(store) == Spent(1, 1, 1, 7, 0, 0, 0)


def test_without_reported_usage_a_run_counts_as_it_was_estimated() -> None:
    store = MemoryStore()
    made, _ = dispatch(store=store)

    run(made, Scripted([[SAID]]), tokens=123)

    assert accounts(store).tokens == 123


def test_the_stop_loss_holds_and_survives_the_process() -> None:
    store, clock = MemoryStore(), ManualClock()
    caps = Caps(max_tokens_per_day=250)
    first, _ = dispatch(caps, store, clock)
    run(first, Scripted([[SAID, Usage(input_tokens=160)]]))

    second, _ = dispatch(caps, store, clock)
    with pytest.raises(Deferred) as deferred:
        run(second, Scripted([[SAID]]))
    assert deferred.value.reason == "budget_exhausted"
    assert deferred.value.parks

    assert deferred.value.retry_after_ms is not None
    clock.at_ms += deferred.value.retry_after_ms
    assert run(second, Scripted([[SAID]])) == [SAID]
    assert days(store) == [DAY, "1970-01-02"]


def test_a_process_that_dies_in_a_run_has_spent_it() -> None:
    store = MemoryStore()
    made, _ = dispatch(store=store)

    left = MemoryStore()

    async def die() -> None:
        async with made.run(0, "t", "observer", Scripted(), 200):
            left.operational |= store.operational  # what a kill here leaves behind

    asyncio.run(die())

    again, _ = dispatch(Caps(max_tokens_per_day=250), left)
    with pytest.raises(Deferred):
        run(again, Scripted([[SAID]]))


def test_a_tenants_budget_is_its_own() -> None:
    made, _ = dispatch(Caps(max_tenant_tokens_per_day=150))
    run(made, Scripted([[SAID]]), tenant="a")

    with pytest.raises(Deferred, match="tenant a has spent 100 of 150"):
        run(made, Scripted([[SAID]]), tenant="a")
    assert run(made, Scripted([[SAID]]), tenant="b") == [SAID]


def test_one_tenant_leaves_places_for_the_others() -> None:
    made, _ = dispatch(Caps(max_runs=3, max_tenant_runs=2))

    async def crowd(tenants: Sequence[str]) -> list[str]:
        gate = asyncio.Event()
        outcome: list[str] = []

        async def one(tenant: str) -> None:
            try:
                async with made.run(0, tenant, "observer", Scripted(), 1):
                    await gate.wait()
                    outcome.append(tenant)
            except Deferred as deferred:
                outcome.append(f"{tenant}: {deferred.reason}")

        tasks = [asyncio.create_task(one(tenant)) for tenant in tenants]
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*tasks)
        return outcome

    found = asyncio.run(crowd(["a", "a", "a", "b", "b"]))

    assert found == ["a: busy", "b: busy", "a", "a", "b"]
    assert asyncio.run(crowd(["a"])) == ["a"]  # places are given back


def test_old_days_go_and_a_rebuilt_state_keeps_the_accounts() -> None:
    store, book = MemoryStore(), UsageBook()
    book.adopt(0, store)
    for number in range(100):
        day = f"2026-{1 + number // 28:02}-{1 + number % 28:02}"
        book.add(0, day, Spender("t", "observer", "p", "m"), Spent(n_runs=1))

    rebuilt = MemoryStore()
    carry_over(store, rebuilt)

    assert len(days(rebuilt)) == 62
    assert days(rebuilt)[-1] == "2026-04-16"
    assert len(rebuilt.operational) == len(store.operational) == 63
