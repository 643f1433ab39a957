"""The first record of every partition: which log this is (design.md sections 3 and 15)."""

from datetime import datetime
from typing import Final

import msgspec
from ombus_schemas.codec import encode
from ombus_schemas.control import LogCreated
from ombus_schemas.entries import SCHEMA_VERSION, Entry

LOG_KEY: Final = b"_system/log"
"""The reserved session whose entry opens a partition; replay never copies it."""


def created(incarnation: str, cluster: str, topic: str, partition: int, now: datetime) -> bytes:
    """Return ``om.log.created`` encoded: it tells this log from another one at the same place."""
    tenant, _, session = LOG_KEY.decode().partition("/")
    body = LogCreated(cluster=cluster, topic=topic, partition=partition, incarnation=incarnation)
    entry = Entry(
        id=f"log-{incarnation}-{partition}",
        session_id=session,
        tenant_id=tenant,
        parent_id=None,
        timestamp=now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        kind="custom",
        schema_version=SCHEMA_VERSION,
        data=msgspec.to_builtins(body),
    )
    return encode(entry)
