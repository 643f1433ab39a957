"""One delegation: which events move it, which are counted and change nothing."""

from typing import Any, TypeVar

import pytest
from ombus_schemas.ids import delegation_id
from ombus_schemas.supervision import (
    ChildEvent,
    ChildEventsCapped,
    ChildEventsClosed,
    ChildEventsCoalesced,
    ChildFailed,
    ChildMilestone,
    DelegationAdmitted,
    DelegationCancelled,
    DelegationError,
    DelegationFinished,
    DelegationHeartbeat,
    DelegationRejected,
    DelegationRequested,
    DelegationStarted,
    Report,
    ReportPolicy,
    SupervisionEvent,
)
from ombus_streams.supervision.handle import LEASE_LOST, Handle, Ignored, opened, step

CHILD = "scout"
ID = delegation_id("acme", "boss", "ask-1")
Kind = TypeVar("Kind", bound=SupervisionEvent)


def said(kind: type[Kind], **members: Any) -> Kind:
    return kind(child_id=CHILD, delegation_id=ID, **members)


def told(kind: type[Kind], ordinal: int, **members: Any) -> Kind:
    return said(kind, child_ordinal=ordinal, **members)


ADMITTED = said(
    DelegationAdmitted, limits={"timeoutMs": 60_000}, policy=ReportPolicy(report="milestones")
)
CLAIMED = said(DelegationStarted, epoch=1, holder="one", lease_ms=1_000)
TAKEN_OVER = said(DelegationStarted, epoch=2, holder="two", lease_ms=1_000)
FINISHED = said(DelegationFinished, epoch=1, status="completed", output="done", total_tokens=7)
FAILED = said(ChildFailed, epoch=1, reason="crash")
ERROR = said(DelegationError, epoch=1, error="crash")
CANCELLED = said(DelegationCancelled, reason="host")
REJECTED = said(DelegationRejected, reason="depth")


def requested(**members: Any) -> Handle:
    event = said(DelegationRequested, input="go", request_entry_id="ask-1", **members)
    handle = opened("acme", "boss", "ask-1", event, 100)
    assert isinstance(handle, Handle)
    return handle


def after(handle: Handle, *steps: tuple[SupervisionEvent, int]) -> Handle | Ignored:
    found: Handle | Ignored = handle
    for event, at_ms in steps:
        assert isinstance(found, Handle)
        found = step(found, event, at_ms)
    return found


def state(*events: SupervisionEvent) -> str:
    found = after(requested(), *((event, 200 + n) for n, event in enumerate(events)))
    return found.state if isinstance(found, Handle) else found


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((ADMITTED,), "admitted"),
        ((REJECTED,), "rejected"),
        ((ADMITTED, CLAIMED), "started"),
        ((ADMITTED, CLAIMED, FINISHED), "finished"),
        ((ADMITTED, CLAIMED, FAILED), "started"),
        ((ADMITTED, CLAIMED, FAILED, ERROR), "failed"),
        ((CANCELLED,), "cancelled"),
        ((ADMITTED, CANCELLED), "cancelled"),
        ((ADMITTED, CLAIMED, CANCELLED), "cancelled"),
        ((CLAIMED,), "illegal"),
        ((FINISHED,), "illegal"),
        ((ERROR,), "illegal"),
        ((FAILED,), "illegal"),
        ((ADMITTED, ADMITTED), "repeated"),
        ((ADMITTED, REJECTED), "illegal"),
        ((ADMITTED, CLAIMED, CLAIMED), "stale"),
        ((ADMITTED, CLAIMED, TAKEN_OVER), "illegal"),
        ((ADMITTED, CLAIMED, FAILED, FAILED), "repeated"),
        ((ADMITTED, CLAIMED, FAILED, FINISHED), "illegal"),
        ((ADMITTED, CLAIMED, FINISHED, CANCELLED), "late"),
        ((ADMITTED, CLAIMED, FINISHED, FINISHED), "late"),
        ((CANCELLED, ADMITTED), "late"),
        ((REJECTED, CANCELLED), "late"),
    ],
)  # fmt: skip
def test_events_in_order_lead_to_one_state(
    events: tuple[SupervisionEvent, ...], expected: str
) -> None:
    assert state(*events) == expected


def test_a_request_opens_only_the_delegation_its_own_entry_makes() -> None:
    event = said(DelegationRequested, input="go", request_entry_id="ask-1")
    assert isinstance(opened("acme", "boss", "ask-1", event, 100), Handle)
    assert opened("acme", "boss", "ask-2", event, 100) == "illegal"
    assert opened("acme", "other", "ask-1", event, 100) == "illegal"
    assert step(requested(), event, 200) == "repeated"


def test_a_lost_lease_is_taken_over_once_and_the_old_holder_is_heard_no_more() -> None:
    running = after(requested(), (ADMITTED, 200), (CLAIMED, 300))
    assert isinstance(running, Handle)
    assert step(running, TAKEN_OVER, 1_300) == "illegal"
    beaten = after(running, (said(DelegationHeartbeat, epoch=1), 1_250))
    assert isinstance(beaten, Handle)
    assert step(beaten, TAKEN_OVER, 1_301) == "illegal"
    taken = step(beaten, TAKEN_OVER, 2_251)
    assert isinstance(taken, Handle)
    assert taken.lease is not None
    assert taken.lease.holder == "two"
    assert step(taken, FINISHED, 2_300) == "stale"
    assert step(taken, FAILED, 2_300) == "stale"
    assert step(taken, said(DelegationHeartbeat, epoch=1), 2_300) == "stale"
    done = step(taken, said(DelegationFinished, epoch=2, status="completed"), 2_300)
    assert isinstance(done, Handle)
    assert done.state == "finished"


def test_a_delegation_that_may_not_be_taken_over_fails_only_when_the_lease_is_lost() -> None:
    running = after(requested(on_lost="fail"), (ADMITTED, 200), (CLAIMED, 300))
    assert isinstance(running, Handle)
    lost = said(ChildFailed, reason=LEASE_LOST)
    assert step(running, TAKEN_OVER, 9_000) == "illegal"
    assert step(running, lost, 1_300) == "stale"
    failed = step(running, lost, 1_301)
    assert isinstance(failed, Handle)
    assert failed.failure == LEASE_LOST


def test_news_counts_once_for_each_place_and_never_moves_the_state() -> None:
    milestone = {"type": "turn_started", "turn": 2}
    running = after(requested(), (ADMITTED, 200), (CLAIMED, 300), (FINISHED, 400))
    assert isinstance(running, Handle)
    found = after(
        running,
        (told(ChildMilestone, 4, turn=2, child_event=milestone), 500),
        (told(ChildEventsCoalesced, 4, n=1, dropped=3, max_per_second=10), 501),
    )
    assert isinstance(found, Handle)
    assert found.state == "finished"
    assert (found.news.n_events, found.news.n_coalesced, found.news.turn) == (1, 3, 2)
    assert step(found, told(ChildMilestone, 4, turn=2, child_event=milestone), 502) == "repeated"
    capped = step(found, told(ChildEventsCapped, 5, max_child_events=1), 503)
    assert isinstance(capped, Handle)
    assert step(capped, told(ChildMilestone, 6, turn=3, child_event={}), 504) == "late"
    closing = told(ChildEventsClosed, 7, offered=9, delivered=1, coalesced=3, capped=5)
    closed = step(capped, closing, 505)
    assert isinstance(closed, Handle)
    assert (closed.news.offered, closed.news.n_after_cap) == (9, 5)


@pytest.mark.parametrize(
    ("report", "heard"),
    [("on-complete", ""), ("milestones", "milestone"), ("stream", "milestone event")],
)
def test_a_child_is_heard_no_louder_than_it_was_granted(report: Report, heard: str) -> None:
    admitted = said(DelegationAdmitted, policy=ReportPolicy(report=report))
    running = after(requested(), (admitted, 200), (CLAIMED, 300))
    assert isinstance(running, Handle)
    milestone = told(ChildMilestone, 1, turn=1, child_event={})
    streamed = told(ChildEvent, 1, child_event={})
    assert (step(running, milestone, 400) != "illegal") is ("milestone" in heard)
    assert (step(running, streamed, 400) != "illegal") is ("event" in heard)


def test_a_child_is_heard_no_more_often_than_it_was_granted() -> None:
    admitted = said(
        DelegationAdmitted, limits={"childEvents": 1}, policy=ReportPolicy(report="milestones")
    )
    heard = told(ChildMilestone, 1, turn=1, child_event={})
    found = after(requested(), (admitted, 200), (CLAIMED, 300), (heard, 400))
    assert isinstance(found, Handle)
    assert step(found, told(ChildMilestone, 2, turn=2, child_event={}), 500) == "illegal"
    assert isinstance(step(found, told(ChildEventsCapped, 2, max_child_events=1), 500), Handle)


def test_news_of_a_child_that_nobody_claimed_is_illegal() -> None:
    assert step(requested(), told(ChildMilestone, 1, turn=1, child_event={}), 200) == "illegal"
