"""A folder's delegations against a fold of their log from zero, in memory."""

import asyncio

from ombus.settings import ProcessSettings
from ombus.wiring_supervision import Supervision, open_supervision
from ombus_schemas.codec import decode_record
from ombus_schemas.errors import BadRecord
from ombus_schemas.ids import SYSTEM_TENANT, session_key
from ombus_streams.memory.rows import MemoryRows
from ombus_streams.supervision.handle import TERMINAL, Handle
from ombus_streams.supervision.parent import fold, handles_of, open_parents, parent_of
from ombus_streams.supervision.summary import summary


def check_folder(settings: ProcessSettings) -> dict[str, str]:
    """Return the state of every delegation of the folder, by its id.

    Raises:
        AssertionError: one is not over, a slot or a claim is left, or rows or summaries differ.
    """
    supervision = open_supervision(settings)
    states: dict[str, str] = {}
    try:
        asyncio.run(_caught_up(supervision))
        log = supervision.log
        folded = [MemoryRows() for _ in range(log.partitions)]
        parents: dict[bytes, None] = {}
        for partition, rows in enumerate(folded):
            with supervision.state.snapshot(partition) as stored:
                position = stored.position()
                end = log.end(partition)
                assert position is not None
                assert position.next_offset == end, "not all is folded"
                for record in log.read(partition, 0, end):
                    try:
                        entry = decode_record(record.key, record.value)
                    except BadRecord:
                        continue
                    if entry.tenant_id != SYSTEM_TENANT and record.key is not None:
                        parents[record.key] = None
                        fold(rows, entry, record.at_ms)
                assert dict(stored.scan(b"")) == dict(rows.rows), "the rows differ from the log"
                assert open_parents(rows) == [], "a slot is left"
        for key in parents:
            rows = folded[log.partition_of(key)]
            tenant = key.decode().partition("/")[0]
            for handle in handles_of(rows, key):
                assert handle.state in TERMINAL, f"{handle.id} is {handle.state}"
                assert handle.id not in states
                states[handle.id] = handle.state

            def below(session: str, tenant: str = tenant) -> list[Handle]:
                child = session_key(tenant, session)
                return [*handles_of(folded[log.partition_of(child)], child)]

            with supervision.rows(key) as stored:
                assert parent_of(stored, key) == parent_of(rows, key)
                said = summary(parent_of(stored, key), below)
            handles = [*handles_of(rows, key)]
            for row in said:
                mine = [each for each in handles if each.child_id == row.child_id]
                epochs = [each.lease.epoch for each in mine if each.lease is not None]
                assert row.attempts == sum(epochs), "attempts are not those of the log"
                assert row.failures == sum(each.state == "failed" for each in mine)
                assert row.outcome in TERMINAL | {each.status or "completed" for each in mine}
    finally:
        supervision.close()
    return states


async def _caught_up(supervision: Supervision) -> None:
    assert supervision.own(), "somebody else still supervises"
    while await supervision.step():
        pass
