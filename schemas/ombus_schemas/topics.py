"""The topics, as data: what they carry, how they are keyed, cut and kept (design.md section 13).

``ombus topics plan|apply`` and the AsyncAPI page are made from this. A name or a partition count is
for ever: growing is a replay into a new topic.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec

from ombus_schemas.limits import MAX_RECORD_BYTES

ENTRIES: Final = "ombus.session.entries"
GRANTS: Final = "ombus.scope.grants"
SUPERVISION: Final = "ombus.supervision.events"
DEAD_LETTERS: Final = "ombus.session.dead-letters"


class Topic(msgspec.Struct, kw_only=True, frozen=True):
    """One topic."""

    name: str
    carries: str
    """One sentence for readers."""
    key: str
    partitions: int
    development_partitions: int
    retention: timedelta | None
    """``None``: unlimited."""
    opens_with_incarnation: bool = True
    """Whether ``om.log.created`` is the first record of every partition."""
    is_tiered: bool = False
    """Whether old segments may move to remote storage, where the broker has it."""

    def __post_init__(self) -> None:
        if not 0 < self.development_partitions <= self.partitions:
            raise ValueError(f"{self.name}: development has more partitions than production")


TOPICS: Final = (
    Topic(
        name=ENTRIES,
        carries="Every entry of every session, in order; the only source of truth.",
        key="tenant/session",
        partitions=64,
        development_partitions=8,
        retention=None,
        is_tiered=True,
    ),
    Topic(
        name=GRANTS,
        carries="Grants and revocations of shared scopes, and who owns each session.",
        key="tenant/owner session",
        partitions=8,
        development_partitions=8,
        retention=None,
    ),
    Topic(
        name=SUPERVISION,
        carries="Delegations and the milestones of children.",
        key="tenant/parent session",
        partitions=64,
        development_partitions=8,
        retention=None,
    ),
    Topic(
        name=DEAD_LETTERS,
        carries="Records that are no entries, as they came, with the reason in their headers.",
        key="that of the original record",
        partitions=4,
        development_partitions=4,
        retention=timedelta(days=30),
        opens_with_incarnation=False,
    ),
)
TOPIC_BY_NAME: Final[Mapping[str, Topic]] = {topic.name: topic for topic in TOPICS}

PRODUCTION_REPLICAS: Final = 3
PRODUCTION_MIN_INSYNC_REPLICAS: Final = 2


def configs(topic: Topic) -> dict[str, str]:
    """Return the broker's configuration of ``topic``, in its own words.

    Append time is the broker's, because milestones, ``asOf`` and lapses of runs are judged by it;
    nothing is ever compacted by key, which would destroy the ledger.
    """
    retention = topic.retention
    retention_ms = -1 if retention is None else retention // timedelta(milliseconds=1)
    return {
        "cleanup.policy": "delete",
        "max.message.bytes": str(MAX_RECORD_BYTES),
        "message.timestamp.type": "LogAppendTime",
        "retention.bytes": "-1",
        "retention.ms": str(retention_ms),
        "unclean.leader.election.enable": "false",
    }


def production_configs(topic: Topic) -> dict[str, str]:
    """Return ``configs`` and what three replicas allow: no append is acknowledged by one alone."""
    return {**configs(topic), "min.insync.replicas": str(PRODUCTION_MIN_INSYNC_REPLICAS)}
