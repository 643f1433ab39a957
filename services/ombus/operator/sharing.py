"""What other sessions share with the one that is read, decided for this read and no other (S19)."""

from collections.abc import Callable, Sequence
from typing import Protocol

from ombus_streams.memory.reading import bound_scopes
from ombus_streams.memory.shared import SharedMemory
from ombus_streams.memory.terms import settings_of
from ombus_streams.runtime.grant_fold import GrantFolds
from ombus_streams.runtime.grants import Decision
from ombus_streams.runtime.ports import EntryLog
from ombus_streams.runtime.shared_reads import Asking, SharedReads

from ombus.operator.lookup import Lens


class AccessFile(Protocol):
    """The access log of this process."""

    def record(self, decisions: Sequence[Decision]) -> None: ...

    def decisions(
        self, tenant: str, session_id: str, scope_id: str | None = None, limit: int = 100
    ) -> list[Decision]: ...

    def close(self) -> None: ...


class ScopeSharing:
    """The grants log of a process, what it folds of it, its access log, and its shared reads."""

    def __init__(
        self,
        log: EntryLog,
        access: AccessFile,
        reads: SharedReads,
        folds: GrantFolds,
        close: Callable[[], None],
    ) -> None:
        self.log, self.access, self.reads, self.folds = log, access, reads, folds
        self._close = close

    def shared_with(self, lens: Lens, memory_id: str | None = None) -> SharedMemory | None:
        """Return what is shared with a leaf; ``None``: it declares nothing, and nobody is asked."""
        asking = asking_of(lens, memory_id)
        return None if asking is None else self.reads.resolve(asking)

    def close(self) -> None:
        self._close()


def asking_of(lens: Lens, memory_id: str | None = None) -> Asking | None:
    """Return what the leaf declares that others share with it, if it declares anything."""
    declared = settings_of(lens.session, lens.leaf).shared_scopes
    if not declared:
        return None
    return Asking(
        tenant=lens.session.tenant_id,
        session_id=lens.session.session_id,
        declared=declared,
        scope_map=bound_scopes(lens.session, lens.leaf),
        memory_id=memory_id,
    )
