"""S10, and row 1 of design.md section 12."""

import pytest
from hypothesis import given
from ombus_schemas.jsontext import JsonValue
from ombus_streams.memory.redact import MARKER
from ombus_streams.memory.window import block_text, render_window, window_entries, window_ids

from tests.support.ledgers import entry, json_values, message

TWELVE = [message(f"m{n}", "x") for n in range(12)]


@pytest.mark.parametrize(
    ("keep", "count"),
    [(0, 0), (-2, 0), (1, 1), (2.9, 2), (100, 12), (0.5, 12), (float("inf"), 12), (-0.5, 0)],
)
def test_a_window_keeps_the_last_messages(keep: float, count: int) -> None:
    assert window_ids(TWELVE, keep) == tuple(f"m{n}" for n in range(12 - count, 12))


def test_messages_of_any_role_are_candidates_and_nothing_else_is() -> None:
    entries = [message("s", "x", role="system"), entry("l", "label"), entry("m", "message")]

    assert window_ids(entries, 8) == ("s",)


def test_the_default_window_keeps_eight() -> None:
    assert [one.id for one in window_entries(TWELVE)] == [f"m{n}" for n in range(4, 12)]


def test_every_entry_with_a_chosen_id_is_in_the_window() -> None:
    entries = [message("a", "1"), entry("b", "label"), message("b", "2")]

    assert [one.kind for one in window_entries(entries, 1)] == ["label", "message"]


def test_the_oldest_go_until_the_budget_holds() -> None:
    assert len(window_entries(TWELVE, 5, max_tokens=14)) == 2  # 7 tokens each
    assert len(window_entries(TWELVE, 5, max_tokens=13)) == 1
    assert window_entries(TWELVE, 5, max_tokens=0) == ()


def test_parts_are_joined_by_a_space_and_empty_ones_left_out() -> None:
    line = message("m", "", {"type": "thinking", "text": "hm"}, "a\nb", {"type": "odd"})

    assert render_window([line, entry("x", "label")]) == "[m] user: hm a\nb [content]"


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"type": "tool_result", "name": "t"}, "[tool_result t undefined]"),
        ({"type": "tool_result", "name": "t", "result": None}, "[tool_result t null]"),
        ({"type": "tool_result", "name": "t", "error": "", "result": 1.0}, "[tool_result t 1]"),
        ({"type": "tool_result", "name": "t", "error": {}, "result": 1}, "[tool_result t {}]"),
        ({"type": "tool_call", "name": "t"}, "[tool_call t undefined]"),
        ({"type": "tool_call_delta", "index": 2}, "[tool_call_delta 2]"),
        ({"type": "image", "name": ""}, "[image]"),
        ({"type": "file", "name": "f"}, "[file f]"),
        ({"type": "text"}, ""),
        ({}, "[content]"),
    ],
)
def test_a_block_reads_as_the_reference_prints_it(block: dict[str, JsonValue], text: str) -> None:
    assert block_text(block) == text


def test_a_secret_that_json_escapes_is_redacted_in_a_tool_result() -> None:
    line = message("m", {"type": "tool_result", "name": "t", "result": {"v": 'a"b'}})

    assert render_window([line], ['a"b']) == f'[m] user: [tool_result t {{"v":"{MARKER}"}}]'


def test_a_secret_is_gone_before_the_cut_could_halve_it() -> None:
    text = render_window([message("m", "key sk-123456")], ["sk-123456"], max_bytes=20)

    assert text == "[m] user: key [REDAC"


@given(json_values(), json_values())
def test_any_block_is_rendered(kind: JsonValue, value: JsonValue) -> None:
    for name in ("text", "tool_call", "tool_call_delta", "tool_result", "image", kind):
        block = {"type": name, "text": value, "name": value, "result": value, "arguments": value}

        assert isinstance(block_text(block, ["a"]), str)
