"""Invented conversations: the same for a seed, different between seeds, with all that is asked."""

from ombus.eval.conversations import SEEDS, conversation_of
from ombus.eval.evidence import content_words


def test_a_seed_is_a_conversation() -> None:
    assert conversation_of(3) == conversation_of(3)
    assert conversation_of(3).turns != conversation_of(4).turns
    assert len(SEEDS) >= 10


def test_evidence_exists_and_shows_what_is_asked() -> None:
    for seed in SEEDS[:3]:
        one = conversation_of(seed)
        text_by_id = {turn.dia_id: turn.text for turn in one.turns}
        shown = [
            any(
                content_words(asked.answer) & content_words(text_by_id[name])
                for name in asked.evidence
            )
            for asked in one.questions
        ]
        assert len(shown) >= 40
        assert sum(shown) >= 0.9 * len(shown)


def test_nothing_is_left_to_be_filled_in() -> None:
    one = conversation_of(5)

    assert not any("{" in turn.text for turn in one.turns)
    assert not any("{" in asked.question + asked.answer for asked in one.questions)


def test_there_is_noise_and_there_are_updates_over_several_sessions() -> None:
    one = conversation_of(1)

    evidence = {name for asked in one.questions for name in asked.evidence}
    sessions = [{name.partition(":")[0] for name in asked.evidence} for asked in one.questions]
    assert len(evidence) < len(one.turns) / 2
    assert len(one.sessions) >= 8
    assert any(len(names) > 1 for names in sessions)
    assert len({asked.category for asked in one.questions}) >= 3
