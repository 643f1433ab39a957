"""A known value is looked for in every form it travels in; a secrets file says which values."""

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ombus_schemas.redaction import MARKER, redact_text
from ombus_schemas.secrets import BadSecret, needles, parse_secrets

VALUES = st.text(st.characters(codec="utf-8"), min_size=8, max_size=40).filter(
    lambda value: len(value.strip()) >= 8 and value not in MARKER
)


@given(VALUES)
def test_a_value_is_found_as_json_urls_and_html_spell_it(value: str) -> None:
    forms = needles([value])
    for spelt in (
        value,
        json.dumps(value),
        json.dumps(value, ensure_ascii=False),
        json.dumps(json.dumps({"v": value})),
        quote(value),
        quote(value, safe=""),
        quote_plus(value),
        html.escape(value),
    ):
        redacted = redact_text(f"({spelt})", forms)
        assert MARKER in redacted
        assert value not in redacted


@given(st.binary(max_size=5), VALUES, st.binary(max_size=5))
def test_a_value_is_found_wherever_it_stands_in_base64(
    before: bytes, value: str, after: bytes
) -> None:
    raw = before + value.encode() + after
    forms = needles([value])
    assert MARKER in redact_text(base64.b64encode(raw).decode(), forms)
    assert MARKER in redact_text(base64.urlsafe_b64encode(raw).decode(), forms)


def test_the_longest_form_goes_first_so_that_nothing_is_left_of_it() -> None:
    forms = needles(["hunter", "hunter-of-shadows"])
    assert redact_text("hunter-of-shadows, hunter", forms) == f"{MARKER}, {MARKER}"
    assert list(forms) == sorted(forms, key=lambda form: (-len(form), form))


def test_lines_of_a_value_are_found_by_themselves_and_with_other_breaks() -> None:
    value = "a line that is long enough 1\nshort\na line that is long enough 2\n"
    forms = needles([value])
    assert redact_text(value.replace("\n", "\r\n").strip(), forms) == MARKER
    assert redact_text("> a line that is long enough 2", forms) == f"> {MARKER}"
    assert redact_text("short", forms) == "short"


def test_a_value_that_is_a_part_of_the_marker_is_not_looked_for() -> None:
    assert redact_text("x [REDACTED] y", needles(["REDACTED"])) == "x [REDACTED] y"


def test_a_secrets_file_has_one_value_a_line() -> None:
    text = '# comment\n\n  plain value \n"\\"quoted\\"\\nover lines"\n"#hash"\r\n'
    assert parse_secrets(text) == ("plain value", '"quoted"\nover lines', "#hash")
    assert parse_secrets("") == ()


@pytest.mark.parametrize("line", ["abc", '"ab"', '"open', '"a" b', "x" * 70_000, '"   a   "'])
def test_what_cannot_be_looked_for_is_refused_by_its_line_and_not_quoted(line: str) -> None:
    with pytest.raises(BadSecret) as refused:
        parse_secrets(f"fine value\n{line}")
    assert refused.value.line == 2
    assert line.strip('"') not in str(refused.value)
