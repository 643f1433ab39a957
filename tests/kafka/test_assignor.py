"""Which instance gets which partition. Pure: no broker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("aiokafka", reason="the Kafka engine needs the extra kafka")

from ombus_streams.engine.kafka.assignor import Member, assigned, assignor_of
from ombus_streams.engine.kafka.standing import Standing

PARTITIONS = range(64)


def members(*names: str) -> list[Member]:
    return [(name, f"id-of-{name}") for name in names]


@given(
    st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=9, unique=True),
    st.integers(0, 64),
)
def test_every_partition_has_one_owner_and_shares_differ_by_one_at_most(
    names: list[str], n_partitions: int
) -> None:
    shares = assigned(range(n_partitions), members(*names))
    assert sorted(each for share in shares.values() for each in share) == list(range(n_partitions))
    sizes = {len(share) for share in shares.values()}
    assert max(sizes) - min(sizes) <= 1


def test_an_instance_that_comes_back_under_another_member_id_gets_its_partitions_back() -> None:
    before = assigned(PARTITIONS, members("a", "b", "c"))
    after = assigned(PARTITIONS, [("a", "id-of-a"), ("b", "another"), ("c", "id-of-c")])
    shared = set(before["b", "id-of-b"]) & set(after["b", "another"])
    assert len(shared) == len(before["b", "id-of-b"])


def test_who_joins_takes_a_share_and_little_else_moves() -> None:
    before = assigned(PARTITIONS, members("a", "b", "c"))
    after = assigned(PARTITIONS, members("a", "b", "c", "d"))
    owner = {each: member for member, share in before.items() for each in share}
    moved = [each for member, share in after.items() for each in share if owner[each] != member]
    n_taken = len(after["d", "id-of-d"])
    assert n_taken == 16
    assert len(moved) <= 2 * n_taken


def test_without_members_nothing_is_assigned() -> None:
    assert assigned(PARTITIONS, []) == {}


class Cluster:
    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {0, 1, 2, 3} if topic == "entries" else None


def test_the_group_protocol_carries_the_instance_s_name() -> None:
    said = {
        "m1": assignor_of(Standing("a")).metadata({"entries"}),
        "m2": assignor_of(Standing("b")).metadata({"entries"}),
        "m3": assignor_of(Standing("c")).metadata({"unknown"}),
    }
    assert [each.user_data for each in said.values()] == [b"a", b"b", b"c"]
    shares = assignor_of(Standing("a")).assign(Cluster(), said)
    assert shares == assignor_of(Standing("b")).assign(Cluster(), said)
    found = {member: share.assignment for member, share in shares.items()}
    assert found["m3"] == []
    assert sorted(each for _, share in found["m1"] + found["m2"] for each in share) == [0, 1, 2, 3]
    assert len(found["m1"][0][1]) == len(found["m2"][0][1]) == 2
