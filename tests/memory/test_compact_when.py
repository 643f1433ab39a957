"""S21."""

import asyncio

import pytest
from ombus_streams.memory.compact_when import (
    CapUnknown,
    Measures,
    TokenGate,
    Trigger,
    decide,
    is_reached,
    trigger_of,
    trigger_of_options,
)


class Counted:
    """Numbers that count how often they are read."""

    def __init__(self) -> None:
        self.n_estimates = 0

    def estimate(self) -> int:
        self.n_estimates += 1
        return 100

    def cap(self) -> int:
        raise CapUnknown("no context window")


def decided(trigger: Trigger, numbers: Counted, errors: list[Exception] | None = None) -> bool:
    measures = Measures(4, numbers.estimate, numbers.cap)
    return asyncio.run(decide(trigger, measures, (errors if errors is not None else []).append))


def test_the_gate_fires_at_its_number_and_reads_it_once() -> None:
    numbers = Counted()
    measures = Measures(4, numbers.estimate, numbers.cap)

    assert is_reached(TokenGate(tokens=100), measures)
    assert not is_reached(TokenGate(tokens=101), measures)
    assert numbers.n_estimates == 1


def test_a_number_of_entries_fires_above_it_and_reads_no_tokens() -> None:
    numbers = Counted()

    assert decided(trigger_of({"type": "threshold_entries", "entries": 3}), numbers)
    assert not decided(trigger_of({"type": "threshold_entries", "entries": 4.0}), numbers)
    assert numbers.n_estimates == 0


@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        {},
        {"type": "threshold_entries", "entries": 0},
        {"type": "threshold_entries", "entries": True},
        {"type": "input_ratio", "ratio": 0},
        {"type": "input_ratio", "ratio": float("nan")},
        {"type": "custom", "shouldCompact": None},
    ],
)
def test_a_trigger_that_makes_no_sense_is_refused(said: object) -> None:
    with pytest.raises(TypeError):
        trigger_of(said)


def test_a_ratio_without_a_known_window_cannot_be_judged() -> None:
    with pytest.raises(CapUnknown):
        decided(trigger_of({"type": "input_ratio", "ratio": 0.5}), Counted())


def test_only_a_literal_true_of_the_host_fires_and_its_failure_does_not() -> None:
    errors: list[Exception] = []

    async def later(measures: Measures) -> bool:
        return True

    def fails(measures: Measures) -> bool:
        return measures.cap_tokens() > 0

    assert decided(trigger_of_options({"shouldCompact": later}), Counted())
    assert not decided(trigger_of_options({"shouldCompact": lambda _: 1}), Counted())
    assert not decided(trigger_of_options({"shouldCompact": fails}), Counted(), errors)
    assert [str(error) for error in errors] == ["no context window"]
