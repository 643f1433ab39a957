"""A provider that fails is left alone, and nobody falls upon it when it is back."""

from ombus_streams.runtime.breaker import Breaker, BreakerPolicy

POLICY = BreakerPolicy(failures=3, first_ms=1_000, max_ms=8_000, max_in_flight=4)


def breaker(policy: BreakerPolicy = POLICY) -> Breaker:
    return Breaker(policy, lambda: 0.5)


def opened(at_ms: int = 0) -> Breaker:
    found = breaker()
    for _ in range(POLICY.failures):
        found.failed(at_ms)
    return found


def test_a_single_failure_stops_nobody() -> None:
    found = breaker()
    found.failed(0)

    assert found.wait_ms(0) == 0
    assert found.has_room()


def test_failures_in_a_row_shut_it_and_an_answer_in_between_does_not() -> None:
    found = breaker()
    found.failed(0)
    found.failed(0)
    found.succeeded()
    found.failed(0)
    assert found.wait_ms(0) == 0

    assert opened().wait_ms(0) == 1_000
    assert opened().wait_ms(1_000) == 0


def test_after_the_wait_one_asks_and_with_each_answer_one_more() -> None:
    found = opened()

    room = []
    for _ in range(5):
        found.n_in_flight = 0
        while found.has_room():
            found.n_in_flight += 1
        room.append(found.n_in_flight)
        found.succeeded()

    assert room == [1, 2, 3, 4, 4]


def test_each_failed_try_doubles_the_wait_up_to_its_cap() -> None:
    found = opened()

    waits, now = [], 0
    for _ in range(5):
        waits.append(found.wait_ms(now))
        now += waits[-1]
        found.failed(now)

    assert waits == [1_000, 2_000, 4_000, 8_000, 8_000]


def test_runs_that_had_begun_before_it_shut_do_not_lengthen_the_wait() -> None:
    found = opened()
    for _ in range(10):
        found.failed(1)

    assert found.wait_ms(0) == 1_000


def test_the_others_keep_to_a_hint_that_one_was_given() -> None:
    found = breaker()
    found.failed(0, retry_after_ms=30_000)

    assert found.wait_ms(0) == 30_000


def test_a_long_absence_is_told_from_a_pause() -> None:
    found = opened()

    assert not found.is_away(POLICY.away_after_ms - 1)
    assert found.is_away(POLICY.away_after_ms)
    found.succeeded()
    assert not found.is_away(POLICY.away_after_ms)


def test_one_place_is_no_sign_of_trouble() -> None:
    found = breaker(BreakerPolicy(max_in_flight=1, failures=3))
    found.failed(0)

    assert found.wait_ms(0) == 0
