"""The rounds of ``chaos`` on Kafka: two supervisors, a group for each child id, kill -9."""

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager

import msgspec
from ombus.operator.children import DirectBus
from ombus.operator.delegations import Delegations
from ombus.wiring_child import kafka_bus
from ombus.wiring_delegations import open_kafka_supervision
from ombus.wiring_worker import run_workers
from ombus_schemas.ids import session_key
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.memory.rows import MemoryRows
from ombus_streams.supervision.handle import TERMINAL, Handle
from ombus_streams.supervision.parent import handles_of, open_parents, parent_of
from ombus_streams.supervision.summary import summary

from tests.supervision.chaos import TENANT, Ground
from tests.supervision.refold import fold_all

SUPERVISORS = ("supervisor-1", "supervisor-2")


class Broker(Ground, frozen=True, kw_only=True):
    """A run on topics of its own; rows of each process lie in the folder."""

    bootstrap: str
    entries: str
    dead_letters: str
    events: str

    @property
    def connection(self) -> Connection:
        return Connection(bootstrap_servers=self.bootstrap)

    def delegations(self, name: str, *, decides: bool = False) -> Delegations:
        # Deciding is for the supervisors alone here; whoever opens it folds.
        supervision = open_kafka_supervision(
            self.settings(), self.connection, name, topic=self.events
        )
        return Delegations(self.settings(), supervision=supervision)

    def bus(self, name: str) -> AbstractAsyncContextManager[DirectBus]:
        return kafka_bus(
            self.settings(), self.connection, name, name, topic=self.entries, events=self.events
        )

    def help(self, name: str) -> None:
        async def run() -> None:
            await run_workers(
                self.settings(), self.connection, ["supervisor"], name, asyncio.Event(),
                lambda _: None, self.entries, self.dead_letters, events=self.events,
            )  # fmt: skip

        asyncio.run(run())

    def decider(self, pid_by_name: Mapping[str, int]) -> str | None:
        # Both decide, each about its own partitions: the one that was started last has most to do.
        found = {name: pid for name, pid in pid_by_name.items() if name in SUPERVISORS}
        return max(found, key=lambda name: found[name], default=None)

    def check(self, sessions: Collection[str]) -> Counter[str]:
        """Compare the driver's rows with a fold of the log from zero."""
        ends = Counter[str]()
        with self.delegations("driver") as delegations:
            supervision = delegations.supervision
            log = supervision.log
            while any(supervision.folded(each) < log.end(each) for each in range(log.partitions)):
                time.sleep(0.1)  # Another thread folds.
            fresh = {each: MemoryRows() for each in range(log.partitions)}
            for partition, rows in fresh.items():
                ends += fold_all(log, partition, rows)
                with supervision.state.snapshot(partition) as stored:
                    assert dict(stored.scan(b"")) == dict(rows.rows), "rows differ"
                assert not open_parents(rows)

            def below(session: str) -> list[Handle]:
                key = session_key(TENANT, session)
                return [*handles_of(fresh[log.partition_of(key)], key)]

            for session in sessions:
                key = session_key(TENANT, session)
                rows = fresh[log.partition_of(key)]
                assert all(handle.state in TERMINAL for handle in handles_of(rows, key))
                folded = [
                    msgspec.to_builtins(each) for each in summary(parent_of(rows, key), below)
                ]
                told = [msgspec.to_builtins(each) for each in delegations.summary(key).children]
                assert len(told) == len(folded)
                for one, other in zip(told, folded, strict=True):
                    assert {**other, **one} == other, "a summary is not the log's"
        return ends
