"""S9, and rows 1 and 10 of design.md section 12."""

import json

from hypothesis import given
from hypothesis import strategies as st
from ombus_schemas.jsontext import JsonValue, json_text, utf8_length, utf16_length
from ombus_streams.memory.redact import (
    MARKER,
    cut_utf8,
    cut_utf16,
    redact,
    redact_rendered,
    redact_text,
    redacted_json_text,
)

from tests.support.ledgers import json_values

TEXTS = st.text(st.characters(codec=None), max_size=30)
NEEDLES = st.lists(st.text("abc", max_size=3), max_size=3)


def test_later_secrets_see_the_markers_of_earlier_ones() -> None:
    assert redact_text("token", ["token", "", "REDACTED"]) == "[[REDACTED]]"


def test_keys_that_become_equal_are_numbered() -> None:
    assert redact({"k1": 1, "k2": 2, "k3": 3}, ["k1", "k2", "k3"]) == {
        MARKER: 1,
        f"{MARKER}__2": 2,
        f"{MARKER}__3": 3,
    }


def test_containers_32_deep_are_replaced() -> None:
    value: JsonValue = "x"
    for _ in range(33):
        value = [value]

    assert redact(value, []) == json.loads("[" * 32 + '"[MaxDepth]"' + "]" * 32)


def test_a_secret_that_json_escapes_is_found_in_a_decoded_string() -> None:
    assert redacted_json_text({"v": 'a"b\nc'}, ['a"b\nc']) == f'{{"v":"{MARKER}"}}'


def test_a_secret_never_breaks_the_escapes_of_json() -> None:
    text = redacted_json_text({"v": "line\nnext"}, ["n"])

    assert json.loads(text) == {"v": f"li{MARKER}e\n{MARKER}ext"}


def test_what_is_redacted_already_is_not_redacted_again() -> None:
    assert redact_rendered(f"{MARKER} ACT", ["ACT"]) == f"{MARKER} {MARKER}"


def test_a_cut_never_splits_a_character() -> None:
    assert cut_utf8("aé😀", 6) == "aé"
    assert cut_utf8("aé😀", 7) == "aé😀"
    assert cut_utf16("a😀b", 2) == "a"
    assert cut_utf16("a😀b", 3) == "a😀"
    assert cut_utf8("abc", -1) == cut_utf16("abc", 0) == ""


@given(TEXTS, st.integers(0, 60))
def test_a_byte_cut_is_a_prefix_that_fits(text: str, cap: int) -> None:
    cut = cut_utf8(text, cap)

    assert text.startswith(cut)
    assert utf8_length(cut) <= cap
    if cut != text and not "\ud800" <= text[len(cut)] <= "\udbff":
        assert utf8_length(text[: len(cut) + 1]) > cap


@given(TEXTS, st.integers(0, 40))
def test_a_unit_cut_is_a_prefix_that_fits(text: str, cap: int) -> None:
    cut = cut_utf16(text, cap)

    assert utf16_length(cut) <= cap
    assert text.startswith(cut)


@given(st.text("abcx", max_size=20), NEEDLES)
def test_no_secret_is_left(text: str, secrets: list[str]) -> None:
    redacted = redact_text(text, secrets)

    for secret in secrets:
        assert not secret or secret not in redacted


@given(json_values(), st.lists(st.text(max_size=2), max_size=2))
def test_redacted_json_text_is_still_json(value: JsonValue, secrets: list[str]) -> None:
    text = redacted_json_text(value, secrets)

    assert json_text(json.loads(text)) == text
