"""The chain of a transcript: no circle, no entry lost, forks by user texts alone."""

from hypothesis import given
from hypothesis import strategies as st
from ombus.importers.canonical import Voice
from ombus.importers.lineage import BEFORE, MISSING, ROOT, lineage_of

HUMAN, TURN, PASSIVE = Voice.HUMAN, Voice.TURN, Voice.PASSIVE


def parents(natives: list[int], voices: list[int]) -> list[int]:
    return list(lineage_of(natives, voices).parents)


def test_a_chain_stays_a_chain() -> None:
    assert parents([ROOT, 0, 1, 2], [HUMAN, TURN, HUMAN, TURN]) == [ROOT, 0, 1, 2]


def test_two_user_texts_fork_and_two_turns_do_not() -> None:
    assert parents([ROOT, 0, 1, 1], [HUMAN, TURN, HUMAN, HUMAN]) == [ROOT, 0, 1, 1]
    assert parents([ROOT, 0, 1, 1], [HUMAN, TURN, TURN, TURN]) == [ROOT, 0, 1, 2]


def test_what_follows_a_fork_stays_on_its_own_side() -> None:
    natives = [ROOT, 0, 1, 2, 1, 4, 3]

    assert parents(natives, [HUMAN, TURN, HUMAN, TURN, HUMAN, TURN, TURN]) == natives


def test_a_circle_is_cut_where_it_closes() -> None:
    lineage = lineage_of([ROOT, 2, 1], [HUMAN, TURN, TURN])

    assert list(lineage.parents) == [ROOT, 2, 0]
    assert lineage.rehung == {2}


def test_the_children_of_one_lost_parent_share_a_place() -> None:
    natives = [ROOT, 0, MISSING, 2, MISSING]
    lineage = lineage_of(natives, [HUMAN, TURN, HUMAN, TURN, HUMAN])

    assert list(lineage.parents) == [ROOT, 0, 1, 2, 1]
    assert lineage.missing == {2, 4}
    assert lineage.forks == 1


def test_a_parent_far_behind_is_not_waited_for() -> None:
    n = 1_000
    lineage = lineage_of([n - 1, ROOT, *range(1, n - 1)], [TURN] * n)

    assert lineage.rehung == {0}
    assert lineage.parents[0] == ROOT


@st.composite
def transcripts(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    n = draw(st.integers(1, 30))
    native = st.one_of(st.integers(0, n - 1), st.sampled_from([BEFORE, ROOT, MISSING, MISSING - 1]))
    voices = st.sampled_from([int(HUMAN), int(TURN), int(PASSIVE)])
    return (
        draw(st.lists(native, min_size=n, max_size=n)),
        draw(st.lists(voices, min_size=n, max_size=n)),
    )


@given(transcripts())
def test_any_tree_becomes_chains_that_fork_at_user_texts_only(
    given_rows: tuple[list[int], list[int]],
) -> None:
    natives, voices = given_rows
    lineage = lineage_of(natives, voices)
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(lineage.parents):
        children.setdefault(parent, []).append(node)

    reached, waiting = 0, [ROOT]
    while waiting:
        below = children.get(waiting.pop(), [])
        reached += len(below)
        waiting += below
    assert reached == len(natives)  # no circle, nothing cut off

    forks = sum(len(below) - 1 for below in children.values())
    assert forks == lineage.forks
    for below in children.values():
        if len(below) > 1:
            assert all(_begins_with_user_text(node, natives, voices) for node in below)


def _begins_with_user_text(node: int, natives: list[int], voices: list[int]) -> bool:
    """Look down the native tree, through passive rows, for a user text."""
    seen, waiting = set(), [node]
    while waiting:
        at = waiting.pop()
        if voices[at] == HUMAN:
            return True
        if at in seen or voices[at] == TURN:
            continue
        seen.add(at)
        waiting += [child for child, native in enumerate(natives) if native == at]
    return False
