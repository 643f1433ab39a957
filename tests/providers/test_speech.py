"""What a passage of somebody is."""

import pytest
from ombus_streams.providers.speech import (
    is_talk,
    kind_of_assistant_passage,
    kind_of_user_passage,
    passages,
    spoken,
)


@pytest.mark.parametrize(
    ("passage", "kind"),
    [
        ("Never commit to main.", "rule"),
        ("please don't touch the lock file", "rule"),
        ("use pnpm, not npm", "rule"),
        ("It is required that the output is sorted", "rule"),
        ("no, the block should stay as is", "correction"),
        ("that's not what I meant", "correction"),
        ("the gray levels still look the same... it's still broken", "correction"),
        ("Let's go with Postgres 16", "decision"),
        ("yes, do it all", "decision"),
        ("Add a flag to the status command", "request"),
        ("ok, now update the README", "request"),
        ("can you explain the fold?", "request"),
        ("the label should be shorter", "request"),
        ("The database is Postgres 16", "statement"),
        ("#f0c674", "statement"),
    ],
)
def test_a_passage_of_the_user_has_a_kind(passage: str, kind: str) -> None:
    found = kind_of_user_passage(passage)

    assert found is not None
    assert found[0] == kind


@pytest.mark.parametrize("passage", ["thanks", "/theme", "continue", "ok", "hi there", "👍"])
def test_chatter_of_the_user_has_none(passage: str) -> None:
    assert kind_of_user_passage(passage) is None


def test_not_knowing_is_no_rule() -> None:
    assert kind_of_user_passage("I don't understand the fold here") == ("statement", "medium")


@pytest.mark.parametrize(
    ("passage", "is_last", "kind"),
    [
        ("Fixed the parser in `lines.py`.", True, "done"),
        ("I've now updated both READMEs.", True, "done"),
        ("The root cause is a missing lock.", False, "finding"),
        ("The theme has five colours.", True, "remark"),
        ("Shall I also port the footer?", True, "question"),
    ],
)
def test_a_passage_of_the_assistant_has_a_kind(passage: str, is_last: bool, kind: str) -> None:
    found = kind_of_assistant_passage(passage, is_last)

    assert found is not None
    assert found[0] == kind


def test_a_remark_counts_only_where_the_assistant_concludes() -> None:
    assert kind_of_assistant_passage("The theme has five colours.", is_last=False) is None


@pytest.mark.parametrize(
    "sentence", ["Let me read the file:", "Great!", "You're absolutely right!", "Now I'll run it."]
)
def test_announcing_and_agreeing_is_talk(sentence: str) -> None:
    assert is_talk(sentence)


def test_talk_does_not_hide_what_stands_beside_it() -> None:
    text = "You're right! The lock is missing in `group.py`. Let me fix that:"

    assert list(passages(text, is_talk)) == ["The lock is missing in `group.py`."]


def test_code_tables_and_logs_are_no_prose() -> None:
    text = "See below.\n```\nx = 1; never_do(this)\n```\n$ make test\nError: no\n}\n"

    assert list(passages(text)) == ["See below."]


def test_a_list_joins_the_line_that_leads_it() -> None:
    text = "Updated:\n- `a`: 1\n- `b`: 2"

    assert list(passages(text)) == ["Updated: `a`: 1; `b`: 2"]


def test_an_unclosed_reminder_takes_the_rest_with_it() -> None:
    assert spoken("Ship it.\n<system-reminder>never mind").strip() == "Ship it."


def test_angle_brackets_of_the_user_are_left_alone() -> None:
    text = "the <button> must be inside <form>"

    assert spoken(text) == text
