"""Who spoke: the rules, and the parting of texts in which more than one speaks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ombus.importers.origin import parted, user_text

REMINDER = "<system-reminder>be brief</system-reminder>"


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("fix it", "human"),
        ("", "human"),
        ("  \n<system-reminder>x", "injected"),
        ("<command-message>init</command-message>", "injected"),
        ("# AGENTS.md instructions for /w", "injected"),
        ("# AGENTS.md is missing, write one", "human"),
        ("# Observational Memory\n## Reflections", "injected"),
        ("<div> is not centred", "human"),
        ("This session is being continued from a previous conversation that ran out", "summary"),
        ("This session is being continued tomorrow", "human"),
    ],
)
def test_a_text_is_judged_by_how_it_begins(text: str, origin: str) -> None:
    assert user_text(text).origin == origin


def test_reminders_are_parted_from_the_words_they_surround() -> None:
    text = f"{REMINDER}\n{REMINDER}\n\nfix <system-reminder>s?\n{REMINDER} {REMINDER}\n"

    pieces = [(piece, who.origin) for piece, who in parted(text)]

    assert pieces == [
        (f"{REMINDER}\n{REMINDER}\n\n", "injected"),
        ("fix <system-reminder>s?\n", "human"),
        (f"{REMINDER} {REMINDER}\n", "injected"),
    ]


def test_nothing_but_reminders_is_one_piece() -> None:
    text = f"{REMINDER}\n{REMINDER} "

    assert [(piece, who.origin) for piece, who in parted(text)] == [(text, "injected")]


@given(
    st.lists(
        st.sampled_from(["<system-reminder>", "</system-reminder>", " ", "\n", "words", REMINDER])
    ).map("".join)
)
def test_the_pieces_are_the_text(text: str) -> None:
    pieces = [piece for piece, _ in parted(text)]

    assert "".join(pieces) == text
    assert pieces == [text] or all(pieces)
