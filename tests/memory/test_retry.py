"""S23.1: retry."""

import pytest
from ombus_streams.memory.retry import Failure, RetryPolicy, retry_delay_ms

OVERLOADED = Failure(code=503)


def test_the_delay_doubles_up_to_its_cap() -> None:
    policy = RetryPolicy(max_attempts=9)

    delays = [retry_delay_ms(OVERLOADED, attempt, policy) for attempt in range(7)]

    assert delays == [100, 100, 200, 400, 800, 1000, 1000]


def test_the_cap_is_never_below_the_base() -> None:
    assert retry_delay_ms(OVERLOADED, 1, RetryPolicy(base_ms=50, max_ms=10)) == 50


def test_a_hint_beats_the_backoff_and_zero_is_a_hint() -> None:
    assert retry_delay_ms(Failure(code=429, retry_after_ms=0), 1) == 0
    assert retry_delay_ms(Failure(code=429, retry_after_ms=float("nan")), 1) == 100


def test_chance_moves_the_delay_by_the_jitter_at_most() -> None:
    assert retry_delay_ms(OVERLOADED, 1, random_value=0) == 75
    assert retry_delay_ms(OVERLOADED, 1, random_value=1) == 125


@pytest.mark.parametrize(
    "failure",
    [
        Failure(message="Aborted: timeout", code=503),
        Failure(name="AbortError", code=503),
        Failure(code="503"),
        Failure(code=404),
        Failure(message="no such model"),
    ],
)
def test_what_cannot_pass_by_waiting_is_given_up(failure: Failure) -> None:
    assert retry_delay_ms(failure, 1) is None


def test_an_aborted_call_and_the_last_attempt_are_given_up() -> None:
    assert retry_delay_ms(OVERLOADED, 1, is_aborted=True) is None
    assert retry_delay_ms(OVERLOADED, 3) is None
