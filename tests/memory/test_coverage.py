"""S7, and row 15 of design.md section 12."""

import pytest
from ombus_schemas.entries import Origin
from ombus_streams.memory.coverage import (
    Tier,
    eligible_sources,
    is_eligible,
    tier,
    uncovered_observations,
    unscanned,
)

from tests.support.ledgers import (
    dropped,
    entry,
    memory,
    message,
    observation,
    observed,
    reflected,
    reflection,
)


def test_messages_of_user_assistant_and_tool_are_sources() -> None:
    assert [
        is_eligible(message("e", "x", role=role)) for role in ("user", "assistant", "tool")
    ] == [True] * 3
    assert not is_eligible(message("e", "x", role="system"))
    assert not is_eligible(entry("e", "message"))
    assert not is_eligible(entry("e", "event"))


@pytest.mark.parametrize("origin", ["injected", "summary", "worker"])
def test_what_memory_or_the_harness_wrote_is_no_source(origin: Origin) -> None:
    assert not is_eligible(message("e", "x", origin=origin))


@pytest.mark.parametrize("origin", ["human", "model", "tool", "other_session", None])
def test_what_somebody_said_is_a_source(origin: Origin | None) -> None:
    assert is_eligible(message("e", "x", origin=origin))


def test_unscanned_is_what_stands_after_the_first_entry_with_the_coverage_id() -> None:
    entries = [message("a", "1"), entry("b"), message("a", "2"), message("c", "3")]

    assert list(unscanned(entries, "a")) == entries[1:]
    assert eligible_sources(entries, "a") == entries[2:]


@pytest.mark.parametrize("coverage_id", [None, "", "unknown"])
def test_without_a_known_coverage_everything_is_unscanned(coverage_id: str | None) -> None:
    entries = [message("a", "1"), message("b", "2")]

    assert list(unscanned(entries, coverage_id)) == entries


def test_observations_recorded_after_the_last_reflection_are_uncovered() -> None:
    entries = [
        observed("c1", observation(1)),
        reflected("r1", reflection(7)),
        observed("c2", observation(2), observation(3), observation(1)),
        dropped("d", 3),
    ]

    assert [item.id for item in uncovered_observations(entries)] == [memory(1), memory(2)]
    assert len(uncovered_observations(entries, full_rebuild=True)) == 2


def test_a_reflection_that_names_what_it_read_leaves_the_records_after_that_uncovered() -> None:
    entries = [
        observed("c1", observation(1)),
        observed("c2", observation(2)),
        reflected("r1", reflection(7), through="c1"),
        observed("c3", observation(3)),
    ]

    assert [item.id for item in uncovered_observations(entries)] == [memory(2), memory(3)]


def test_a_through_that_is_not_here_falls_back_to_the_place_of_the_reflection() -> None:
    entries = [observed("c1", observation(1)), reflected("r1", through="gone")]

    assert uncovered_observations(entries) == ()


def test_without_a_reflection_every_active_observation_is_uncovered() -> None:
    entries = [observed("c1", observation(1), observation(2)), dropped("d", 1)]

    assert [item.id for item in uncovered_observations(entries)] == [memory(2)]


@pytest.mark.parametrize(
    ("covered", "total", "expected"),
    [(0, 5, "none"), (1, 0, "none"), (-1, 5, "none"), (1, 5, "partial"), (5, 5, "full")],
)
def test_a_tier_says_how_much_is_covered(covered: int, total: int, expected: Tier) -> None:
    assert tier(covered, total) == expected
