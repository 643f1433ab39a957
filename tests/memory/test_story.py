"""What became of a memory: true stories, told by the fold that decided them."""

from ombus_schemas.entries import Entry
from ombus_schemas.ids import observation_id, observation_ref
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.session import Session
from ombus_streams.memory.story import Story, story

from tests.support.engine import Driver
from tests.support.sessions import (
    chat,
    compaction,
    custom,
    drops,
    fact,
    observations,
    observed,
    payload,
    reflected,
    reflections,
    settings,
)

MADE: JsonObject = {
    "worker": "observer",
    "runId": "0" * 24,
    "provider": "scripted",
    "model": "m-1",
    "promptVersion": "observer/1",
}
KEPT, GONE = observed("kept", "e1"), observed("gone", "e2", relevance="low")
KEPT_ID, GONE_ID = str(KEPT["id"]), str(GONE["id"])
GIST = reflected("gist", GONE_ID)


def told(driver: Driver, memory_id: object) -> Story:
    session: Session = driver.session()
    return story(session, session.leaf(session.head.default_segment), str(memory_id))


def happened(found: Story) -> list[tuple[str, str, str | None]]:
    return [(event.what, event.entry_id, event.why) for event in found.events]


def started(*more: Entry) -> Driver:
    """Return a session of two messages that were observed, then ``more``; no worker runs."""
    driver = Driver()
    driver.append(
        chat("e1", None),
        settings("set", "e1"),
        chat("e2", "e1"),
        chat("e3", "e2"),
        custom("om:o1", "e2", observations(KEPT, GONE, covers="e2", base=None, producedBy=MADE)),
        *more,
    )
    driver.catch_up()
    return driver


def test_a_memory_says_who_recorded_it_and_from_what() -> None:
    found = told(started(), KEPT_ID)

    assert (found.kind, found.state, found.content) == ("observation", "visible", "kept")
    assert found.source_ids == ("e1",)
    (event,) = found.events
    assert (event.what, event.entry_id) == ("recorded", "om:o1")
    assert event.produced_by is not None
    assert (event.produced_by.run_id, event.produced_by.prompt_version) == ("0" * 24, "observer/1")


def test_a_dropped_observation_names_the_drop_and_keeps_its_content() -> None:
    driver = started(
        custom("om:r1", "e3", reflections(GIST, base=None, through="om:o1")),
        custom("om:d1", "e3", drops(GONE_ID, base="om:r1", reason="pruned")),
    )

    found = told(driver, GONE_ID)

    assert (found.state, found.content) == ("dropped", "gone")
    assert happened(found) == [("recorded", "om:o1", None), ("dropped", "om:d1", "pruned")]
    assert told(driver, GIST["id"]).state == "visible"


def test_a_reflection_hidden_by_a_drop_names_that_drop() -> None:
    driver = started(
        custom("om:r1", "e3", reflections(GIST, base=None, through="om:o1")),
        custom("host-drop", "e3", drops(GONE_ID)),
    )

    found = told(driver, GIST["id"])

    assert (found.kind, found.state) == ("reflection", "hidden")
    assert happened(found) == [("recorded", "om:r1", None), ("hidden", "host-drop", None)]


def test_an_observation_left_out_of_a_payload_was_trimmed_and_a_later_one_was_not() -> None:
    newer = observed("newer", "e3")
    body: JsonObject = {
        "throughEntryId": "e2",
        "base": None,
        "foldedThrough": {"observations": "om:o1", "reflections": None, "drops": None},
        "keepEntryIds": [],
        "memory": payload(KEPT),
    }
    driver = started(
        custom("om:o2", "e3", observations(newer, covers="e3", base="e2")),
        compaction("om:c1", "e3", body),
    )

    gone, kept, later = (told(driver, each) for each in (GONE_ID, KEPT_ID, newer["id"]))

    assert (gone.state, gone.content) == ("trimmed", "gone")
    assert happened(gone) == [("recorded", "om:o1", None), ("trimmed", "om:c1", None)]
    assert happened(kept) == [("recorded", "om:o1", None), ("carried", "om:c1", None)]
    assert later.state == "visible"
    assert happened(later) == [("recorded", "om:o2", None)]


def test_what_is_invalidated_names_the_invalidation_and_withholds_the_content() -> None:
    driver = started(
        custom("om:r1", "e3", reflections(GIST, base=None, through="om:o1")),
        fact("inv", "e3", "sources.invalidated", ids=["e2"], reason="revoked"),
    )

    found, resting = told(driver, GONE_ID), told(driver, GIST["id"])

    assert (found.state, found.content) == ("invalidated", None)
    assert happened(found) == [("recorded", "om:o1", None), ("invalidated", "inv", "revoked: e2")]
    assert (resting.state, resting.content) == ("invalidated", None)
    assert happened(resting)[-1] == ("invalidated", "inv", "revoked: e2")
    assert told(driver, KEPT_ID).state == "visible"


def test_a_record_from_a_stale_base_was_never_accepted_and_the_story_says_why() -> None:
    late = observed("late", "e1")
    driver = started(
        custom("om:late", "e2", observations(late, covers="e2", base=None, producedBy=MADE)),
    )

    found = told(driver, late["id"])

    assert (found.state, found.content) == ("never_accepted", "late")
    assert happened(found) == [("not_accepted", "om:late", "stale_base")]


def test_a_drop_that_was_not_accepted_changes_nothing_and_is_told() -> None:
    driver = started(custom("om:d1", "e3", drops(KEPT_ID, base="om:r9")))

    found = told(driver, KEPT_ID)

    assert found.state == "visible"
    assert happened(found)[-1] == ("drop_not_accepted", "om:d1", "stale_base")


def test_an_imported_payload_brings_and_drops() -> None:
    brought = observed("brought", "e9")
    body: JsonObject = {"memory": payload(brought, dropped=(GONE_ID,))}
    driver = started(compaction("import", "e3", body, side=False))

    assert happened(told(driver, brought["id"])) == [("recorded", "import", None)]
    assert happened(told(driver, GONE_ID))[-1] == ("dropped", "import", None)
    assert [each[0] for each in happened(told(driver, KEPT_ID))] == ["recorded"]


def test_listing_a_memory_again_is_told_and_a_bind_names_its_scope() -> None:
    driver = started(
        custom("om:o2", "e3", observations(KEPT, covers="e3", base="e2")),
        fact("open", "e3", "scope.opened", id="s/scope", goal="parse"),
        fact("bind", "e3", "scope.bound", scopeId="s/scope", refs=[observation_ref(KEPT_ID)]),
        fact("lost", "e3", "scope.bound", scopeId="s/none", refs=[observation_ref(KEPT_ID)]),
    )

    assert happened(told(driver, KEPT_ID)) == [
        ("recorded", "om:o1", None),
        ("listed_again", "om:o2", None),
        ("bound", "bind", "s/scope"),
    ]


def test_an_id_that_no_record_names_is_not_found() -> None:
    found = told(started(), observation_id("never", ["e1"]))

    assert (found.kind, found.state, found.events) == ("unknown", "not_found", ())


def test_a_story_changes_nothing() -> None:
    driver = started()
    before = driver.digest()

    told(driver, KEPT_ID)

    assert driver.digest() == before
