"""Rows of bytes: line ends, encodings, cuts, caps, and the JSON in them."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ombus.importers import lines
from ombus.importers.lines import MAX_DEPTH, BadRow, decode, open_utf8, read_row, rows_of
from ombus_schemas.jsontext import JsonValue


def texts_of(content: bytes, cap: int = 1_000) -> list[bytes | None]:
    file = io.BytesIO(content)
    found: list[bytes | None] = []
    for row in rows_of(file, cap):
        file.seek(row.offset)
        found.append(file.read(row.size) if row.size >= 0 else None)
    return found


def test_lines_end_at_line_feeds_alone() -> None:
    content = 'a\u2028b\x85c\r\n\rd\n\n"e"'.encode()

    assert texts_of(content) == ["a\u2028b\x85c".encode(), b"\rd", b"", b'"e"']


def test_a_line_over_the_cap_is_passed_in_bounded_steps() -> None:
    content = b"a\n" + b"x" * 5_000 + b"\nb\n" + b"y" * 1_001 + b"\n" + b"z" * 1_000

    assert texts_of(content) == [b"a", None, b"b", None, b"z" * 1_000]


@given(st.lists(st.binary(max_size=9) | st.just(b"\r"), max_size=9), st.integers(1, 20))
def test_rows_are_the_lines_wherever_the_chunks_end(parts: list[bytes], chunk: int) -> None:
    content = b"x" + b"\n".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_CHUNK_BYTES", chunk)
        found = texts_of(content)

    expected = content.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert found == [line.removesuffix(b"\r") for line in expected]


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"]
)
def test_a_file_may_be_in_any_unicode_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes('{"a":"é\u2028😀"}\n{"b":1}\n'.encode(encoding))

    with open_utf8(path) as file:
        values = [read_row(file, row) for row in rows_of(file)]

    assert values == [{"a": "é\u2028😀"}, {"b": 1}]


def test_characters_that_are_none_are_replaced() -> None:
    assert decode(rb'"a\ud83d"') == "a\ufffd"
    assert decode(rb'{"\udc00":["\ud83d\ude00 \ud83d"]}') == {"\ufffd": ["😀 \ufffd"]}
    assert decode(b'"\xed\xa0\xbd\xed\xb8\x80"') == "😀"
    assert decode(b'"caf\xe9"') == "caf\ufffd"
    assert decode(b'"a\tb\x1b"') == "a\tb\x1b"
    assert decode(b"[NaN,-Infinity,1e999]") == [None, None, None]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "blank line"),
        (b"  ", "blank line"),
        (b'{"a":', "not JSON: Expecting value"),
        (b'{"a":"\\***"}', "not JSON: Invalid \\escape"),
        (b"[" * 100_000, "nested deeper"),
        (b"[" * (MAX_DEPTH + 2) + b"]" * (MAX_DEPTH + 2), "nested deeper"),
        (b'{"a":1}{"b":2}', "not JSON: Extra data"),
    ],
)
def test_what_is_no_json_value_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadRow) as error:
        decode(data)

    assert str(error.value).startswith(reason)


def test_the_row_the_file_ends_in_says_so() -> None:
    file = io.BytesIO(b'{"a":1}\n{"a":')
    rows = list(rows_of(file))

    with pytest.raises(BadRow, match="the file ends inside this line"):
        read_row(file, rows[1])


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_values_survive(value: JsonValue) -> None:
    assert decode(json.dumps(value).encode()) == value
    assert decode(json.dumps(value, ensure_ascii=False).encode()) == value
