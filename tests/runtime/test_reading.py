"""What is read from a leaf's rows, beside what others share with it (S14, S19, S22)."""

from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.records import Observation, Reflection, observation_of, reflection_of
from ombus_streams.memory import reading
from ombus_streams.memory.head import LeafHead
from ombus_streams.memory.pages import NoPage
from ombus_streams.memory.recall import RecalledObservation, RecalledReflection
from ombus_streams.memory.session import Session
from ombus_streams.memory.shared import SharedMemory

from tests.support.engine import Driver
from tests.support.sessions import chat, custom, drops, fact, observations, observed, reflected

OURS = observed("ours", "m")
THEIRS = observed("theirs", "far")
GIST = reflected("gist", str(OURS["id"]), str(THEIRS["id"]))


def read(*entries: Entry) -> tuple[Session, LeafHead]:
    driver = Driver()
    driver.append(chat("m", None), *entries)
    driver.catch_up()
    session = driver.session()
    return session, session.leaf(session.head.default_segment)


def shared(*items: JsonObject) -> SharedMemory:
    """Return what others share: each item is an observation or a reflection."""
    seen = [observation_of(item) for item in items]
    gists = [reflection_of(item) for item in items]
    return SharedMemory(
        observations=tuple(item for item in seen if isinstance(item, Observation)),
        reflections=tuple(item for item in gists if isinstance(item, Reflection)),
    )


def test_a_source_that_is_a_record_says_nothing_about_the_memory_it_is_a_source_of() -> None:
    first = observed("first", "later")
    again = {**first, "content": "again", "sourceEntryIds": []}
    session, leaf = read(
        custom("now", "m", observations(first, covers=None), side=False),
        custom("later", "now", observations(again, covers=None), side=False),
    )

    found = reading.recall_at(session, leaf, str(first["id"]))

    assert isinstance(found, RecalledObservation)
    assert found.observation.content == "first"
    assert [entry.id for entry in found.source_entries] == ["later"]


def test_a_shared_reflection_shows_the_supports_that_are_recorded_here() -> None:
    session, leaf = read(custom("seen", "m", observations(OURS, covers="m")))

    found = reading.recall_at(session, leaf, str(GIST["id"]), shared=shared(THEIRS, GIST))

    assert isinstance(found, RecalledReflection)
    assert [item.content for item in found.supporting_observations] == ["ours", "theirs"]
    assert [entry.id for entry in found.source_entries] == ["m"]
    assert found.missing_support_ids == ()


def test_what_the_reader_dropped_is_marked_as_dropped_in_what_others_share() -> None:
    session, leaf = read(custom("gone", "m", drops(THEIRS["id"])))
    others = shared(THEIRS, GIST)

    theirs = reading.recall_at(session, leaf, str(THEIRS["id"]), shared=others)
    gist = reading.recall_at(session, leaf, str(GIST["id"]), shared=others)

    assert isinstance(theirs, RecalledObservation)
    assert theirs.dropped
    assert isinstance(gist, RecalledReflection)
    assert gist.dropped_support_ids == (THEIRS["id"],)


def test_a_shared_reflection_whose_id_the_reader_dropped_is_in_no_view() -> None:
    session, leaf = read(custom("gone", "m", drops(GIST["id"])))

    view = reading.view(session, leaf, "visible", shared=shared(THEIRS, GIST))

    assert "theirs" in view.text
    assert "gist" not in view.text


def test_a_cursor_at_a_side_record_names_no_message() -> None:
    session, leaf = read(fact("open", "m", "scope.opened", id="p"))

    found = reading.page_at(session, leaf, "open")

    assert isinstance(found, NoPage)
    assert found.reason == "cursor_not_message"
