"""Facts are read leniently and by ``data`` alone; what cannot be read folds to nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ombus_schemas.bodies import data_of
from ombus_schemas.control import SettingsChanged, SourcesInvalidated
from ombus_schemas.entries import Entry
from ombus_schemas.facts import FACT_TYPE_BY_NAME, Fact, fact_of
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.requests import FlushRequested, RunStarted
from ombus_schemas.scopes import ScopeGranted, ScopeLeft, ScopeOpened
from ombus_schemas.supervision import EVENT_TYPE_BY_NAME, delegation_of, supervision_event_of

from tests.schemas.golden_lines import values


def fact(data: JsonValue, kind: str = "custom") -> Fact | None:
    return fact_of(Entry(id="e1", session_id="s", kind=kind, data=data))


@pytest.mark.parametrize("kind", ["custom", "event", "metadata", "message"])
def test_the_kind_of_the_entry_does_not_matter(kind: str) -> None:
    assert fact({"type": "om.run.started", "runId": "r"}, kind) == RunStarted(run_id="r")


@pytest.mark.parametrize("data", [None, [], "om.run.started", {}, {"type": 5}, {"type": "om.x.v9"}])
def test_what_names_no_type_of_ours_is_no_fact(data: JsonValue) -> None:
    assert fact(data) is None


def test_fields_of_a_later_release_are_passed_over() -> None:
    data: JsonObject = {"type": "om.flush.requested", "urgency": 3}
    assert fact(data) == FlushRequested()


@pytest.mark.parametrize(
    "data",
    [
        {"type": "om.run.finished"},
        {"type": "om.run.finished", "runId": 5},
        {"type": "om.flush.completed", "flushId": "f", "observations": -1},
        {"type": "om.settings.changed", "settings": []},
        {"type": "om.session.owner", "ownerId": " padded"},
        {"type": "om.scope.opened"},
        {"type": "om.scope.opened", "id": "a..b"},
        {"type": "om.scope.opened", "id": "ok", "parentId": None},
        {"type": "om.scope.opened", "id": "ok", "parentId": ""},
        {"type": "om.scope.opened", "id": "ok", "label": None},
        {"type": "om.scope.opened", "id": "ok", "label": "😀" * 257},
        {"type": "om.scope.closed", "scopeId": "a b"},
        {"type": "om.scope.bound", "scopeId": "p", "refs": ["om:000000000001", "om:XYZ"]},
        {"type": "om.scope.bound", "scopeId": "p", "refs": "om:000000000001"},
        {"type": "om.scope.granted", "scopeId": "p", "principalIds": []},
        {"type": "om.scope.granted", "scopeId": "p", "principalIds": ["s2", " s3"]},
        {"type": "om.scope.granted", "scopeId": "p", "principalIds": ["x"] * 1_025},
    ],
)
def test_a_malformed_body_is_no_fact(data: JsonObject) -> None:
    assert fact(data) is None


def test_a_label_may_be_empty_and_512_units_long() -> None:
    assert fact({"type": "om.scope.opened", "id": "a", "label": ""}) == ScopeOpened(
        id="a", label=""
    )
    assert fact({"type": "om.scope.opened", "id": "a", "label": "😀" * 256}) is not None


def test_an_imported_leave_names_no_scope() -> None:
    assert fact({"type": "om.scope.left"}) == ScopeLeft()


def test_a_grant_without_an_opening_entry_is_still_read() -> None:
    data: JsonObject = {"type": "om.scope.granted", "scopeId": "p", "principalIds": ["s2"]}
    assert fact(data) == ScopeGranted(scope_id="p", principal_ids=("s2",))


@pytest.mark.parametrize("reason", ["from a later release", None, 5])
def test_an_invalidation_that_is_not_understood_revokes(reason: JsonValue) -> None:
    data: JsonObject = {"type": "om.sources.invalidated", "ids": ["e1", 7], "reason": reason}
    assert fact(data) == SourcesInvalidated(ids=("e1",), reason="revoked")


def test_a_body_goes_out_in_declaration_order_and_its_maps_sorted() -> None:
    body = SettingsChanged(settings={"b": {"y": 1, "x": 2}, "a": 1})
    text = '{"type": "om.settings.changed", "settings": {"a": 1, "b": {"x": 2, "y": 1}}}'
    assert str(data_of(body)).replace("'", '"') == text


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted({**FACT_TYPE_BY_NAME, **EVENT_TYPE_BY_NAME})),
    st.dictionaries(
        st.sampled_from(
            ["id", "ids", "scopeId", "refs", "principalIds", "runId", "reason", "settings", "links"]
        ),
        values(),
    ),
)
def test_reading_never_raises(name: str, members: JsonObject) -> None:
    data: JsonObject = {**members, "type": name}
    entry = Entry(
        id="e1", session_id="s", kind="event", data=data, metadata={"delegation": members}
    )
    for read in (fact_of, supervision_event_of, delegation_of):
        read(entry)


def test_an_event_of_a_session_is_no_supervision_event_unless_of_that_kind() -> None:
    data: JsonObject = {"type": "delegation_started", "childId": "c", "delegationId": "d"}
    entry = Entry(id="e1", session_id="s", kind="custom", data=data)
    assert supervision_event_of(entry) is None
    assert fact_of(entry) is None


def test_half_a_surrogate_pair_in_a_members_name_makes_no_fact() -> None:
    data: JsonObject = {"type": "om.sources.linked", "links": [{"\ud83d": None}]}

    assert fact_of(Entry(id="e", session_id="s", kind="custom", data=data)) is None
