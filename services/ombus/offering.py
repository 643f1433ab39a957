"""An entry as it is offered: what a host left out is filled in, before admission looks at it."""

import uuid
from datetime import datetime
from typing import Final

from ombus_schemas.errors import Rejected
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.runtime.records import iso

_AROUND: Final = (
    "id", "sessionId", "tenantId", "parentId", "timestamp", "runId", "metadata", "origin",
    "expectedLeaf",
)  # fmt: skip


def offered(value: JsonObject, tenant: str, session: str, now: datetime) -> JsonObject:
    """Return an entry of this session with an id and a time; a bare message becomes an entry.

    Raises:
        Rejected: a bare message without content, which is a slip: its text would be lost.
    """
    if "kind" not in value and "role" in value:
        if "content" not in value:
            named = value.get("id")
            entry_id = named if isinstance(named, str) else ""
            raise Rejected("schema", entry_id, "the message", "has no content")
        message: JsonValue = {key: item for key, item in value.items() if key not in _AROUND}
        around = {key: item for key, item in value.items() if key in _AROUND}
        value = {**around, "kind": "message", "message": message}
    filled: JsonObject = {
        "id": uuid.uuid4().hex,
        "sessionId": session,
        "tenantId": tenant,
        "timestamp": iso(now),
    }
    return {**filled, **value}
