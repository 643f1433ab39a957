"""S8, design.md section 9, and rows 4 and 14 of its section 12."""

from hypothesis import given
from ombus_schemas.entries import Entry
from ombus_schemas.records import FoldedThrough
from ombus_streams.memory.projection import Projection, project

from tests.support.ledgers import (
    compacted,
    dropped,
    hostile_entries,
    memory,
    message,
    observation,
    observed,
    reflected,
    reflection,
)


def observations_of(projection: Projection) -> list[str]:
    return [item.id for item in projection.observations]


def reflections_of(projection: Projection) -> list[str]:
    return [item.id for item in projection.reflections]


def test_a_boundary_hides_what_is_recorded_from_it_on() -> None:
    entries = [observed("c1", observation(1)), message("e9", "x"), observed("c2", observation(2))]

    assert observations_of(project(entries, "e9")) == [memory(1)]
    assert observations_of(project(entries, "unknown")) == [memory(1), memory(2)]


def test_an_imported_payload_alone_is_visible_after_it() -> None:
    entries = [
        observed("c1", observation(1)),
        compacted("k", (observation(2), observation(2))),
        observed("c2", observation(3)),
    ]

    projection = project(entries)

    assert observations_of(projection) == [memory(2), memory(2)]
    assert projection.folded is not None
    assert len(projection.full.observations) == 3


def test_after_a_compaction_of_ours_records_it_has_not_folded_are_added() -> None:
    entries = [
        observed("c1", observation(1), observation(2)),
        observed("c2", observation(3)),
        compacted("k", (observation(1),), folded_through=FoldedThrough(observations="c1")),
        observed("c3", observation(4)),
        dropped("d1", 4),
        reflected("r1", reflection(7)),
    ]

    projection = project(entries)

    assert observations_of(projection) == [memory(1), memory(3)]
    assert reflections_of(projection) == [memory(7)]
    assert projection.dropped_ids == (memory(4),)


def test_a_drop_hides_the_reflections_that_rest_on_it() -> None:
    entries = [
        observed("c1", observation(1)),
        reflected("r1", reflection(7, supports=(1,)), reflection(8, supports=(2,))),
        dropped("d1", 1),
    ]

    assert reflections_of(project(entries)) == [memory(8)]


def test_pruning_keeps_the_reflections_that_rest_on_what_is_dropped() -> None:
    entries = [
        observed("c1", observation(1)),
        reflected("r1", reflection(7, supports=(1,))),
        dropped("d1", 1, reason="pruned"),
    ]

    projection = project(entries)

    assert observations_of(projection) == []
    assert reflections_of(projection) == [memory(7)]


def test_pruned_supports_stay_harmless_after_the_compaction_that_lists_them() -> None:
    entries = [
        observed("c1", observation(1)),
        reflected("r1", reflection(7, supports=(1,))),
        dropped("d1", 1, reason="pruned"),
        compacted(
            "k",
            reflections=(reflection(7, supports=(1,)),),
            dropped_ids=(1,),
            folded_through=FoldedThrough(observations="c1", reflections="r1", drops="d1"),
        ),
    ]

    assert reflections_of(project(entries)) == [memory(7)]


def test_an_invalidated_source_hides_a_reflection_over_a_pruned_observation() -> None:
    entries = [
        observed("c1", observation(1, sources=("e5",))),
        reflected("r1", reflection(7, supports=(1,))),
        dropped("d1", 1, reason="pruned"),
    ]

    assert reflections_of(project(entries, invalidated_ids={"e5"})) == []


def test_an_invalidated_source_hides_a_reflection_whose_support_was_trimmed() -> None:
    entries = [
        observed("c1", observation(1, sources=("e5",))),
        reflected("r1", reflection(7, supports=(1,))),
        compacted(
            "k",
            reflections=(reflection(7, supports=(1,)),),
            folded_through=FoldedThrough(observations="c1", reflections="r1"),
        ),
    ]

    assert reflections_of(project(entries, invalidated_ids={"e5"})) == []
    assert reflections_of(project(entries, invalidated_ids={"e6"})) == [memory(7)]


def test_what_an_invalidation_hides_is_listed_after_what_is_dropped() -> None:
    entries = [observed("c1", observation(1), observation(2, sources=("e5",))), dropped("d", 1)]

    projection = project(entries, invalidated_ids={"e5"})

    assert projection.dropped_ids == (memory(1), memory(2))
    assert observations_of(projection) == []
    assert len(projection.full.observations) == 2


@given(hostile_entries())
def test_nothing_invalidated_is_visible(entries: list[Entry]) -> None:
    projection = project(entries, invalidated_ids={"e1"})

    assert projection.observations == ()
