"""The fold against a slow model, over any events in any order, redelivered and cut anywhere."""

from collections import Counter
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st
from ombus_schemas.ids import session_key
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
    DelegationStarted,
    ReportPolicy,
    SupervisionEvent,
)
from ombus_streams.memory.rows import MemoryRows, Overlay
from ombus_streams.supervision.handle import LIVE, LOUDNESS, TERMINAL, Handle
from ombus_streams.supervision.parent import (
    Tally,
    claimable,
    fold,
    handles_of,
    open_parents,
    parent_of,
)

from tests.supervision.slow import Slow
from tests.supervision.telling import PARENT, TENANT, entry_of, request

KEY: Final = session_key(TENANT, PARENT)
REQUESTS: Final = (
    request(1),
    request(2, on_lost="fail"),
    request(3, "other"),
)
Told = tuple[SupervisionEvent, int]


@st.composite
def event(draw: st.DrawFn) -> SupervisionEvent:
    """Any event about one of three delegations."""
    asked = draw(st.sampled_from(REQUESTS))
    about: dict[str, Any] = {"child_id": asked.child_id, "delegation_id": asked.delegation_id}
    epoch = draw(st.integers(0, 3))
    place: dict[str, Any] = {"child_ordinal": draw(st.integers(0, 6)), "n": draw(st.integers(0, 1))}
    reason = draw(st.sampled_from(["crash", "lease_lost"]))
    lease = draw(st.sampled_from([250, 1_000]))
    report = draw(st.sampled_from(LOUDNESS))
    return draw(
        st.sampled_from(
            [
                asked,
                DelegationAdmitted(**about, policy=ReportPolicy(report=report)),
                DelegationAdmitted(**about, limits={"activeChildren": draw(st.integers(1, 2))}),
                DelegationStarted(**about, epoch=max(1, epoch), lease_ms=lease, holder="h"),
                DelegationStarted(**about, epoch=max(1, epoch), lease_ms=lease, holder="h"),
                DelegationHeartbeat(**about, epoch=epoch),
                DelegationRejected(**about, reason=draw(st.sampled_from(["hook", "depth"]))),
                DelegationFinished(**about, epoch=epoch, status="completed"),
                DelegationError(**about, epoch=epoch, error="x"),
                DelegationCancelled(**about),
                ChildFailed(**about, epoch=epoch, reason=reason),
                ChildMilestone(**about, **place, turn=1, child_event={}),
                ChildEvent(**about, **place, child_event={}),
                ChildEventsCoalesced(**about, **place, dropped=2, max_per_second=1),
                ChildEventsCapped(**about, **place, max_child_events=1),
                ChildEventsClosed(**about, **place, offered=3, delivered=1, coalesced=1, capped=1),
            ]
        )
    )


def histories() -> st.SearchStrategy[list[Told]]:
    """Events with append times that never run backwards."""
    steps = st.lists(st.tuples(event(), st.sampled_from([0, 1, 249, 251, 1_001])), max_size=40)

    def timed(drawn: tuple[list[int], list[Told]]) -> list[Told]:
        at_ms, found = 0, []
        for each, pause_ms in [*begun(drawn[0]), *drawn[1]]:
            at_ms += pause_ms
            found.append((each, at_ms))
        return found

    depths = st.lists(st.integers(0, 3), min_size=3, max_size=3)
    return st.tuples(depths, steps).map(timed)


def begun(depths: list[int]) -> list[Told]:
    """Return the usual first events of each delegation, as far as it is to have come."""
    found: list[Told] = []
    for asked, depth in zip(REQUESTS, depths, strict=True):
        about: dict[str, Any] = {"child_id": asked.child_id, "delegation_id": asked.delegation_id}
        claim = DelegationStarted(**about, epoch=1, lease_ms=250, holder="h")
        report = LOUDNESS[depths[0] % len(LOUDNESS)]
        admitted = DelegationAdmitted(
            **about, policy=ReportPolicy(report=report), limits={"childEvents": 1 + depths[1]}
        )
        found += [(each, 1) for each in (asked, admitted, claim)][:depth]
    return found


@given(histories())
@settings(max_examples=100, deadline=None)
def test_the_fold_agrees_with_the_slow_model(history: list[Told]) -> None:
    rows, slow = MemoryRows(), dict[str, Slow]()
    ignored: Counter[str] = Counter()
    for each, at_ms in history:
        known = slow.get(each.delegation_id)
        if known is None:
            if each in REQUESTS:
                slow[each.delegation_id] = Slow(each)
                why = None
            else:
                why = "unknown"
        elif is_over_full(each, slow):
            why = "illegal"
        else:
            why = known.offer(each, at_ms)
        if why is not None:
            ignored[why] += 1
        assert fold(rows, entry_of(each), at_ms) == why
    handles = {handle.id: handle for handle in handles_of(rows, KEY)}
    assert {id: handle.state for id, handle in handles.items()} == {
        id: model.state for id, model in slow.items()
    }
    parent = parent_of(rows, KEY)
    assert parent.ignored == dict(ignored)
    for id, model in slow.items():
        check_one(handles[id], model)
    still_open = {id for id, model in slow.items() if model.state not in TERMINAL}
    assert set(parent.open_ids) == still_open
    assert parent.n_live == sum(model.state in LIVE for model in slow.values())
    assert open_parents(rows) == ([KEY] if still_open else [])
    for child_id in ("scout", "other"):
        live = {id for id, handle in handles.items() if handle.state in LIVE}
        found = {handle.id for _, handle in claimable(rows, child_id)}
        assert found == {id for id in live if handles[id].child_id == child_id}
        mine = [model for model in slow.values() if model.request.child_id == child_id]
        n_denied = sum(
            isinstance(told, DelegationRejected) and told.reason == "hook"
            for model in mine
            for told, _ in model.accepted
        )
        tallies = [each for each in parent.tallies if each.child_id == child_id]
        tally = tallies[0] if tallies else Tally(child_id=child_id)
        n_attempts = n_denied + sum(model.epoch for model in mine)
        assert tally.attempts == n_attempts
        n_failed = sum(model.state == "failed" for model in mine)
        assert tally.failures == n_failed
        n_live = sum(model.epoch > 0 and model.state == "started" for model in mine)
        assert tally.n_live == n_live


def is_over_full(event: SupervisionEvent, slow: dict[str, Slow]) -> bool:
    if not isinstance(event, DelegationAdmitted) or "activeChildren" not in event.limits:
        return False
    n_live = sum(model.state in LIVE for model in slow.values())
    return n_live >= event.limits["activeChildren"]


def check_one(handle: Handle, slow: Slow) -> None:
    assert (handle.lease.epoch if handle.lease else 0) == slow.epoch
    if handle.lease is not None:
        assert handle.lease.expires_ms == slow.lost_after
    assert handle.news.n_events == len(slow.of(ChildEvent, ChildMilestone))
    assert handle.news.n_coalesced == 2 * len(slow.of(ChildEventsCoalesced))
    assert handle.news.is_capped == bool(slow.of(ChildEventsCapped))


@given(histories(), st.data())
@settings(max_examples=30, deadline=None)
def test_cuts_and_redelivery_change_no_delegation(history: list[Told], data: st.DataObject) -> None:
    whole = MemoryRows()
    for each, at_ms in history:
        fold(whole, entry_of(each), at_ms)
    cut = MemoryRows()
    overlay = Overlay(cut)
    for each, at_ms in history:
        fold(overlay, entry_of(each), at_ms)
        if data.draw(st.booleans()):
            cut.apply(overlay.changes)
            overlay.clear()
    cut.apply(overlay.changes)
    assert dict(cut.rows) == dict(whole.rows)
    before = [*handles_of(whole, KEY)]
    over = [handle for handle in before if handle.is_over]
    for each, at_ms in history:
        fold(whole, entry_of(each), at_ms)
    again = {handle.id: handle for handle in handles_of(whole, KEY)}
    assert [again[handle.id].state for handle in over] == [handle.state for handle in over]
