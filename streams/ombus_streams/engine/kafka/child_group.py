"""Which of the parents' partitions a child process may claim from: a group of each child id.

Membership only spreads the work. Who holds a lease is said by the log, so a member that does not
know yet that its partitions moved makes a claim that comes second, and nothing worse.
"""

import asyncio
from typing import Final

from ombus_streams.engine.kafka.app import Membership, create_app
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.supervision import Deciders
from ombus_streams.runtime.errors import RuntimeFault

PREFIX: Final = "child-"


class ChildGroup:
    """A member; ``log`` holds the supervision events and stays its owner's to close."""

    def __init__(
        self,
        child_id: str,
        instance: str,
        connection: Connection,
        log: KafkaLog,
        *,
        group_prefix: str = "ombus",
        membership: Membership | None = None,
    ) -> None:
        self._name, self._connection = PREFIX + child_id, connection
        self._group_prefix, self._membership = group_prefix, membership
        self._members = Deciders(log, instance)

    def partitions(self) -> frozenset[int]:
        """Return what is assigned to this process now. May be asked from any thread."""
        return frozenset(self._members.ends)

    async def run(self, stop: asyncio.Event) -> None:
        """Be a member until ``stop`` is set.

        Raises:
            RuntimeFault: the consumer has ended by itself.
        """
        app = create_app(
            self._name,
            self._connection,
            self._members,
            group_prefix=self._group_prefix,
            membership=self._membership,
        )
        await app.start()
        stopped = asyncio.create_task(stop.wait())
        crashed = asyncio.create_task(app.wait_until_stopped())
        try:
            await asyncio.wait((stopped, crashed), return_when=asyncio.FIRST_COMPLETED)
            if not stopped.done():
                raise app.crash_reason or RuntimeFault("the consumer has ended by itself")
        finally:
            self._members.ends.clear()
            await app.stop()
            for each in (stopped, crashed):
                each.cancel()
            await asyncio.gather(stopped, crashed, return_exceptions=True)
