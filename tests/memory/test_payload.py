"""S12, and rows 6 and 9 of design.md section 12."""

from hashlib import sha256
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ombus_schemas.jsontext import json_text, utf8_length
from ombus_schemas.records import RELEVANCES, Observation
from ombus_streams.memory.errors import SizeExceeded
from ombus_streams.memory.payload import Bounded, bound, drop_to_target, removal_order
from ombus_streams.memory.projection import folded_json
from ombus_streams.memory.tokens import item_tokens

from tests.support.ledgers import memory, observation, reflection

POOLS = st.lists(
    st.builds(
        lambda n, text, relevance, tokens: observation(n, text, relevance=relevance, tokens=tokens),
        st.integers(0, 6),
        st.text(st.characters(codec=None, exclude_characters="\n"), min_size=1, max_size=20),
        st.sampled_from(RELEVANCES),
        st.integers(0, 9) | st.sampled_from([0.5, 1.25]),
    ),
    max_size=12,
)


def test_the_least_relevant_go_first_then_the_smallest_then_the_oldest() -> None:
    pool = [
        observation(1, relevance="critical", tokens=1),
        observation(2, relevance="low", tokens=5),
        observation(3, relevance="low", tokens=2),
        observation(4, relevance="low", tokens=2),
        observation(5, relevance="high", tokens=0),
    ]

    assert removal_order(pool) == [2, 3, 1, 4, 0]


def test_limits_that_are_just_met_remove_nothing() -> None:
    pool = [observation(1, tokens=3), observation(2, tokens=7)]
    size = utf8_length(json_text(folded_json(False, pool, (), ())))

    assert bound(pool, (), (), 10, size) == Bounded(
        full_fold=False, observations=tuple(pool), reflections=(), dropped_ids=()
    )
    assert bound(pool, (), (), 10, size - 1).observations == (pool[1],)


def test_all_that_share_an_id_go_with_it() -> None:
    pool = [observation(1, "a", tokens=3), observation(2, tokens=9), observation(1, "b", tokens=9)]

    assert bound(pool, (), (), 18, 10_000).observations == (pool[1],)


def test_reflections_and_drops_are_never_trimmed() -> None:
    with pytest.raises(SizeExceeded) as raised:
        bound([observation(1)], [reflection(7, "r" * 100)], [memory(2)], 100, 200)

    assert raised.value.limit == 200


def test_a_payload_at_the_real_cap_keeps_what_the_removal_order_leaves() -> None:
    pool = [
        observation(i + 1, f"{i:05d}" + "x" * 995, relevance=RELEVANCES[i % 4]) for i in range(700)
    ]

    bounded = bound(pool, (), ())

    kept_ids = ",".join(item.id for item in bounded.observations)
    assert bounded.full_fold
    assert len(bounded.observations) == 462
    assert sha256(kept_ids.encode()).hexdigest().startswith("bf49430a4d5de724")
    assert utf8_length(json_text(folded_json(True, bounded.observations, (), ()))) == 524_017


def test_trimming_a_large_pool_does_not_measure_it_again_for_each_removal() -> None:
    pool = [observation(n, "x" * 50, tokens=n % 7) for n in range(20_000)]
    start = process_time()

    bound(pool, (), (), 1_000_000, 200_000)

    assert process_time() - start < 5  # quadratic: minutes


def test_dropping_stops_at_the_target() -> None:
    pool = [observation(n, tokens=tokens) for n, tokens in enumerate((5, 0, 2))]

    assert drop_to_target(pool, 5) == (memory(1), memory(2))
    assert drop_to_target(pool, 7) == ()
    assert drop_to_target(pool, -1) == (memory(1), memory(2), memory(0))


@given(POOLS, st.integers(0, 40), st.integers(60, 900))
def test_bounding_equals_the_slow_rule(
    pool: list[Observation], max_tokens: int, max_bytes: int
) -> None:
    expected = bound_by_measuring(pool, max_tokens, max_bytes)

    if expected is None:
        with pytest.raises(SizeExceeded):
            bound(pool, (), (), max_tokens, max_bytes)
    else:
        assert bound(pool, (), (), max_tokens, max_bytes) == expected


def bound_by_measuring(pool: list[Observation], max_tokens: int, max_bytes: int) -> Bounded | None:
    """S12 to the letter."""
    kept, total = list(pool), item_tokens(pool)
    full_fold = total > max_tokens

    def size() -> int:
        return utf8_length(json_text(folded_json(full_fold, kept, (), ())))

    order = iter([pool[place] for place in removal_order(pool)])
    while kept and (total > max_tokens or size() > max_bytes):
        gone = next(order)
        kept = [item for item in kept if item.id != gone.id]
        total = total - gone.token_count
        full_fold = True
    if size() > max_bytes:
        return None
    return Bounded(full_fold=full_fold, observations=tuple(kept), reflections=(), dropped_ids=())
