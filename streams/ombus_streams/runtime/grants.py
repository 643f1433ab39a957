"""What a shared read asks of its surroundings: grants, other sessions, and a log of decisions."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec
from ombus_schemas.scopes import ScopeAccess

from ombus_streams.memory.owner_grants import ScopeGrants
from ombus_streams.memory.shared_rows import SharedBranch
from ombus_streams.runtime.errors import RetryableError


class Watermark(msgspec.Struct, frozen=True):
    """How far of one partition of one grants log something has been folded."""

    incarnation: str
    next_offset: int

    def holds(self, incarnation: str, end: int) -> bool:
        """Say whether every record below ``end`` of that log is in."""
        return self.incarnation == incarnation and self.next_offset >= end


class GrantSnapshot(msgspec.Struct, frozen=True):
    """One scope and the watermark of its partition, read at one instant."""

    watermark: Watermark
    scope: ScopeGrants


class GrantsUnavailable(RetryableError):
    """Grants, or another session, cannot be read now: deny."""


class GrantLog(Protocol):
    """The lower bound of a read: every acknowledged record lies below ``end``."""

    @property
    def incarnation(self) -> str: ...

    def partition_of(self, key: bytes) -> int: ...

    def end(self, partition: int) -> int:
        """Return where the records end, asked from the log after the call began."""
        ...


class GrantStore(Protocol):
    """The grant maps."""

    def snapshot(
        self, incarnation: str, partition: int, owner: bytes, scope_id: str
    ) -> GrantSnapshot | None:
        """Return the scope as it stands, ``None`` if nothing of the partition is held.

        Raises:
            GrantsUnavailable: it cannot be asked.
        """
        ...


class Branches(Protocol):
    """Other sessions, wherever their rows are."""

    def fetch(self, key: bytes, scope_id: str, memory_id: str | None) -> SharedBranch | None:
        """Return what the session holds of the scope, ``None`` if there is no such session.

        With ``memory_id`` the entries hold its sources. An invalidation that was answered before
        the call is in.

        Raises:
            GrantsUnavailable: it cannot be read now.
        """
        ...


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the access log."""

    at: datetime
    tenant: str
    access: ScopeAccess


class AccessLog(Protocol):
    """Every decision, both ways."""

    def record(self, decisions: Sequence[Decision]) -> None:
        """Keep the decisions; durable as this process's files are once it returns."""
        ...
