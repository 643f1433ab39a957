"""Whoever does a run's work: found in the roster, admitted, traced, and paid for.

The interpreter asks for one worker for one run and gives it back; what stands between a run and its
model is here.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.settings import MemorySettings, WorkerSettings

from ombus_streams.memory.head import LeafHead
from ombus_streams.memory.session import Session
from ombus_streams.memory.terms import settings_of
from ombus_streams.runtime.dispatch import Dispatch
from ombus_streams.runtime.provider import ModelProvider, WorkerName
from ombus_streams.runtime.roster import Assigned, Fixed, Roster
from ombus_streams.runtime.trace import Trace, Traced
from ombus_streams.runtime.usage import OperationalRows

Providers = Mapping[WorkerName, ModelProvider]


class Staff:
    """The workers of a process. Without a ``dispatch`` nothing is limited, retried or counted."""

    def __init__(
        self, roster: Roster, dispatch: Dispatch | None = None, trace: Trace | None = None
    ) -> None:
        self._roster, self._dispatch, self._trace = roster, dispatch, trace
        self._partition_of: Callable[[bytes], int] = _only_partition

    @classmethod
    def of(cls, providers: "Providers | Staff") -> "Staff":
        """Return ``providers`` as a staff."""
        return providers if isinstance(providers, Staff) else cls(Fixed(providers))

    def keep_accounts(
        self, partition_of: Callable[[bytes], int], stores: Mapping[int, OperationalRows]
    ) -> None:
        """Keep what runs cost in the stores of the partitions this process owns."""
        self._partition_of = partition_of
        for partition, store in stores.items():
            self.adopt(partition, store)

    def adopt(self, partition: int, store: OperationalRows) -> None:
        """Take the accounts of a partition over, on assignment."""
        if self._dispatch is not None:
            self._dispatch.book.adopt(partition, store)

    def release(self, partition: int) -> None:
        """Leave the accounts of a partition to its next owner, on revocation."""
        if self._dispatch is not None:
            self._dispatch.book.release(partition)

    @asynccontextmanager
    async def engaged(
        self, session: Session, leaf: LeafHead, worker: WorkerName, run_id: str, tokens: int | float
    ) -> AsyncIterator[Assigned]:
        """Lend whoever does a run over about ``tokens`` of input.

        Raises:
            NotConfigured: nobody can.
            Deferred: not now.
        """
        settings = settings_of(session, leaf)
        is_set = settings.session_model_source == "settings"
        model = settings.session_model if is_set else leaf.model
        assigned = self._roster.assign(worker, _group(settings, worker), model)
        if self._trace is not None and settings.debug_log:
            assigned = self._traced(assigned, self._trace, session, worker, run_id)
        if self._dispatch is None:
            yield assigned
            return
        partition = self._partition_of(session.key)
        async with self._dispatch.run(
            partition, session.tenant_id, worker, assigned.provider, round(tokens)
        ) as provider:
            yield msgspec.structs.replace(assigned, provider=provider)

    def _traced(
        self, assigned: Assigned, trace: Trace, session: Session, worker: str, run_id: str
    ) -> Assigned:
        tenant, name = session.tenant_id, session.session_id

        def tell(event: JsonObject) -> None:
            trace.write(tenant, name, {"worker": worker, "runId": run_id, **event})

        return msgspec.structs.replace(assigned, provider=Traced(assigned.provider, tell))


def _group(settings: MemorySettings, worker: WorkerName) -> WorkerSettings:
    match worker:
        case "observer":
            return settings.observation
        case "reflector":
            return settings.reflection
        case "dropper":
            return settings.dropper


def _only_partition(key: bytes) -> int:
    return 0
