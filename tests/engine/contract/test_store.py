"""What every ``StateStore`` must do."""

import pytest
from ombus_streams.memory.rows import Overlay
from ombus_streams.runtime.errors import StalePosition
from ombus_streams.runtime.ports import PositionRow, StateStore

from tests.engine.contract.conftest import OpenStore

ROWS: dict[bytes, bytes | None] = {
    b"a": b"1",
    b"a\x00": b"2",
    b"a\xff": b"3",
    b"a\xff\xff": b"",
    b"b": b"5",
    b"\xff": b"6",
    b"\xff\xff\x01": b"7",
}


def at(next_offset: int, partition: int = 0, **other: str | int) -> PositionRow:
    fields: dict[str, str | int] = {"incarnation": "i", "fold_version": 1, **other}
    row = PositionRow(
        incarnation=str(fields["incarnation"]),
        partition=partition,
        next_offset=next_offset,
        fold_version=int(fields["fold_version"]),
        last_hash=str(fields.get("last_hash", f"hash-{next_offset}")),
        last_at_ms=int(fields.get("last_at_ms", 1_000)),
    )
    return row


def contents(store: StateStore) -> dict[bytes, bytes]:
    return dict(store.scan(b""))


def test_an_empty_store_has_neither_rows_nor_position(store: StateStore) -> None:
    assert store.get(b"a") is None
    assert contents(store) == {}
    assert store.position() is None
    assert store.outbox(10) == []


def test_a_commit_puts_and_deletes_and_moves_the_position(store: StateStore) -> None:
    store.commit({b"a": b"1", b"b": b"1"}, None, at(1))
    store.commit({b"a": b"2", b"b": None, b"c": b"", b"d": None}, at(1), at(2))
    assert contents(store) == {b"a": b"2", b"c": b""}
    assert (store.get(b"a"), store.get(b"b"), store.get(b"c")) == (b"2", None, b"")
    assert store.position() == at(2)


def test_what_is_committed_is_there_when_the_store_is_opened_again(open_store: OpenStore) -> None:
    store = open_store(0)
    store.commit(ROWS, None, at(7), outbox=[b"e"])
    store.put_operational(b"attempts", b"3")
    store.close()
    again = open_store(0)
    assert contents(again) == ROWS
    assert again.position() == at(7)
    assert [value for _, value in again.outbox(10)] == [b"e"]
    assert again.get_operational(b"attempts") == b"3"


@pytest.mark.parametrize(
    "expected",
    [
        None,
        at(4),
        at(6),
        at(5, incarnation="another"),
        at(5, fold_version=2),
        at(5, last_hash="another"),
        at(5, last_at_ms=2_000),
    ],
)
def test_a_batch_begun_elsewhere_writes_nothing(
    store: StateStore, expected: PositionRow | None
) -> None:
    store.commit({b"a": b"1"}, None, at(5))
    with pytest.raises(StalePosition) as refused:
        store.commit({b"a": b"2", b"b": b"2"}, expected, at(9), outbox=[b"e"])
    assert (refused.value.expected, refused.value.stored) == (expected, at(5))
    assert contents(store) == {b"a": b"1"}
    assert store.position() == at(5)
    assert store.outbox(10) == []


def test_a_batch_that_expects_a_position_is_refused_by_an_empty_store(store: StateStore) -> None:
    with pytest.raises(StalePosition):
        store.commit({b"a": b"1"}, at(5), at(6))
    assert contents(store) == {}
    assert store.position() is None


def test_an_old_owner_s_late_batch_is_refused(open_store: OpenStore) -> None:
    old, new = open_store(0), open_store(0)
    old.commit({b"a": b"old"}, None, at(100))
    begun_at = old.position()
    new.commit({b"a": b"new"}, new.position(), at(300))
    with pytest.raises(StalePosition):
        old.commit({b"a": b"late", b"b": b"late"}, begun_at, at(150))
    assert contents(new) == {b"a": b"new"}
    assert (new.position(), old.position()) == (at(300), at(300))


def test_partitions_of_one_processor_do_not_touch_each_other(open_store: OpenStore) -> None:
    one, other = open_store(0), open_store(1)
    one.commit({b"a": b"0"}, None, at(1), outbox=[b"zero"])
    other.commit({b"a": b"1"}, None, at(2, partition=1), outbox=[b"one"])
    other.put_operational(b"k", b"1")
    one.wipe()
    assert contents(one) == {}
    assert contents(other) == {b"a": b"1"}
    assert other.position() == at(2, partition=1)
    assert [value for _, value in other.outbox(10)] == [b"one"]
    assert one.get_operational(b"k") is None


@pytest.mark.parametrize(
    ("prefix", "start", "keys"),
    [
        (b"", None, sorted(ROWS)),
        (b"a", None, [b"a", b"a\x00", b"a\xff", b"a\xff\xff"]),
        (b"a\xff", None, [b"a\xff", b"a\xff\xff"]),
        (b"\xff", None, [b"\xff", b"\xff\xff\x01"]),
        (b"\xff\xff", None, [b"\xff\xff\x01"]),
        (b"c", None, []),
        (b"a", b"a\x00", [b"a\x00", b"a\xff", b"a\xff\xff"]),
        (b"a", b"a\x01", [b"a\xff", b"a\xff\xff"]),
        (b"b", b"a", [b"b"]),
        (b"a", b"b", []),
        (b"", b"a\xff\xff", [b"a\xff\xff", b"b", b"\xff", b"\xff\xff\x01"]),
    ],
)
def test_a_scan_keeps_to_its_prefix_and_start(
    store: StateStore, prefix: bytes, start: bytes | None, keys: list[bytes]
) -> None:
    store.commit(ROWS, None, at(1))
    assert list(store.scan(prefix, start)) == [(key, ROWS[key]) for key in keys]


@pytest.mark.parametrize(
    ("prefix", "start", "keys"),
    [
        (b"", None, sorted(ROWS, reverse=True)),
        (b"a", None, [b"a\xff\xff", b"a\xff", b"a\x00", b"a"]),
        (b"\xff", None, [b"\xff\xff\x01", b"\xff"]),
        (b"a", b"a\xff", [b"a\xff", b"a\x00", b"a"]),
        (b"a", b"a\x01", [b"a\x00", b"a"]),
        (b"a", b"b", [b"a\xff\xff", b"a\xff", b"a\x00", b"a"]),
        (b"b", b"a", []),
        (b"", b"a", [b"a"]),
    ],
)
def test_a_scan_backwards_begins_at_the_highest_key(
    store: StateStore, prefix: bytes, start: bytes | None, keys: list[bytes]
) -> None:
    store.commit(ROWS, None, at(1))
    found = list(store.scan(prefix, start, reverse=True))
    assert found == [(key, ROWS[key]) for key in keys]


def test_a_long_scan_yields_every_row_once(store: StateStore) -> None:
    rows: dict[bytes, bytes | None] = {b"r%05d" % number: b"" for number in range(5_000)}
    store.commit({**rows, b"q": b"", b"s": b""}, None, at(1))
    assert [key for key, _ in store.scan(b"r")] == sorted(rows)
    assert [key for key, _ in store.scan(b"r", reverse=True)] == sorted(rows, reverse=True)


def test_many_rows_are_read_at_once_and_absent_ones_left_out(store: StateStore) -> None:
    rows: dict[bytes, bytes | None] = {b"r%05d" % number: b"%d" % number for number in range(600)}
    store.commit(rows, None, at(1))
    assert store.get_many([]) == {}
    assert store.get_many([b"none"]) == {}
    assert store.get_many([b"r00001", b"none", b"r00001", b"\xff"]) == {b"r00001": b"1"}
    assert store.get_many([*rows, b"none"]) == rows


def test_an_overlay_over_a_store_is_the_next_batch(store: StateStore) -> None:
    store.commit(ROWS, None, at(1))
    batch = Overlay(store)
    batch.delete(b"a\xff")
    batch.put(b"a\x01", b"new")
    seen = [key for key, _ in batch.scan(b"a")]
    store.commit(batch.changes, at(1), at(2))
    assert seen == [key for key, _ in store.scan(b"a")] == [b"a", b"a\x00", b"a\x01", b"a\xff\xff"]


def test_emissions_wait_in_order_until_they_are_acknowledged(store: StateStore) -> None:
    store.commit({}, None, at(1), outbox=[b"1", b"2"])
    store.commit({}, at(1), at(2), outbox=[b"3"])
    waiting = store.outbox(10)
    assert [value for _, value in waiting] == [b"1", b"2", b"3"]
    assert store.outbox(2) == waiting[:2]
    store.sent(waiting[1][0])
    assert store.outbox(10) == waiting[2:]
    store.sent(waiting[1][0])
    assert store.outbox(10) == waiting[2:]


def test_a_late_acknowledgement_does_not_reach_a_newer_emission(open_store: OpenStore) -> None:
    store = open_store(0)
    store.commit({}, None, at(1), outbox=[b"1"])
    ((number, _),) = store.outbox(10)
    store.sent(number)
    store.close()
    again = open_store(0)
    again.commit({}, at(1), at(2), outbox=[b"2"])
    again.sent(number)
    assert [value for _, value in again.outbox(10)] == [b"2"]


def test_operational_rows_are_no_rows_of_the_fold(store: StateStore) -> None:
    store.put_operational(b"k", b"1")
    store.put_operational(b"k", b"2")
    assert store.get_operational(b"k") == b"2"
    assert (store.get(b"k"), contents(store)) == (None, {})
    store.put_operational(b"k", None)
    store.put_operational(b"never", None)
    assert store.get_operational(b"k") is None


def test_wiping_leaves_what_no_refold_brings_back(store: StateStore) -> None:
    store.commit(ROWS, None, at(1), outbox=[b"e"])
    store.put_operational(b"attempts", b"3")
    store.wipe()
    assert contents(store) == {}
    assert store.position() is None
    assert store.get_operational(b"attempts") == b"3"
    assert [value for _, value in store.outbox(10)] == [b"e"]
    store.commit({b"a": b"1"}, None, at(1))
    assert contents(store) == {b"a": b"1"}
