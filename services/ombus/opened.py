"""Where a session stands, for whoever appends to its log without folding it."""

import uuid
from datetime import datetime
from typing import Final

import msgspec
from ombus_schemas.admission import Policy, admit
from ombus_schemas.api import BranchesAnswer
from ombus_schemas.codec import decode_record
from ombus_schemas.entries import SCHEMA_VERSION, Entry
from ombus_schemas.errors import BadRecord
from ombus_schemas.route import PREFIX
from ombus_streams.runtime.ports import EntryLog, Position
from ombus_streams.runtime.records import iso

from ombus.client.calls import error_of
from ombus.client.errors import NotFound
from ombus.client.transport import Transport
from ombus.memory_settings import opening
from ombus.settings import ProcessSettings

_IDS: Final = uuid.UUID("0b6f9e0c-6f0e-5a53-9d0b-3c5a1f6f0a11")
"""Of settings entries: what is written twice has one id."""
_NO_LEAF: Final = "no_leaf"


class Newest(msgspec.Struct, frozen=True):
    """The newest chain entry of a session."""

    id: str | None
    is_new: bool
    """Nothing of the session is on the log."""


async def newest_at(gateway: Transport, session: str, end: Position) -> Newest:
    """Return the default leaf once everything before ``end`` is folded.

    Raises:
        OmbusError: as the gateway said; ``Retryable`` while it is away.
    """
    last = Position(end.incarnation, end.partition, end.offset - 1)
    path = f"{PREFIX}/sessions/{session}/branches"
    reply = await gateway.request("GET", path, {"atLeast": str(last)}, None)
    if reply.status != 200:
        error = error_of(reply)
        if not isinstance(error, NotFound):
            raise error
        return Newest(None, error.code != _NO_LEAF)
    branches = msgspec.json.decode(reply.body, type=BranchesAnswer).branches
    leaf = next((each.leaf for each in branches if each.is_default), None)
    return Newest(leaf, False)


def newest_on(log: EntryLog, key: bytes) -> Newest:
    """Return the last chain entry on the log: the whole partition is read. Blocks."""
    seen, newest = set[str](), None
    for record in log.of_key(key):
        try:
            entry = decode_record(record.key, record.value)
        except BadRecord:
            continue
        if entry.id not in seen and not entry.side:
            newest = entry.id
        seen.add(entry.id)
    return Newest(newest, not seen)


def settings_entry(key: bytes, settings: ProcessSettings, now: datetime) -> Entry | None:
    """Return what says the memory settings of a session that begins; ``None``: the defaults hold.

    It stands before the first entry, as a gateway would write it.
    """
    said = opening(settings.memory_said, {})
    if said is None:
        return None
    tenant, _, session = key.decode().partition("/")
    name = key.decode() + msgspec.json.encode(said, order="sorted").decode()
    return admit(
        Entry(
            id=f"settings.changed:{uuid.uuid5(_IDS, name).hex}",
            session_id=session,
            tenant_id=tenant,
            parent_id=None,
            timestamp=iso(now),
            kind="custom",
            schema_version=SCHEMA_VERSION,
            data={"type": "om.settings.changed", "settings": said},
            side=True,
        ),
        Policy(role="owner", secrets=settings.secrets),
    )
