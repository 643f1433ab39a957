"""S14, pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType
from ombus_schemas.jsontext import JsonValue
from ombus_streams.memory.pages import NoPage, Page, Refusal, page, page_json

from tests.support.ledgers import entry, json_values, message

BRANCH = [
    message("m0", "zero"),
    entry("x0", "label"),
    message("m1", "one"),
    message("sy", "system", role="system"),
    message("m2", "two"),
]


def test_a_page_ends_at_its_cursor_and_forward_starts_there() -> None:
    back, forth = page(BRANCH, "m1", 2), page(BRANCH, "m1", 2, "forward")

    assert isinstance(back, Page)
    assert isinstance(forth, Page)
    assert [item.id for item in back.entries] == ["m0", "m1"]
    assert [item.id for item in forth.entries] == ["m1", "m2"]


def test_at_the_oldest_page_the_next_cursor_points_to_the_other_side() -> None:
    oldest = page(BRANCH, "m1", 2)

    assert isinstance(oldest, Page)
    assert (oldest.next_cursor, oldest.prev_cursor) == ("m2", None)


def test_with_more_to_come_both_cursors_are_the_same() -> None:
    middle = page(BRANCH, "m2", 2)

    assert isinstance(middle, Page)
    assert middle.next_cursor == middle.prev_cursor == "m0"


@pytest.mark.parametrize(
    ("cursor", "limit", "reason", "echoed"),
    [
        (" \ufeff", 0, "invalid_cursor", 0),
        (None, UNSET, "invalid_cursor", 0),
        ("m1", 0, "limit_exceeded", 0),
        ("m1", 101, "limit_exceeded", 101),
        ("m1", 1.5, "limit_exceeded", 1.5),
        ("m1", True, "limit_exceeded", True),
        ("m1", None, "limit_exceeded", 0),
        ("zz", UNSET, "cursor_not_found", 20),
        ("\x1cm1", UNSET, "cursor_not_found", 20),
        ("sy", 3.0, "cursor_not_message", 3),
    ],
)
def test_a_page_that_cannot_be_says_why(
    cursor: JsonValue, limit: JsonValue | UnsetType, reason: Refusal, echoed: JsonValue
) -> None:
    answer = page(BRANCH, cursor, limit)

    assert isinstance(answer, NoPage)
    assert (answer.reason, answer.limit) == (reason, echoed)
    assert page_json(answer)["entries"] == []


def test_a_cursor_is_trimmed() -> None:
    answer = page(BRANCH, "\u00a0m1\n", 1)

    assert isinstance(answer, Page)
    assert answer.cursor == "m1"


def test_full_detail_shows_whole_entries() -> None:
    full, other = page(BRANCH, "m0", 1, None, "full"), page(BRANCH, "m0", 1, None, "FULL")

    assert isinstance(full, Page)
    assert isinstance(other, Page)
    assert full.text.startswith('[m0] message: {"role"')
    assert other.text == "[m0] user: zero"


@given(json_values(), json_values(), json_values(), json_values())
def test_any_arguments_are_answered(
    cursor: JsonValue, limit: JsonValue, direction: JsonValue, detail: JsonValue
) -> None:
    for at in (cursor, "m1"):
        assert isinstance(page_json(page(BRANCH, at, limit, direction, detail)), dict)


@given(st.integers(1, 20), st.integers(1, 7))
def test_walking_back_visits_every_message_once(count: int, limit: int) -> None:
    entries = [message(f"m{n}", "x") for n in range(count)]
    seen: list[str] = []
    cursor = f"m{count - 1}"

    while True:
        answer = page(entries, cursor, limit)
        assert isinstance(answer, Page)
        seen = [item.id for item in answer.entries] + seen
        if answer.entries[0].id == "m0":
            break
        assert answer.next_cursor is not None
        cursor = answer.next_cursor

    assert seen == [item.id for item in entries]
