"""Which instance folds which partition: the one that most likely has its rows already.

Rendezvous hashing over instance names, balanced to within one partition. It needs no memory of
earlier assignments: an instance that comes back gets the partitions its folder holds, and one that
joins or leaves moves few others.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from ombus_streams.engine.kafka.standing import Owner, Standing, directory, introduced

Member = tuple[str, str]
"""Instance name, then the id the coordinator gave: two of one name differ by it."""


def assigned(partitions: Sequence[int], members: Collection[Member]) -> dict[Member, list[int]]:
    """Return the partitions of each member; counts differ by one at most. Pure."""
    found: dict[Member, list[int]] = {member: [] for member in members}
    if not found:
        return found
    fair, n_longer = divmod(len(partitions), len(found))
    for partition in sorted(partitions):
        for member in sorted(found, key=lambda each: _weight(each, partition), reverse=True):
            held = found[member]
            if len(held) < fair or (len(held) == fair and n_longer > 0):
                n_longer -= len(held) == fair
                held.append(partition)
                break
    return found


def _weight(member: Member, partition: int) -> tuple[bytes, str]:
    # The member id is another one after every start: it decides between equals alone.
    instance, member_id = member
    return hashlib.sha256(f"{instance}\0{partition}".encode()).digest(), member_id


class InstanceAssignor(AbstractPartitionAssignor):  # type: ignore[misc]  # no types there
    """``assigned`` in the words of the group protocol; see ``assignor_of``."""

    name: ClassVar[str] = "ombus-instance"
    version: ClassVar[int] = 0
    standing: ClassVar[Standing]

    @classmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        said = {member_id: introduced(each.user_data) for member_id, each in members.items()}
        # Partitions of a member without an address could be read by nobody.
        serving = {member_id for member_id, (_, address) in said.items() if address}
        topics = {topic for each in members.values() for topic in each.subscription}
        shares: dict[str, list[tuple[str, list[int]]]] = {member_id: [] for member_id in members}
        for topic in sorted(topics):
            subscribed = [
                (said[member_id][0], member_id)
                for member_id, each in members.items()
                if topic in each.subscription and (not serving or member_id in serving)
            ]
            partitions = sorted(cluster.partitions_for_topic(topic) or ())
            for (_, member_id), mine in assigned(partitions, subscribed).items():
                if mine:
                    shares[member_id].append((topic, mine))
        known = directory(
            [
                Owner(
                    instance=said[member_id][0],
                    address=said[member_id][1],
                    partitions=tuple(each for _, mine in share for each in mine),
                )
                for member_id, share in shares.items()
            ]
        )
        return {
            member_id: ConsumerProtocolMemberAssignment(cls.version, share, known)
            for member_id, share in shares.items()
        }

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        said = cls.standing.introduction()
        return ConsumerProtocolMemberMetadata(cls.version, list(topics), said)

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        cls.standing.assigned(assignment.user_data)


def assignor_of(member: Standing) -> type[InstanceAssignor]:
    """Return the assignor of one consumer: aiokafka takes a class, so its instance is a class."""

    class Named(InstanceAssignor):
        standing = member

    return Named
