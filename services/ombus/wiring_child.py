"""The part of the composition root that lets a process be a child on Kafka."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from ombus_schemas.topics import ENTRIES, SUPERVISION

from ombus.operator.children import Children, DirectBus
from ombus.settings import ProcessSettings
from ombus.wiring import SystemClock
from ombus.wiring_delegations import open_kafka_supervision
from ombus.wiring_kafka import Connection, open_kafka_log, require_extra

__all__ = ["kafka_bus"]


@asynccontextmanager
async def kafka_bus(
    settings: ProcessSettings,
    connection: Connection,
    child_id: str,
    instance: str,
    *,
    topic: str = ENTRIES,
    events: str = SUPERVISION,
) -> AsyncIterator[DirectBus]:
    """Lend a bus on Kafka, over this process's own fold of the delegations.

    Whose delegations it claims is shared out in the group of its child id. ``instance`` names its
    rows and is no other process's.

    Raises:
        BrokerError, StoreError: see their way out.
        BadSetting: the extra is not installed.
    """
    require_extra()
    from ombus_streams.engine.kafka.child_group import ChildGroup
    from ombus_streams.engine.kafka.library_logs import forwarded

    clock, stop = SystemClock(), asyncio.Event()
    with ExitStack() as opened:
        opened.enter_context(forwarded())
        entries = await asyncio.to_thread(open_kafka_log, connection, topic)
        opened.callback(entries.close)
        rows = f"{instance}-child-{child_id}"
        supervision = await asyncio.to_thread(
            lambda: open_kafka_supervision(settings, connection, rows, topic=events)
        )
        opened.callback(supervision.close)
        prefix = "ombus" if events == SUPERVISION else events
        group = ChildGroup(child_id, instance, connection, supervision.log, group_prefix=prefix)
        running = [
            asyncio.create_task(supervision.run(stop)),
            asyncio.create_task(group.run(stop)),
        ]
        children = Children(settings, supervision, clock)
        try:
            yield DirectBus(children, entries, settings.tenant, group.partitions)
        finally:
            stop.set()
            await asyncio.gather(*running)
