"""How a member stands in its group: its lease, and the directory. Pure: no broker."""

from datetime import timedelta

import pytest

pytest.importorskip("aiokafka", reason="the Kafka engine needs the extra kafka")

from ombus_streams.engine.kafka.assignor import assignor_of
from ombus_streams.engine.kafka.standing import Standing

TIMEOUT = timedelta(seconds=6)
OK, ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE_IN_PROGRESS = 0, 22, 25, 27


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Cluster:
    def partitions_for_topic(self, topic: str) -> set[int]:
        return {0, 1, 2, 3}


def member(name: str, clock: Hands | None = None, address: str | None = None) -> Standing:
    return Standing(name, address, TIMEOUT, clock or Hands())


def test_a_member_that_never_joined_answers_for_nothing() -> None:
    assert not member("a").is_current


def test_a_heartbeat_counts_from_when_it_was_sent_and_for_the_session_timeout() -> None:
    clock = Hands()
    standing = member("a", clock)
    sent_at, clock.now = clock.now, clock.now + 4
    standing.answered(sent_at, OK)
    assert standing.is_current
    clock.now = sent_at + 6
    assert not standing.is_current


@pytest.mark.parametrize("code", [ILLEGAL_GENERATION, UNKNOWN_MEMBER])
def test_a_group_that_goes_on_without_a_member_ends_its_standing_at_once(code: int) -> None:
    clock = Hands()
    standing = member("a", clock)
    standing.answered(clock.now, OK)
    standing.answered(clock.now, code)
    assert not standing.is_current


def test_a_rebalance_under_way_renews_nothing() -> None:
    clock = Hands()
    standing = member("a", clock)
    standing.answered(clock.now, OK)
    clock.now += 5
    standing.answered(clock.now, REBALANCE_IN_PROGRESS)
    assert standing.is_current
    clock.now += 1
    assert not standing.is_current


def shared(*members: Standing) -> dict[str, list[int]]:
    """Return what each gets, once all were told."""
    said = {each.instance: assignor_of(each).metadata({"entries"}) for each in members}
    shares = assignor_of(members[0]).assign(Cluster(), said)
    for each in members:
        assignor_of(each).on_assignment(shares[each.instance])
    return {
        name: [number for _, mine in share.assignment for number in mine]
        for name, share in shares.items()
    }


def test_every_member_learns_who_has_what_and_where() -> None:
    a, b = member("a", address="http://a:1"), member("b", address="http://b:2")
    shares = shared(a, b)
    assert sorted(shares["a"] + shares["b"]) == [0, 1, 2, 3]
    assert a.owners == b.owners
    for partition in range(4):
        owner = a.owner_of(partition)
        assert owner is not None
        assert partition in shares[owner.instance]
        assert owner.address == {"a": "http://a:1", "b": "http://b:2"}[owner.instance]


def test_whom_nobody_can_ask_gets_nothing_while_somebody_can_be_asked() -> None:
    assert shared(member("a"), member("b", address="http://b:2"))["a"] == []


def test_members_without_addresses_share_as_ever() -> None:
    shares = shared(member("a"), member("b"))
    assert len(shares["a"]) == len(shares["b"]) == 2
