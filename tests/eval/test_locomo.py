"""Conversations are read from a file as they are, and become entries with ids of their own."""

import json
from pathlib import Path

import pytest
from ombus.eval.conversations import conversation_of
from ombus.eval.locomo import BadConversations, entries_of, read_conversations, written

from tests.eval.talks import asked, talk


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    conversations = [conversation_of(1), conversation_of(2)]
    file = tmp_path / "talks.json"
    file.write_bytes(written(conversations))

    read = read_conversations(file)

    assert [one.turns for one in read] == [one.turns for one in conversations]
    assert [one.questions for one in read] == [one.questions for one in conversations]
    assert list(read[0].sessions) == list(conversations[0].sessions)


def test_the_shapes_of_the_public_set_are_read(tmp_path: Path) -> None:
    file = tmp_path / "talks.json"
    turn = {"speaker": "Ann", "dia_id": "D10:1", "text": "hi", "img_url": ["x"]}
    first = {"speaker": "Bo", "dia_id": "D2:1", "text": "hello"}
    asked_about = {"question": "?", "answer": 2022, "evidence": ["D2:1; D10:1"], "category": 2}
    unanswered = {"question": "?", "adversarial_answer": "no", "evidence": [], "category": 5}
    conversation = {
        "speaker_a": "Ann",
        "session_10_date_time": "noon",
        "session_10": [turn],
        "session_2": [first],
    }
    sample = {"conversation": conversation, "qa": [asked_about, unanswered]}
    file.write_text(json.dumps([sample]))

    [one] = read_conversations(file)

    assert [said.dia_id for said in one.turns] == ["D2:1", "D10:1"]
    assert one.speakers == ("Bo", "Ann")
    assert one.questions[0].answer == "2022"
    assert one.questions[0].evidence == ("D2:1", "D10:1")
    assert one.questions[1].evidence == ()


@pytest.mark.parametrize("text", ["{", "{}", "[]", "[1]", '[{"conversation": {"session_1": []}}]'])
def test_another_file_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "talks.json"
    file.write_text(text)

    with pytest.raises(BadConversations, match=r"talks\.json"):
        read_conversations(file)


def test_one_speaker_is_the_user_the_other_the_assistant() -> None:
    entries, ids = entries_of(talk(), "t", "s")

    assert ids[:2] == ["D1:1", "D1:2"]
    assert [entry.message.role for entry in entries[:3] if entry.message] == [
        "user",
        "assistant",
        "user",
    ]
    assert [entry.parent_id for entry in entries[:3]] == [None, "D1:1", "D1:2"]


def test_turns_with_one_id_are_told_apart() -> None:
    conversation = talk(said=("one", "two"))
    turns = conversation.sessions["session_1"]
    conversation.sessions["session_2"] = [turns[0]]

    _, ids = entries_of(conversation, "t", "s")

    assert len(set(ids)) == 3


def test_no_question_reaches_an_entry() -> None:
    asking, silent = talk(asked("zeppelin", "D1:1")), talk()

    assert entries_of(asking, "t", "s") == entries_of(silent, "t", "s")
