from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st
from ombus_streams.memory.rows import MemoryRows, Overlay, Rows, after_prefix

KEYS = st.lists(st.sampled_from([b"a", b"b", b"\x00", b"\xff"]), max_size=3).map(b"".join)
CHANGES = st.dictionaries(KEYS, st.none() | st.sampled_from([b"", b"1", b"2"]), max_size=8)
BOUNDS = st.tuples(KEYS, st.none() | KEYS, st.booleans())


def expected(
    rows: dict[bytes, bytes], prefix: bytes, start: bytes | None, reverse: bool
) -> list[tuple[bytes, bytes]]:
    """Return a scan as its contract words it, by looking at every row."""
    return [
        (key, rows[key])
        for key in sorted(rows, reverse=reverse)
        if key.startswith(prefix) and (start is None or (key <= start if reverse else key >= start))
    ]


def changed(rows: dict[bytes, bytes], changes: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    after = {**rows, **changes}
    return {key: value for key, value in after.items() if value is not None}


def write(overlay: Overlay, changes: dict[bytes, bytes | None]) -> None:
    for key, value in changes.items():
        if value is None:
            overlay.delete(key)
        else:
            overlay.put(key, value)


@settings(max_examples=200)
@given(CHANGES, CHANGES, CHANGES, BOUNDS)
def test_an_overlay_reads_like_one_map_wherever_the_batch_was_cut(
    first: dict[bytes, bytes | None],
    second: dict[bytes, bytes | None],
    third: dict[bytes, bytes | None],
    bounds: tuple[bytes, bytes | None, bool],
) -> None:
    prefix, start, reverse = bounds
    stored = MemoryRows()
    stored.apply(first)
    middle = Overlay(stored)
    write(middle, second)
    upper = Overlay(middle)
    write(upper, third)
    model = changed(changed(changed({}, first), second), third)

    assert list(upper.scan(prefix, start, reverse)) == expected(model, prefix, start, reverse)
    assert {key: upper.get(key) for key in {*first, *second, *third}} == {
        key: model.get(key) for key in {*first, *second, *third}
    }


@settings(max_examples=200)
@given(st.lists(CHANGES, max_size=4), BOUNDS)
def test_memory_rows_keep_their_order_over_any_writes_between_scans(
    writes: list[dict[bytes, bytes | None]], bounds: tuple[bytes, bytes | None, bool]
) -> None:
    prefix, start, reverse = bounds
    rows, model = MemoryRows(), dict[bytes, bytes]()
    for changes in writes:
        rows.apply(changes)
        model = changed(model, changes)
        assert list(rows.scan(prefix, start, reverse)) == expected(model, prefix, start, reverse)
    assert rows.rows == model
    assert list(MemoryRows(model).scan(b"")) == sorted(model.items())


@settings(max_examples=200)
@given(CHANGES, CHANGES, st.lists(st.tuples(KEYS, st.none() | st.just(b"3"))), BOUNDS)
def test_a_scan_yields_the_next_row_there_is_by_then_stored_or_not(
    first: dict[bytes, bytes | None],
    second: dict[bytes, bytes | None],
    meanwhile: list[tuple[bytes, bytes | None]],
    bounds: tuple[bytes, bytes | None, bool],
) -> None:
    prefix, start, reverse = bounds

    def fold(rows: Overlay) -> Iterator[tuple[bytes, bytes]]:
        """Change a row after every step of the scan."""
        changes = iter(meanwhile)
        for row in rows.scan(prefix, start, reverse):
            yield row
            write(rows, dict([change]) if (change := next(changes, None)) else {})

    cut = MemoryRows()
    cut.apply(first)
    cut_late, cut_early = Overlay(cut), Overlay(MemoryRows())
    write(cut_late, second)
    write(cut_early, {key: value for key, value in first.items() if value is not None})
    write(cut_early, second)

    assert list(fold(cut_late)) == list(fold(cut_early))


def test_rows_deleted_ahead_of_a_scan_are_not_shown() -> None:
    overlay = Overlay(MemoryRows({b"a": b"1", b"b": b"1", b"c": b"1"}))
    seen = []
    for key, _ in overlay.scan(b""):
        seen.append(key)
        overlay.delete(b"b")
    assert seen == [b"a", b"c"]


def test_cleared_changes_are_forgotten() -> None:
    overlay = Overlay(MemoryRows({b"a": b"1"}))
    overlay.put(b"a", b"2")
    overlay.put(b"b", b"2")
    overlay.clear()
    overlay.delete(b"c")
    assert list(overlay.scan(b"")) == [(b"a", b"1")]
    assert overlay.changes == {b"c": None}


def test_expected_rows_are_read_below_the_changes_and_forgotten_with_them() -> None:
    stored = MemoryRows({b"a": b"1"})
    overlay = Overlay(stored)
    overlay.expect({b"a": b"1", b"b": None})
    overlay.put(b"b", b"2")
    overlay.delete(b"a")
    assert (overlay.get(b"a"), overlay.get(b"b")) == (None, b"2")
    overlay.clear()
    stored.put(b"b", b"3")
    assert (overlay.get(b"a"), overlay.get(b"b")) == (b"1", b"3")


def test_a_key_written_many_times_is_one_row() -> None:
    rows: Rows = (overlay := Overlay(MemoryRows()))
    for value in (b"1", b"2"):
        overlay.put(b"a", value)
        overlay.delete(b"a")
        overlay.put(b"a", value)
    assert list(rows.scan(b"a")) == [(b"a", b"2")]


def test_the_end_of_a_prefix_carries_over_its_highest_bytes() -> None:
    assert after_prefix(b"a\xff\xff") == b"b"
    assert after_prefix(b"a\x00") == b"a\x01"
    assert after_prefix(b"\xff") is None
    assert after_prefix(b"") is None
