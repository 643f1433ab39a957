"""S18: what is visible from a scope, and design.md section 12, row 14."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory import ledger, scopes
from ombus_streams.memory.scope_projection import INCLUDES, ScopedMemory, project_scopes

from tests.memory.test_scopes import on, opened, ref
from tests.support.ledgers import (
    dropped,
    entry,
    memory,
    observation,
    observed,
    reflected,
    reflection,
)

TREE: tuple[JsonObject, ...] = (
    opened("plan", kind="plan"),
    opened("task", "plan", kind="task"),
    opened("sub", "task"),
    on("bound", "session", refs=[ref(1)]),
    on("bound", "plan", refs=[ref(2), "reflection:000000000009"]),
    on("bound", "task", refs=[ref(3)]),
    on("bound", "sub", refs=[ref(4)]),
)
LEDGER = ledger.fold(
    [
        observed("c", *(observation(n) for n in (4, 3, 2, 1, 5))),
        reflected("r", reflection(9, supports=(2,))),
    ]
)


def seen(
    from_id: str, include: str, *more: JsonObject, closed: bool = False, kinds: tuple[str, ...] = ()
) -> ScopedMemory:
    scope_map = scopes.fold(entry("s", data=record) for record in (*TREE, *more))
    return project_scopes(
        LEDGER, scope_map, from_id, include, "include" if closed else "hide", list(kinds)
    )


def ids(found: ScopedMemory) -> list[str]:
    return [item.id for item in found.observations]


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("self", [3]),
        ("self+ancestors", [3, 2, 1]),
        ("self+descendants", [4, 3]),
        ("lineage", [4, 3, 2, 1]),
    ],
)
def test_what_is_bound_is_shown_in_ledger_order(include: str, expected: list[int]) -> None:
    assert ids(seen("task", include)) == [memory(n) for n in expected]


def test_a_closed_scope_is_hidden_unless_it_is_an_ancestor_or_asked_for() -> None:
    shut = on("closed", "task")

    assert ids(seen("task", "self", shut)) == []
    assert ids(seen("task", "self", shut, closed=True)) == [memory(3)]
    assert ids(seen("sub", "self+ancestors", shut)) == [memory(n) for n in (4, 3, 2, 1)]


def test_a_list_of_kinds_filters_and_a_missing_kind_is_the_empty_one() -> None:
    assert ids(seen("plan", "self+descendants", kinds=("task",))) == [memory(3)]
    assert ids(seen("plan", "self+descendants", kinds=("",))) == [memory(4)]


def test_an_unknown_place_or_word_finds_nothing() -> None:
    assert seen("nowhere", "self") == ScopedMemory()
    assert seen("plan", "all") == ScopedMemory()


def test_without_host_scopes_everything_is_seen() -> None:
    found = project_scopes(LEDGER, scopes.EMPTY, "nowhere", "nothing")

    assert len(found.observations) == 5
    assert found.outline == ()


def test_a_pruned_support_keeps_its_reflection_and_a_dropped_one_hides_it() -> None:
    entries = [observed("c", observation(2)), reflected("r", reflection(9, supports=(2,)))]
    pruned = ledger.fold([*entries, dropped("d", 2, reason="pruned")])
    gone = ledger.fold([*entries, dropped("d", 2)])

    assert len(project_scopes(pruned, scopes.EMPTY, "session", "self").reflections) == 1
    assert project_scopes(gone, scopes.EMPTY, "session", "self").reflections == ()


@given(
    st.sampled_from(["session", "plan", "task", "sub"]),
    st.sampled_from(INCLUDES),
    st.booleans(),
)
def test_a_projection_is_a_part_of_the_ledger_in_its_order(
    from_id: str, include: str, closed: bool
) -> None:
    found = seen(from_id, include, on("closed", "plan"), closed=closed)

    assert [item for item in LEDGER.observations if item in found.observations] == list(
        found.observations
    )
