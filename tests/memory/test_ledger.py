"""S6, and row 14 of design.md section 12."""

from hypothesis import given
from ombus_schemas.entries import Entry
from ombus_streams.memory.ledger import (
    active,
    blocks_observation,
    blocks_reflection,
    fold,
    merge,
)

from tests.support.ledgers import (
    compacted,
    dropped,
    hostile_entries,
    memory,
    observation,
    observed,
    reflected,
    reflection,
)


def test_the_first_record_of_an_id_wins_for_ever() -> None:
    ledger = fold(
        [observed("c1", observation(1, "first")), observed("c2", observation(1, "other"))]
    )

    assert [item.content for item in ledger.observations] == ["first"]


def test_a_drop_hides_an_id_recorded_before_and_after_it() -> None:
    ledger = fold(
        [
            observed("c1", observation(1)),
            dropped("c2", 1, 2),
            observed("c3", observation(1), observation(2), observation(3)),
        ]
    )

    assert [item.id for item in active(ledger)] == [memory(3)]
    assert ledger.dropped_ids == (memory(1), memory(2))


def test_the_last_coverage_counts_also_when_it_moves_back_or_is_empty() -> None:
    ledger = fold(
        [
            observed("c1", coversUpToId="e9"),
            observed("c2", coversUpToId=""),
            observed("c3"),
            reflected("c4", coversUpToId="e3"),
        ]
    )

    assert ledger.observation_coverage_id == ""
    assert ledger.reflection_coverage_id == "e3"
    assert ledger.drop_coverage_id is None


def test_a_payload_adds_what_is_not_known_yet() -> None:
    ledger = fold(
        [
            observed("c1", observation(1, "own")),
            compacted("k", (observation(1, "copy"), observation(2)), (reflection(7),), (9,)),
        ]
    )

    assert [item.content for item in ledger.observations] == ["own", "fact"]
    assert [item.id for item in ledger.reflections] == [memory(7)]
    assert ledger.dropped_ids == (memory(9),)


def test_only_what_nothing_but_pruning_dropped_is_pruned() -> None:
    ledger = fold(
        [
            dropped("d1", 1, 2, reason="pruned"),
            dropped("d2", 2),
            dropped("d3", 3),
            dropped("d4", 3, reason="pruned"),
            compacted("k", dropped_ids=(1, 4)),
        ]
    )

    assert ledger.pruned_ids == {memory(1)}


def test_a_merge_keeps_the_first_of_an_id_and_no_coverage() -> None:
    left = fold([observed("c1", observation(1, "left"), coversUpToId="e1"), dropped("d", 2)])
    right = fold([observed("c1", observation(1, "right"), observation(2)), dropped("d", 2, 3)])

    merged = merge([left, right])

    assert [item.content for item in merged.observations] == ["left", "fact"]
    assert merged.dropped_ids == (memory(2), memory(3))
    assert merged.observation_coverage_id is None


def test_an_id_that_one_ledger_dropped_for_another_reason_is_not_pruned_in_the_merge() -> None:
    pruned, gone = fold([dropped("d", 1, 2, reason="pruned")]), fold([dropped("d", 2)])

    assert merge([pruned, gone]).pruned_ids == merge([gone, pruned]).pruned_ids == {memory(1)}


def test_an_observation_is_blocked_by_its_id_or_any_source() -> None:
    item = observation(1, sources=("e1", "e2"))

    assert blocks_observation({memory(1)}, item)
    assert blocks_observation({"e2"}, item)
    assert not blocks_observation({"e3", memory(2)}, item)


def test_a_reflection_is_blocked_by_its_id_or_any_support() -> None:
    item = reflection(7, supports=(1, 2))

    assert blocks_reflection({memory(7)}, item)
    assert blocks_reflection({memory(2)}, item)
    assert not blocks_reflection({"e1"}, item)


@given(hostile_entries())
def test_a_fold_is_total_and_says_the_same_twice(entries: list[Entry]) -> None:
    ledger = fold(entries)

    assert fold(entries) == ledger
    assert len({item.id for item in ledger.observations}) == len(ledger.observations)
    assert len(set(ledger.dropped_ids)) == len(ledger.dropped_ids)
    assert not {item.id for item in active(ledger)} & set(ledger.dropped_ids)
    assert ledger.pruned_ids <= set(ledger.dropped_ids)


@given(hostile_entries())
def test_folding_a_branch_that_repeats_changes_nothing_but_pruning(entries: list[Entry]) -> None:
    once, twice = fold(entries), fold(entries + entries)

    assert twice.observations == once.observations
    assert twice.reflections == once.reflections
    assert twice.dropped_ids == once.dropped_ids
