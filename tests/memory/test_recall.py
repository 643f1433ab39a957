"""S14, recall by id."""

from ombus_schemas.entries import Entry
from ombus_streams.memory.recall import (
    NotRecalled,
    RecalledObservation,
    RecalledReflection,
    Revoked,
    recall,
    recall_json,
)
from ombus_streams.memory.shared import SharedMemory

from tests.support.ledgers import (
    dropped,
    memory,
    message,
    observation,
    observed,
    reflected,
    reflection,
)

BRANCH: list[Entry] = [
    message("e1", "one"),
    message("e2", "two"),
    observed("c1", observation(1, "first", sources=("e2", "gone", "e2")), observation(2)),
    reflected("r1", reflection(7, "gist", supports=(2, 3, 1, 2)), reflection(1)),
    dropped("d1", 2),
]


def test_an_observation_comes_with_its_sources_in_recorded_order() -> None:
    answer = recall(BRANCH, memory(1))

    assert isinstance(answer, RecalledObservation)
    assert [entry.id for entry in answer.source_entries] == ["e2", "e2"]
    assert answer.missing_source_ids == ("gone",)
    assert not answer.dropped
    assert answer.text.startswith(f"Observation [{memory(1)}]: first\n\nSource evidence:\n[e2] ")


def test_a_dropped_observation_is_still_recalled() -> None:
    answer = recall(BRANCH, memory(2))

    assert isinstance(answer, RecalledObservation)
    assert answer.dropped
    assert f"[{memory(2)}] (dropped): " in answer.text


def test_a_reflection_comes_with_supports_and_each_source_once() -> None:
    answer = recall(BRANCH, memory(7))

    assert isinstance(answer, RecalledReflection)
    assert [item.id for item in answer.supporting_observations] == [
        memory(2),
        memory(1),
        memory(2),
    ]
    assert answer.dropped_support_ids == (memory(2), memory(2))
    assert answer.missing_support_ids == (memory(3),)
    assert [entry.id for entry in answer.source_entries] == ["e1", "e2"]
    assert answer.missing_source_ids == ("gone",)
    assert f"\n\nMissing supporting observations: {memory(3)}\n\n" in answer.text


def test_an_unknown_and_a_malformed_id_are_told_apart() -> None:
    unknown, malformed = recall(BRANCH, memory(99)), recall(BRANCH, memory(1) + "\n")

    assert isinstance(unknown, NotRecalled)
    assert isinstance(malformed, NotRecalled)
    assert (unknown.reason, malformed.reason) == ("not_found", "invalid_id")
    assert recall_json(unknown)["found"] is False


def test_of_a_withdrawn_source_nothing_is_shown_but_ids() -> None:
    withdrawn = [recall(BRANCH, memory(n), invalidated_ids={"e2"}) for n in (1, 7)]

    for answer in withdrawn:
        assert isinstance(answer, Revoked)
        shown = str(recall_json(answer))
        assert "first" not in shown
        assert "gist" not in shown
    assert isinstance(recall(BRANCH, memory(2), invalidated_ids={"e2"}), RecalledObservation)


def test_the_source_of_a_dropped_support_still_revokes_the_reflection() -> None:
    assert isinstance(recall(BRANCH, memory(7), invalidated_ids={"e1"}), Revoked)
    assert isinstance(recall(BRANCH, memory(7), invalidated_ids={memory(3)}), Revoked)


def test_secrets_leave_the_evidence_but_not_the_content() -> None:
    answer = recall(BRANCH, memory(1), ["two", "first"])

    assert isinstance(answer, RecalledObservation)
    assert "[REDACTED]" in answer.text
    assert "first" in answer.text


def test_local_memory_and_entries_win_over_shared_ones() -> None:
    shared = SharedMemory(
        observations=(observation(1, "theirs"), observation(4, "shared", sources=("e1", "x1"))),
        reflections=(reflection(8, supports=(4,)),),
        dropped_ids=(memory(4),),
        entries=(message("e1", "their one"), message("x1", "their own")),
    )

    local = recall(BRANCH, memory(1), shared=shared)
    other = recall(BRANCH, memory(4), shared=shared)

    assert isinstance(local, RecalledObservation)
    assert local.observation.content == "first"
    assert isinstance(other, RecalledObservation)
    assert other.dropped
    assert other.source_entries == (BRANCH[0], message("x1", "their own"))
    assert isinstance(recall(BRANCH, memory(8), shared=shared), RecalledReflection)


def test_the_last_entry_of_a_repeated_id_is_the_evidence() -> None:
    answer = recall([*BRANCH, message("e2", "again")], memory(1))

    assert isinstance(answer, RecalledObservation)
    assert "again" in answer.text
