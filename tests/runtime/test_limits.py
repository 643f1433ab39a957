"""Sizes, joins and cuts at the edge (S15, S17)."""

import pytest
from hypothesis import given
from msgspec import UNSET
from ombus_schemas.jsontext import JsonValue, json_text, utf8_length
from ombus_streams.runtime.errors import LimitExceeded
from ombus_streams.runtime.limits import error_text, join, measure, page_limit, truncate

from tests.support.ledgers import json_values


@given(json_values())
def test_a_measured_size_is_that_of_the_json_text(value: JsonValue) -> None:
    try:
        text = json_text(value)
    except OverflowError:
        return

    if "null" not in text:  # where an infinite integer would stand
        assert measure(value, 10**9, "value") == utf8_length(text)


def test_a_value_of_exactly_the_cap_fits_and_one_byte_less_does_not() -> None:
    assert measure({"a": "é"}, 10, "value") == 10

    with pytest.raises(LimitExceeded, match="value exceeds 9 bytes"):
        measure({"a": "é"}, 9, "value")


def test_absent_members_vanish_and_absent_items_are_null() -> None:
    assert measure({"a": UNSET, "b": 1}, 100, "value") == len('{"b":1}')
    assert measure([UNSET, 1], 100, "value") == len("[null,1]")


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 10**400, object(), {1: 2}, {"a"}, b"x", UNSET]
)
def test_what_json_cannot_say_is_refused(value: object) -> None:
    with pytest.raises(LimitExceeded, match="is not JSON"):
        measure(value, 1_000_000, "value")


def test_a_circle_is_refused_by_its_depth() -> None:
    circle: list[object] = []
    circle.append(circle)

    with pytest.raises(LimitExceeded, match="depth 64"):
        measure(circle, 1_000_000, "value")


def test_a_newline_stands_between_parts_once_there_is_text() -> None:
    assert join(["", "", "a", "", "b"], 100, "prompt") == "a\n\nb"
    assert join([], 0, "prompt") == ""

    with pytest.raises(LimitExceeded, match="prompt exceeds 2 bytes"):
        join(["a", "b"], 2, "prompt")


def test_a_cut_never_splits_a_character() -> None:
    assert truncate("a😀b", 6) == "a😀b"
    assert truncate("a😀b", 5) == "a😀"
    assert truncate("a😀b", 4) == "a"


def test_a_foreign_message_is_redacted_and_then_cut() -> None:
    assert error_text("token s3cr3t leaked", ["s3cr3t"], 100) == "token [REDACTED] leaked"
    assert error_text("token s3cr3t leaked", ["s3cr3t"], 8) == "token [R"


def test_our_own_message_is_not_cut_but_redacted_all_the_same() -> None:
    message = "Unknown observational memory tool: s3cr3t"

    assert error_text(message, [], 8) == message
    assert error_text(message, ["s3cr3t"], 8) == "Unknown observational memory tool: [REDACTED]"


def test_a_page_limit_has_no_upper_bound_and_absent_is_twenty() -> None:
    assert page_limit(UNSET) == 20
    assert page_limit(5_000) == 5_000


@pytest.mark.parametrize("value", [None, 0, 1.5, "20", True, -1])
def test_a_page_limit_that_is_no_count_is_out_of_range(value: JsonValue) -> None:
    with pytest.raises(ValueError, match="pageLimit"):
        page_limit(value)
