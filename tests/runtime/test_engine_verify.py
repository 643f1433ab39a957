"""verify names every row that is not the log's: one byte flipped, a row gone, a row too many."""

import msgspec
import pytest
from ombus_streams.memory import keys, tree
from ombus_streams.runtime.processor import Processor
from ombus_streams.runtime.verify import Verified, verify

from tests.support.engine import KEY, Driver, MemoryStore
from tests.support.sessions import (
    chat,
    custom,
    drops,
    fact,
    observations,
    observed,
    reflected,
    reflections,
    settings,
)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Return a folded session with at least one row of every family."""
    monkeypatch.setattr(tree, "PARKED_FOR", 20)
    driver = Driver()
    driver.append(fact("left-out", "nobody", "label.set"))
    parent = None
    driver.append(
        settings("settings", None, observe=40, reflect=10, recent=1, pool=8, target=1_000)
    )
    for n in range(12):
        driver.append(chat(f"m{n}", parent, tokens=20))
        parent = f"m{n}"
    driver.settle()
    driver.tell(fact("compact", "m11", "compact.requested"))
    hidden = observed("hidden", "m9")
    driver.tell(
        fact("open", "m11", "scope.opened", id="work"),
        custom("o", "m11", observations(hidden, observed("gone", "m10"), covers=None)),
        custom("r", "m11", reflections(reflected("rests on hidden", str(hidden["id"])))),
        custom("d", "m11", drops(hidden["id"])),
        fact("revoked", "m11", "sources.invalidated", ids=["m10"]),
        fact(
            "linked",
            "m11",
            "sources.linked",
            targetSessionId="team",
            links=[{"sourceId": "m9", "copyId": "copy"}],
        ),
        chat("waits", "not yet"),
        fact("flush", "m11", "flush.requested"),
        chat("fork", "m3", tokens=20),
    )
    return driver


def families(driver: Driver) -> dict[str, bytes]:
    """Return one row key of each family, and of each mark."""
    prefix = keys.session_prefix(KEY)
    found: dict[str, bytes] = {}
    for key, _ in driver.store.scan(b""):
        name = chr(key[len(prefix)]) if key.startswith(prefix) else f"mark {key[1:2].decode()}"
        found.setdefault(name, key)
    return found


def verified(driver: Driver) -> Verified:
    return verify(driver.store, driver.store.position(), driver.log, 0, MemoryStore())


def test_a_store_that_was_left_alone_is_equal(driver: Driver) -> None:
    done = verified(driver)

    assert done.is_equal, done.differences
    assert (done.n_rows, done.n_sessions, done.n_leaves) == (
        len(list(driver.store.scan(b""))), 1, 2,
    )  # fmt: skip


def test_the_session_has_a_row_of_every_family(driver: Driver) -> None:
    assert set(keys.FAMILIES) <= set(families(driver))


@pytest.mark.parametrize("family", [*keys.FAMILIES, "mark s"])
def test_one_flipped_byte_is_named(driver: Driver, family: str) -> None:
    key = families(driver)[family]
    value = driver.store.get(key) or b""

    driver.store.rows.put(key, value[:-1] + bytes([value[-1] ^ 1]) if value else b"\x00")

    (difference,) = verified(driver).differences
    assert (difference.session, difference.what) == keys.described(key)
    assert difference.fact == "holds other bytes than the log gives"


@pytest.mark.parametrize("family", [*keys.FAMILIES, "mark s"])
def test_a_row_that_is_gone_is_named(driver: Driver, family: str) -> None:
    key = families(driver)[family]

    driver.store.rows.delete(key)

    (difference,) = verified(driver).differences
    assert (difference.session, difference.what) == keys.described(key)
    assert difference.fact == "is missing, the log gives it"


@pytest.mark.parametrize("family", [*keys.FAMILIES, "mark s", "mark d"])
def test_a_row_too_many_is_named(driver: Driver, family: str) -> None:
    known = families(driver)
    key = known.get(family, keys.due_mark(KEY)) + b"\x07"

    driver.store.rows.put(key, b"x")

    (difference,) = verified(driver).differences
    assert (difference.session, difference.what) == keys.described(key)
    assert difference.fact == "is stored, the log does not give it"


@pytest.mark.parametrize(
    "key", [b"", b"x", b"t/s\x00", b"t/s\x00p", b"t/s\x00k\x01", b"t/s\x00w", b"\xff\xfe", b"\x00z"]
)
def test_a_row_under_any_key_is_named_and_stops_nothing(driver: Driver, key: bytes) -> None:
    driver.store.rows.put(key, b"x")

    (difference,) = verified(driver).differences
    assert difference.fact == "is stored, the log does not give it"


@pytest.mark.parametrize("changes", [{"last_hash": "0" * 32}, {"last_at_ms": 7}])
def test_a_position_row_that_is_not_the_logs_is_named(
    driver: Driver, changes: dict[str, int | str]
) -> None:
    position = driver.store.position()
    assert position is not None

    done = verify(
        driver.store, msgspec.structs.replace(position, **changes), driver.log, 0, MemoryStore()
    )

    assert [difference.what for difference in done.differences] == ["position row"]


def test_verify_folds_to_the_stores_position_and_no_further(driver: Driver) -> None:
    driver.append(chat("unfolded", "m11"))

    assert verified(driver).is_equal


def test_verify_emits_no_dead_letter(driver: Driver) -> None:
    driver.log.put(KEY, b"{")
    driver.catch_up()
    scratch = MemoryStore()

    done = verify(driver.store, driver.store.position(), driver.log, 0, scratch)

    assert done.is_equal
    assert (len(driver.store.emitted), scratch.emitted) == (1, [])


def test_a_processor_that_finds_another_last_record_folds_the_log_again(driver: Driver) -> None:
    """The log was cut by an unclean election and has grown again under the same incarnation."""
    end = driver.store.position()
    assert end is not None
    driver.log.records[-1] = msgspec.structs.replace(driver.log.records[-1], at_ms=7)

    processor = Processor(driver.store, driver.log, 0)

    assert processor.next_offset == 0
    while processor.step(100).n_records:
        pass
    assert verified(driver).is_equal
