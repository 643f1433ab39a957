"""Which events a delegation leaves on the log, in which order, with which fields (S23.2)."""

from collections.abc import Callable
from pathlib import Path

import pytest
from ombus_schemas.codec import decode
from ombus_schemas.ids import session_key
from ombus_schemas.jsontext import JsonObject

from tests.supervision.office import Office
from tests.supervision.telling import PARENT, TENANT

Story = Callable[[Office], None]
REQUESTED, ADMITTED, STARTED = "delegation_requested", "delegation_admitted", "delegation_started"


def told(office: Office, session: str = PARENT) -> list[JsonObject]:
    """Return the events of a parent, in the order of the log."""
    found: list[JsonObject] = []
    for record in office.supervision.log.of_key(session_key(TENANT, session)):
        data = decode(record.value or b"null").data
        assert isinstance(data, dict)
        found.append(data)
    return found


def denied(office: Office) -> None:
    office.ask(1, "nobody")


def finished(office: Office) -> None:
    id = office.ask(1)
    office.claim(id)
    office.finish(id)


def failed(office: Office) -> None:
    id = office.ask(1)
    office.claim(id)
    office.fail(id)


def over_time(office: Office) -> None:
    office.claim(office.ask(1))
    office.clock.move(60_000)
    office.settle()


def lost(office: Office) -> None:
    office.claim(office.ask(1, on_lost="fail"))
    office.clock.move(5_001)
    office.settle()


def cancelled(office: Office) -> None:
    id = office.ask(1)
    office.claim(id)
    office.cancel(id)


@pytest.mark.parametrize(
    ("story", "after"),
    [
        (denied, ["delegation_rejected"]),
        (finished, [ADMITTED, STARTED, "delegation_finished"]),
        # A failure is told before the error; the host's own ends are no failures of the child.
        (failed, [ADMITTED, STARTED, "child_failed", "delegation_error"]),
        (over_time, [ADMITTED, STARTED, "child_failed", "delegation_error"]),
        (lost, [ADMITTED, STARTED, "child_failed", "delegation_error"]),
        (cancelled, [ADMITTED, STARTED, "delegation_cancelled"]),
    ],
)
def test_a_delegation_leaves_these_events_in_this_order(
    tmp_path: Path, story: Story, after: list[str]
) -> None:
    office = Office(tmp_path)
    try:
        story(office)
        events = told(office)
    finally:
        office.close()
    assert [event["type"] for event in events] == [REQUESTED, *after]
    assert len({event["delegationId"] for event in events}) == 1
    assert {event["childId"] for event in events} == {"nobody" if story is denied else "scout"}


def test_events_name_what_the_reference_names(tmp_path: Path) -> None:
    office = Office(tmp_path)
    try:
        id = office.ask(1, thread_id="two words/é")
        office.claim(id)
        office.clock.move(60_000)
        office.settle()
        by_type = {str(event["type"]): event for event in told(office)}
    finally:
        office.close()
    resource = f"{PARENT}/{id}/scout"
    admitted = by_type[ADMITTED]
    assert admitted["resourceId"] == resource
    assert admitted["threadId"] == f"{resource}/two%20words%2F%C3%A9"
    assert admitted["childSessionId"] == f"{id}-session"
    failure = by_type["child_failed"]
    assert (failure["reason"], failure["limit"], failure["status"]) == (
        "timeout",
        "timeoutMs",
        "failed",
    )
    assert by_type["delegation_error"]["error"] == "timeout"
