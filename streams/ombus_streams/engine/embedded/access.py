"""The access log: who was let in to a shared scope, and who was not, in ``access.db``.

Decisions are facts of the process that made them, not of a session: a read appends nothing to any
log, or reading would fork, wake workers and move what it reads. So each node keeps its own, and is
asked for its own (docs/decisions/0009-shared-scopes.md).
"""

import sqlite3
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ombus_schemas.scopes import ScopeAccess

from ombus_streams.engine.embedded.database import BUSY_TIMEOUT, connect, transaction
from ombus_streams.engine.embedded.errors import storage_error
from ombus_streams.runtime.folders import make_private
from ombus_streams.runtime.grants import Decision

FILE: Final = "access.db"
MAX_DECISIONS: Final = 1_000_000
"""The oldest go first."""
_TRIM_EVERY: Final = 10_000
_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS decisions(number INTEGER PRIMARY KEY AUTOINCREMENT,"
    " at_ms INTEGER NOT NULL, tenant TEXT NOT NULL, scope TEXT NOT NULL, owner TEXT NOT NULL,"
    " reader TEXT NOT NULL, granted INTEGER NOT NULL, branches INTEGER NOT NULL,"
    " observations INTEGER NOT NULL, reflections INTEGER NOT NULL, reason TEXT)",
    "CREATE INDEX IF NOT EXISTS decisions_by_owner ON decisions(tenant, owner, number)",
    "CREATE INDEX IF NOT EXISTS decisions_by_reader ON decisions(tenant, reader, number)",
)
_INSERT: Final = (
    "INSERT INTO decisions(at_ms, tenant, scope, owner, reader, granted, branches, observations,"
    " reflections, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SELECT: Final = (
    "SELECT at_ms, tenant, scope, owner, reader, granted, branches, observations, reflections,"
    " reason FROM decisions"
)


class AccessFile:
    """The log of one data folder. For several threads and processes."""

    def __init__(self, folder: Path) -> None:
        make_private(folder)
        self.path = folder / FILE
        self._lock = threading.Lock()
        # A power cut may cost the last decisions, the end of a process none.
        self._connection = connect(self.path, "NORMAL", BUSY_TIMEOUT)
        self._n_recorded = 0
        with transaction(self._connection, self.path):
            for statement in _TABLES:
                self._connection.execute(statement)

    def record(self, decisions: Sequence[Decision]) -> None:
        """Keep the decisions.

        Raises:
            StorageError: see its way out; none of them is kept.
        """
        rows = [_row(each) for each in decisions]
        with self._lock, transaction(self._connection, self.path):
            self._connection.executemany(_INSERT, rows)
            before, self._n_recorded = self._n_recorded, self._n_recorded + len(rows)
            if before // _TRIM_EVERY != self._n_recorded // _TRIM_EVERY:
                self._connection.execute(
                    "DELETE FROM decisions WHERE number <= (SELECT max(number) FROM decisions) - ?",
                    (MAX_DECISIONS,),
                )

    def decisions(
        self, tenant: str, session_id: str, scope_id: str | None = None, limit: int = 100
    ) -> list[Decision]:
        """Return the last decisions over scopes the session owns or has read, newest first.

        Raises:
            StorageError: see its way out.
        """
        query = (
            f"{_SELECT} WHERE number IN (SELECT number FROM decisions WHERE tenant = ? AND owner ="
            " ? UNION SELECT number FROM decisions WHERE tenant = ? AND reader = ?)"
            " AND (? IS NULL OR scope = ?) ORDER BY number DESC LIMIT ?"
        )
        asked = (tenant, session_id, tenant, session_id, scope_id, scope_id, limit)
        try:
            with self._lock:
                rows = self._connection.execute(query, asked).fetchall()
        except sqlite3.Error as error:
            raise storage_error(self.path, error) from error
        return [_decision(*row) for row in rows]

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def _row(decision: Decision) -> tuple[str | int | None, ...]:
    access = decision.access
    return (
        int(decision.at.timestamp() * 1_000),
        decision.tenant,
        access.scope_id,
        access.owner_session_id,
        access.principal_id,
        int(access.granted),
        access.branches,
        access.observations,
        access.reflections,
        access.reason,
    )


def _decision(
    at_ms: int,
    tenant: str,
    scope: str,
    owner: str,
    reader: str,
    granted: int,
    branches: int,
    observations: int,
    reflections: int,
    reason: str | None,
) -> Decision:
    return Decision(
        at=datetime.fromtimestamp(at_ms / 1_000, UTC),
        tenant=tenant,
        access=ScopeAccess(
            scope_id=scope,
            owner_session_id=owner,
            principal_id=reader,
            granted=granted == 1,
            branches=branches,
            observations=observations,
            reflections=reflections,
            reason=reason,
            reader_session_id=reader,
        ),
    )
