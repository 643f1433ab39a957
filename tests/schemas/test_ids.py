"""Ids follow from what they name, and nothing else can be spelled like one."""

from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ombus_schemas import ids

PARTS = st.none() | st.text(alphabet="a1:-,/é", max_size=4)


def test_a_part_is_its_byte_length_a_colon_and_its_bytes() -> None:
    expected = sha256("1:a2:é-:1:21:b0:".encode()).hexdigest()
    assert ids.hash_parts("a", "é", None, ["b", ""]) == expected


CUTS = st.sets(st.integers(0, 9)).map(sorted)


@given(st.text(alphabet="a1:-é", min_size=9, max_size=9), CUTS, CUTS)
def test_no_two_cuts_of_the_same_text_share_a_hash(
    text: str, first: list[int], second: list[int]
) -> None:
    is_same = _cut(text, first) == _cut(text, second)
    assert (ids.hash_parts(*_cut(text, first)) == ids.hash_parts(*_cut(text, second))) == is_same


def _cut(text: str, at: list[int]) -> list[str]:
    return [text[i:j] for i, j in pairwise([0, *at, len(text)])]


@given(PARTS, st.lists(PARTS, max_size=4), st.lists(PARTS, max_size=4), PARTS)
def test_a_list_is_told_from_its_neighbours(
    part: str | None, first: list[str | None], second: list[str | None], last: str | None
) -> None:
    one, other = ids.hash_parts(part, first, last), ids.hash_parts(part, second, last)
    assert (one == other) == (first == second)


def test_a_run_is_the_same_run_until_any_input_differs() -> None:
    run = ids.run_id("observer", "t", "s", "threshold", "e1", None, "e4", ["e2", "e4"])
    assert run == ids.run_id("observer", "t", "s", "threshold", "e1", None, "e4", ["e2", "e4"])
    assert len(run) == 24
    assert run != ids.run_id(
        "observer", "t", "s", "threshold", "e1", None, "e4", ["e2", "e3", "e4"]
    )
    assert run != ids.run_id("observer", "t", "s", "threshold", "e1", "", "e4", ["e2", "e4"])
    assert ids.result_entry_id("observer", run) == f"om:observer:{run}"


def test_a_memory_id_counts_order_and_repeats() -> None:
    assert ids.observation_id("User prefers tabs", []) == "5efd52052811"
    assert ids.observation_id("dup", ["e1", "e1"]) == "e4b68e4b1298"
    assert ids.reflection_id("dup", ["e1"]) != "e4b68e4b1298"


def test_half_a_character_has_a_memory_id_too() -> None:
    assert ids.observation_id("bad \ud83d end", ["e1"]) == "43856d1f9f57"


@pytest.mark.parametrize("bad", ["", "a b", "a/b", "x" * 129, "ü", "a\n"])
def test_a_key_part_holds_neither_slash_nor_blank(bad: str) -> None:
    assert not ids.is_key_part(bad)
    assert ids.is_key_part("Acme.eu_1:x-2")
    assert ids.is_key_part("x" * 128)


def test_the_system_tenant_is_spelled_right_and_reserved() -> None:
    assert ids.is_key_part("_system")
    assert not ids.is_tenant_id("_system")


@pytest.mark.parametrize("bad", ["", "a b", "x" * 201, "é", "a\n", "\x7f", "\t"])
def test_an_entry_id_is_printable_ascii_without_space(bad: str) -> None:
    assert not ids.is_entry_id(bad)
    assert ids.is_entry_id("om:observer:0a~!")
    assert ids.is_entry_id("x" * 200)


def test_a_key_tells_tenant_from_session() -> None:
    assert ids.split_key(ids.session_key("acme", "s-1")) == ("acme", "s-1")
    for key in (b"", b"acme", b"a/b/c", b"/s", b"t/", b"\xff/s", b"t/s\n"):
        assert ids.split_key(key) is None


@pytest.mark.parametrize("bad", ["", "a b", "a..b", "../etc", "x" * 129, "ün", "a\n"])
def test_a_scope_id_cannot_climb(bad: str) -> None:
    assert not ids.is_scope_id(bad)
    assert ids.is_scope_id("A.b_c:d/e-f")


@pytest.mark.parametrize(
    "bad", ["", " s", "s ", "s\n", "a\x7f", "\u00a0nbsp", "\ufeffs", "x" * 257]
)
def test_a_principal_is_trimmed_as_javascript_trims(bad: str) -> None:
    assert not ids.is_principal_id(bad)
    assert ids.is_principal_id("a b")
    assert ids.is_principal_id("ü 😀")
    assert ids.is_principal_id("\x85")


def test_a_ref_names_an_observation_or_a_reflection() -> None:
    assert ids.is_bind_ref(ids.observation_ref("0" * 12))
    assert ids.is_bind_ref(ids.reflection_ref("f" * 12))
    for bad in ("obs:000000000001", "om:XYZ", "om:0000000000001", "om:000000000001\n"):
        assert not ids.is_bind_ref(bad)
