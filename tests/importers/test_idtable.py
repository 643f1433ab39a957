"""The table of ids is a dict, in less memory."""

from hypothesis import given
from hypothesis import strategies as st
from ombus.importers.idtable import IdTable


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 255).map(lambda low: low << 56)))
def test_the_first_row_of_a_key_stays(keys: list[int]) -> None:
    table, expected = IdTable(), dict[int, int]()
    for row, key in enumerate(keys):
        assert table.add(key, row) is (key not in expected)
        expected.setdefault(key, row)

    assert len(table) == len(expected)
    assert all(table.get(key) == row for key, row in expected.items())
    assert 2**63 + 5 in table or 2**63 + 5 not in expected


def test_many_keys_are_all_found() -> None:
    table = IdTable()
    for row in range(5_000):
        table.add(row * 0x9E3779B97F4A7C15 % 2**64, row)

    assert [table.get(row * 0x9E3779B97F4A7C15 % 2**64) for row in range(5_000)] == [*range(5_000)]
