"""evolve is total: whatever is on the log folds, is read back, and asks for the same twice."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ombus_schemas.codec import decode, encode
from ombus_schemas.entries import Entry
from ombus_schemas.errors import BadRecord
from ombus_schemas.facts import FACT_TYPE_BY_NAME
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory import duties, reading

from tests.support.engine import KEY, Driver, digest, refolded
from tests.support.sessions import chat, custom, observations, observed
from tests.support.sessions import settings as session_settings

TYPES = [
    *FACT_TYPE_BY_NAME,
    "om.observations.recorded",
    "om.reflections.recorded",
    "om.observations.dropped",
    "om.something.else",
]
LONG = 10**30
LEAVES = (
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, -1, 2**53, 2**63, 2**64, LONG, -LONG, 10**400, 0.5, 1e300, -0.0])
    | st.sampled_from(["", "a", "b", "c", "session", "a\x00b", "é", "0" * 12, "1" * 12, "pruned"])
)
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "x", "\x00"]), inner, max_size=2)
    ),
    max_leaves=6,
)
ITEMS = st.lists(
    st.builds(
        lambda n, extra: {**observed(f"c{n}", "a", tokens=n), "extra": extra},
        st.integers(0, 3),
        VALUES,
    )
    | VALUES,
    max_size=3,
)
IDS = st.lists(st.sampled_from(["0" * 12, "1" * 12, "a", "a\x00b"]) | VALUES, max_size=3)
FIELDS: dict[str, st.SearchStrategy[JsonValue]] = {
    name: VALUES
    for name in (
        "base", "seen", "through", "coversUpToId", "cause", "reason", "scopeId", "producedBy",
        "flushId", "requestId", "runId", "settings", "id", "parentId", "kind", "label", "trigger",
        "keepRecentEntries", "fullReflectionRebuild", "respectThresholds", "principalIds", "hold",
        "foldedThrough", "throughEntryId", "keepEntryIds",
    )
}  # fmt: skip
FIELDS |= {
    "observations": ITEMS | VALUES,
    "reflections": ITEMS | VALUES,
    "observationIds": IDS | VALUES,
    "refs": IDS | VALUES,
    "ids": IDS | VALUES,
    "memory": st.fixed_dictionaries(
        {"type": st.just("om.folded"), "version": st.just(1), "fullFold": st.booleans()},
        optional={
            "observations": ITEMS,
            "reflections": ITEMS,
            "droppedObservationIds": IDS,
        },
    ),
}
BODIES: st.SearchStrategy[JsonValue] = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES)}, optional=FIELDS
)
PARENTS = st.sampled_from([None, "a", "b", "c", "d", "a\x00", "a\x00b", "nobody", "é", ""])


def entries() -> st.SearchStrategy[Entry]:
    return st.builds(
        lambda name, parent, body, side, kind, summary: custom(
            name, parent, body, side=side, kind=kind, summary=summary
        ),
        st.sampled_from("abcdefgh"),
        PARENTS,
        BODIES,
        st.booleans(),
        st.sampled_from(["custom", "compaction", "message"]),
        st.none() | st.just("text"),
    ) | st.builds(chat, st.sampled_from("abcd"), PARENTS)


@settings(max_examples=80)
@given(st.lists(entries(), max_size=10))
def test_whatever_is_on_the_log_folds_is_read_back_and_asks_for_the_same_twice(
    log: list[Entry],
) -> None:
    driver = Driver(max_sessions=1)
    driver.append(session_settings("s1", None, observe=1, reflect=1, compact=1, target=0), *log)
    while driver.fold(3):
        driver.reopen()
        session, stored = driver.processor.session(KEY), driver.session()
        for segment in session.segments():
            leaf, same = session.leaf(segment), stored.leaf(segment)
            assert leaf == same
            for name in duties.WORKERS:
                asked = duties.decide(session, leaf, name)
                assert asked == duties.decide(stored, same, name)
            if not leaf.conflict:
                reading.context(session, leaf)
                reading.view(session, leaf, "full")
                reading.status(session, leaf, {})
    assert driver.digest() == digest(refolded(driver.log))


def test_a_parent_with_a_zero_byte_is_another_than_the_name_before_it() -> None:
    driver = Driver()

    driver.append(chat("b", "a\x00b"), chat("a", None))
    driver.catch_up()

    assert driver.session().head.n_parked == 1


@pytest.mark.parametrize("number", [2**64, -(2**64), 10**40, 10**400])
def test_an_integer_of_any_length_does_not_stop_the_partition(number: int) -> None:
    driver = Driver()
    item: JsonObject = {**observed("fact", "a"), "extra": number}
    bodies: list[JsonValue] = [
        observations(item, covers="a"),
        {"type": "om.settings.changed", "settings": {"x": number}},
        {"type": "om.scope.opened", "id": "work", "x": number},
        {"type": "om.compact.requested", "keepRecentEntries": number},
    ]
    raw = [encode(custom(f"c{n}", "a", body)) for n, body in enumerate(bodies)]

    driver.append(chat("a", None))
    for value in raw:
        driver.log.put(KEY, value)
    driver.catch_up()
    driver.reopen()

    leaf = driver.session().leaf(1)
    assert (leaf.n_observations, leaf.n_scopes) == (1, 1)


@settings(max_examples=100)
@given(st.binary(max_size=60) | st.sampled_from([b'{"id":"\\ud800"}', b"1e400", b"[" * 2_000]))
def test_any_bytes_become_a_dead_letter_and_the_next_message_folds(value: bytes) -> None:
    driver = Driver()

    driver.log.put(KEY, value)
    driver.append(chat("a", None))
    driver.catch_up()

    with pytest.raises(BadRecord):
        decode(value)
    assert [number for number, _ in driver.store.emitted] == [1]
    assert driver.session().leaf(1).tip_id == "a"
    assert msgspec.json.decode(driver.log.records[1].value or b"")["id"] == "a"
