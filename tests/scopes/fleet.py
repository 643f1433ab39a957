"""Sessions that share a scope, and the records by which they are granted it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from ombus.wiring import extractive_providers
from ombus_schemas.codec import encode
from ombus_schemas.entries import Entry
from ombus_schemas.ids import observation_id, session_key
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.settings import SharedScope
from ombus_schemas.topics import GRANTS
from ombus_streams.engine.embedded.engine import Engine
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.memory import reading
from ombus_streams.memory.shared import SharedMemory
from ombus_streams.runtime.grant_fold import GrantFolds
from ombus_streams.runtime.grants import Decision
from ombus_streams.runtime.ports import Draft, EntryLog, Position
from ombus_streams.runtime.row_branches import RowBranches
from ombus_streams.runtime.shared_reads import MAX_WAIT, Asking, SharedReads

TENANT = "acme"
SCOPE = "release"
AT = "2026-02-03T04:05:06.000Z"


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


class Remembered:
    """An access log in a list."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []

    def record(self, decisions: Sequence[Decision]) -> None:
        self.decisions += decisions


def open_engine(folder: Path) -> Engine:
    return Engine(folder, SystemClock(), extractive_providers())


def marker(session_id: str) -> str:
    """Return the word that only the memory of this session holds."""
    return f"marker-of-{session_id}."


def sharing(session_id: str, scope_id: str = SCOPE, tenant: str = TENANT) -> list[Entry]:
    """Return a session that has opened the scope and bound one observation, its marker, to it."""

    def entry(name: str, parent: str | None, kind: str, data: JsonObject | None) -> JsonObject:
        found: JsonObject = {
            "id": name,
            "sessionId": session_id,
            "tenantId": tenant,
            "parentId": parent,
            "timestamp": AT,
            "kind": kind,
            "schemaVersion": 1,
        }
        if data is not None:
            found |= {"data": data, "side": True}
        return found

    said = marker(session_id)
    memory_id = observation_id(said, ["m1"])
    message = entry("m1", None, "message", None)
    message["message"] = {
        "role": "user",
        "content": [{"type": "text", "text": f"source of {said}"}],
    }
    observation: JsonObject = {
        "id": memory_id,
        "content": said,
        "timestamp": AT,
        "relevance": "high",
        "sourceEntryIds": ["m1"],
        "tokenCount": 4,
    }
    recorded: JsonObject = {
        "type": "om.observations.recorded",
        "observations": [observation],
        "coversUpToId": "m1",
    }
    bound: JsonObject = {
        "type": "om.scope.bound",
        "scopeId": scope_id,
        "refs": [f"om:{memory_id}"],
    }
    opened: JsonObject = {"type": "om.scope.opened", "id": scope_id}
    lines = [
        message,
        entry("open", "m1", "custom", opened),
        entry("seen", "m1", "custom", recorded),
        entry("bind", "m1", "custom", bound),
        entry("enter", "m1", "custom", {"type": "om.scope.entered", "scopeId": scope_id}),
    ]
    return [msgspec.convert(line, Entry) for line in lines]


def make_sessions(engine: Engine, names: Sequence[str], tenant: str = TENANT) -> None:
    """Append such sessions and fold them."""
    for name in names:
        engine.append(sharing(name, tenant=tenant))
    while engine.fold():
        pass


def asking(
    engine: Engine,
    reader: str,
    owner: str,
    *,
    tenant: str = TENANT,
    scope_id: str = SCOPE,
    memory_id: str | None = None,
) -> Asking:
    """Return what the reader asks for: one scope of one owner."""
    with engine.reading(session_key(tenant, reader)) as live:
        leaf = live.session.leaf(live.session.head.default_segment)
        scope_map = reading.bound_scopes(live.session, leaf)
    declared = (SharedScope(scope_id=scope_id, owner_session_id=owner),)
    return Asking(
        tenant=tenant,
        session_id=reader,
        declared=declared,
        scope_map=scope_map,
        memory_id=memory_id,
    )


class SharedFolder:
    """Sessions and grants of one folder, and the reads of what is shared in it."""

    def __init__(self, folder: Path, max_wait: timedelta = MAX_WAIT) -> None:
        self.engine = open_engine(folder)
        self.log = SqliteLog(folder / "grants", SystemClock(), topic=GRANTS)
        self.access = Remembered()
        self.branches = RowBranches(self.engine.reading)
        self.folds = GrantFolds(self.log)
        self.reads = SharedReads(
            self.log, self.folds, self.branches, self.access, SystemClock(), max_wait
        )

    def close(self) -> None:
        self.log.close()
        self.engine.close()


def markers(shared: SharedMemory) -> set[str]:
    """Return whose markers a read has returned."""
    return {item.content for item in shared.observations}


class Owner:
    """Writes the grant records of one session, as a gateway does for its owner."""

    def __init__(
        self, log: EntryLog, session_id: str, tenant: str = TENANT, principal: str = "alice"
    ) -> None:
        self.log, self.session_id, self.tenant = log, session_id, tenant
        self.principal, self.n_records = principal, 0

    def take(self) -> Position:
        return self._append({"type": "om.session.owner", "ownerId": self.principal})

    def grant(self, *principals: str, opening: str = "open", scope_id: str = SCOPE) -> Position:
        return self._append(
            {
                "type": "om.scope.granted",
                "scopeId": scope_id,
                "principalIds": list(principals),
                "openingEntryId": opening,
            }
        )

    def revoke(self, *principals: str, scope_id: str = SCOPE) -> Position:
        body: JsonObject = {
            "type": "om.scope.revoked",
            "scopeId": scope_id,
            "principalIds": list(principals),
        }
        return self._append(body)

    def _append(self, data: JsonObject) -> Position:
        self.n_records += 1
        return put(self.log, grant_entry(self, data))


def grant_entry(owner: Owner, data: JsonObject, entry_id: str | None = None) -> Entry:
    """Return a record of the grants topic."""
    return Entry(
        id=entry_id or f"g{owner.n_records}-{owner.principal}",
        session_id=owner.session_id,
        tenant_id=owner.tenant,
        parent_id=None,
        timestamp=AT,
        kind="custom",
        schema_version=1,
        data={**data, "issuedBy": owner.principal},
    )


def put(log: EntryLog, entry: Entry) -> Position:
    key = session_key(entry.tenant_id, entry.session_id)
    (position,) = log.append([Draft(key=key, value=encode(entry))])
    return position
