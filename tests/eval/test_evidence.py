"""What a question needs is held, or it is not: the measure by hand, and over what is invented."""

import msgspec
import pytest
from ombus.eval.conversations import conversation_of
from ombus.eval.evidence import content_words, is_readable, measured
from ombus.eval.locomo import entries_of
from ombus.eval.remembering import Plan, Shown, remember

from tests.eval.talks import SAID, asked, talk


def test_all_of_an_answer_within_the_budget_is_held() -> None:
    found = measured([talk(asked("Ghent in March", "D1:2"))], 1.0)

    assert (found.questions, found.held) == (1, 1.0)


def test_a_word_that_is_missing_is_not_held_and_a_small_budget_misses_words() -> None:
    found = measured([talk(asked("Meridian Textiles", "D1:2"), asked("plum", "D1:4"))], 0.05)

    assert found.held == 0.0


def test_a_question_without_a_shared_word_evidence_or_answer_is_left_out() -> None:
    questions = (
        asked("zeppelin", "D1:2"),
        asked("Ghent", "D9:9"),
        asked("Ghent"),
        asked("Ghent", "D1:2", category=5),
        asked("Ghent", "D1:2", "D9:9"),
    )

    found = measured([talk(*questions)], 0.5)

    assert (found.questions, found.left_out) == (1, 4)


def test_every_evidence_turn_must_be_held() -> None:
    """The second turn shows no word of the answer: two of its words must be there."""
    both = asked("Ghent", "D1:2", "D1:10")

    assert measured([talk(both)], 1.0).held == 1.0
    assert measured([talk(asked("Ghent", "D1:2", "D1:1"))], 0.35).held == 0.0


def test_a_recency_window_holds_the_last_turns_alone() -> None:
    found = measured([talk(asked("landlord", "D1:8"), asked("Ghent", "D1:2"))], 0.3)

    assert found.window == 0.5
    assert found.window_ratio <= 0.3


def test_stop_words_are_no_content() -> None:
    assert content_words("The sister of Bo's 2nd FLAT") == {"sister", "bo", "2nd", "flat"}


def shown(content: str, *sources: str) -> Shown:
    return Shown(memory_id="m", content=content, source_ids=sources, is_reflection=False)


SPOKEN = {"a": "I moved to Ghent in March, by train.", "b": "My sister makes plum cake on Sundays."}


@pytest.mark.parametrize(
    ("content", "is_so"),
    [
        ("U: I moved to Ghent in March", True),
        ("U: I moved to Ghent … in March, by train | A: sister makes plum cake", True),
        ("User said: I moved to Ghent in March, by train.", True),
        ("U: moved Ghent March train", False),
        ("U: moved to Ghent", False),
        ("moved Ghent March sister plum cake", False),
        ("Committed 4f1c2aa on main: cake", True),
    ],
)
def test_a_line_is_readable_if_it_is_what_was_said(content: str, is_so: bool) -> None:
    assert is_readable(shown(content, "a", "b"), SPOKEN) is is_so


def test_a_span_of_another_turn_is_not_what_its_source_said() -> None:
    assert not is_readable(shown("U: sister makes plum cake on Sundays", "a"), SPOKEN)


@pytest.mark.parametrize("budget", [0.15, 0.3])
def test_the_memory_keeps_to_its_budget_is_readable_and_beats_the_window(budget: float) -> None:
    found = measured([conversation_of(seed) for seed in (1, 2)], budget)

    assert found.ratio <= budget
    assert found.readable >= 0.95
    assert found.held > found.window + 0.15


def test_the_users_newest_message_counts_when_the_other_speaks_last() -> None:
    said = (*SAID[:3], *(f"And another {word} thing happened to me" for word in "abcdefgh"))
    one = talk(asked("Ghent", "D1:2"), said=said)
    turns = one.sessions["session_1"]
    turns[3:] = [msgspec.structs.replace(turn, speaker="Bo") for turn in turns[3:]]

    assert measured([one], 0.5).ratio <= 0.5


def test_the_target_is_met_on_what_is_invented() -> None:
    assert measured([conversation_of(seed) for seed in (3, 4)]).held >= 0.45


def test_two_runs_say_the_same() -> None:
    first, second = (measured([conversation_of(1)]) for _ in range(2))

    assert msgspec.structs.replace(first, seconds=0) == msgspec.structs.replace(second, seconds=0)


def test_a_conversation_is_observed_in_several_runs_and_ends_in_context() -> None:
    entries, _ = entries_of(conversation_of(1, 150), "eval", "s")

    found = remember(entries, Plan(line_tokens=2_000))

    assert found.n_runs >= 4
    assert found.memory_tokens <= 2_000
    assert all(f"[{line.memory_id}]" in found.text for line in found.lines)
    assert found.window_ids == tuple(entry.id for entry in entries[-2:])


def test_a_short_talk_is_measured_too() -> None:
    assert measured([talk(asked("one", "D1:1"), said=(SAID[1],))], 0.3).questions == 0
