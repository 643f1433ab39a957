"""A lease as its log tells it: who came first, who is late, who may speak."""

import msgspec
import pytest
from ombus_schemas.codec import encode, key_of
from ombus_schemas.supervision import DelegationAdmitted, DelegationRequested
from ombus_streams.runtime.leases import Failure, Lease
from ombus_streams.supervision.events import event_entry
from ombus_streams.supervision.handle import Handle, opened, step

from tests.supervision.children import CHILD, PARENT, TENANT, delegation
from tests.support.engine import ManualClock, MemoryLog

KEY = f"{TENANT}/{PARENT}".encode()
LEASE_MS = 1_000


class Table:
    """The log of one delegation that was admitted, and those who sit around it."""

    def __init__(self, **asked: object) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog(self.clock)
        said = delegation()
        request = DelegationRequested(
            child_id=CHILD, delegation_id=said.delegation_id, input="go", request_entry_id="ask-1"
        )
        request = msgspec.structs.replace(request, **asked)
        handle = opened(TENANT, PARENT, "ask-1", request, self.clock.at_ms)
        assert isinstance(handle, Handle)
        admitted = DelegationAdmitted(child_id=CHILD, delegation_id=said.delegation_id)
        after = step(handle, admitted, self.clock.at_ms)
        assert isinstance(after, Handle)
        self.handle = after

    def lease(self, holder: str, epoch: int = 0) -> Lease:
        return Lease(self.log, self.clock, KEY, self.handle, 0, holder, epoch)

    def later(self, milliseconds: int) -> None:
        self.clock.at_ms += milliseconds


def test_the_first_claim_on_the_log_holds() -> None:
    table = Table()
    one, two = table.lease("one"), table.lease("two")

    assert one.claim(1, LEASE_MS)
    assert not two.claim(1, LEASE_MS)

    assert (one.is_held, two.is_held) == (True, False)
    assert len(table.log.records) == 1


def test_two_that_do_not_see_each_other_claim_and_both_learn_who_was_first() -> None:
    table = Table()
    one, two = table.lease("one"), table.lease("two")
    blind = two.advance
    two.advance = lambda: two.handle  # type: ignore[method-assign]  # it reads too late
    assert one.claim(1, LEASE_MS)

    assert not two.claim(1, LEASE_MS)

    two.advance = blind  # type: ignore[method-assign]  # as above
    two.advance()
    assert (one.is_held, two.is_held) == (True, False)
    assert len(table.log.records) == 2


def test_a_lease_is_taken_over_only_when_it_is_out() -> None:
    table = Table()
    one, two = table.lease("one"), table.lease("two")
    assert one.claim(1, LEASE_MS)

    table.later(LEASE_MS)
    assert not two.claim(2, LEASE_MS)
    table.later(1)
    assert two.claim(2, LEASE_MS)

    assert not one.beat(1)
    assert len(table.log.records) == 2


def test_a_heartbeat_keeps_it() -> None:
    table = Table()
    one, two = table.lease("one"), table.lease("two")
    assert one.claim(1, LEASE_MS)
    for n in range(1, 4):
        table.later(LEASE_MS)
        assert one.beat(n)

    table.later(LEASE_MS)

    assert not two.claim(2, LEASE_MS)


def test_a_claim_of_another_epoch_says_nothing() -> None:
    table = Table()
    one, two = table.lease("one"), table.lease("two")
    assert not one.claim(2, LEASE_MS)
    assert one.claim(1, LEASE_MS)
    table.later(2 * LEASE_MS)

    assert not two.claim(1, LEASE_MS)
    assert not two.claim(3, LEASE_MS)

    assert len(table.log.records) == 1


def test_what_fails_when_it_is_lost_is_not_taken_over() -> None:
    table = Table(on_lost="fail")
    assert table.lease("one").claim(1, LEASE_MS)
    table.later(10 * LEASE_MS)

    assert not table.lease("two").claim(2, LEASE_MS)


def test_of_two_ends_the_one_of_the_lease_counts() -> None:
    table = Table()
    one, two = table.lease("one"), table.lease("two")
    assert one.claim(1, LEASE_MS)
    table.later(2 * LEASE_MS)
    assert two.claim(2, LEASE_MS)

    assert one.finish("completed", "late", 1).state == "started"
    assert one.fail(Failure(reason="late", error="late")).state == "started"
    assert two.finish("completed", "mine", 2).state == "finished"
    assert one.finish("completed", "later", 3).output == "mine"

    assert table.lease("three").advance().output == "mine"


@pytest.mark.parametrize("epoch", [0, 1])
def test_nobody_ends_the_lease_of_another(epoch: int) -> None:
    table = Table()
    one, two = table.lease("one"), table.lease("two", epoch)
    assert one.claim(1, LEASE_MS)

    assert two.finish("completed", "not mine", 1).state == "started"
    assert two.fail(Failure(reason="crash", error="not mine")).state == "started"

    assert len(table.log.records) == 1
    assert one.finish("completed", "mine", 1).output == "mine"


def test_nobody_ends_what_nobody_holds() -> None:
    table = Table()

    assert table.lease("one").fail(Failure(reason="crash", error="x")).state == "admitted"

    assert table.log.records == []


def test_a_failure_is_two_events_in_one_append_and_ends_it() -> None:
    table = Table()
    one = table.lease("one")
    assert one.claim(1, LEASE_MS)

    ended = one.fail(Failure(reason="limit", error="too many", limit="steps", total_tokens=7))

    assert (ended.state, ended.failure, ended.reason) == ("failed", "limit", "too many")
    assert ended.usage == {"totalTokens": 7}
    assert len(table.log.records) == 3


def test_other_parents_and_what_is_no_event_are_passed_over() -> None:
    table = Table()
    other = event_entry(TENANT, "somebody", DelegationAdmitted(
        child_id=CHILD, delegation_id=table.handle.id
    ), id="e1", timestamp="")  # fmt: skip
    table.log.put(key_of(other), encode(other))
    table.log.put(KEY, b"no json")
    table.log.put(KEY, None)

    assert table.lease("one").advance() == table.handle
