"""Entries by which an operator steers a session: side records on a leaf, written as its owner."""

import uuid
from collections.abc import Callable

import msgspec
from ombus_schemas.admission import admit
from ombus_schemas.entries import SCHEMA_VERSION, Entry
from ombus_schemas.jsontext import JsonObject
from ombus_streams.runtime.ports import LogRecord, Position
from ombus_streams.runtime.records import iso

from ombus.memory_settings import opening
from ombus.operator.desk import Desk
from ombus.operator.errors import NoLeaf
from ombus.operator.lookup import looking


def control_entry(desk: Desk, key: bytes, parent_id: str | None, body: JsonObject) -> Entry:
    """Return a side record of the session's owner, admitted, with an id of its own."""
    tenant, _, session = key.decode().partition("/")
    name = str(body["type"]).removeprefix("om.")
    return admit(
        Entry(
            id=f"{name}:{uuid.uuid4().hex}",
            session_id=session,
            tenant_id=tenant,
            parent_id=parent_id,
            timestamp=iso(desk.clock.now()),
            kind="custom",
            schema_version=SCHEMA_VERSION,
            data=body,
            side=True,
        ),
        desk.policy("owner"),
    )


def open_session(desk: Desk, key: bytes, leaf_id: str | None = None) -> str | None:
    """Write what the settings files say about memory if the session does not say so already.

    Returns the leaf that work goes on at, ``None`` for a session without entries, where the record
    stands before everything. What is on the log must be folded: catch up first.
    """
    try:
        with looking(desk, key, leaf_id) as lens:
            tip: str | None = lens.leaf.tip_id
            written = lens.leaf.settings
    except NoLeaf:
        if leaf_id is not None:
            raise
        tip, written = None, _written(desk, key)
    settings = opening(desk.settings.memory_said, written)
    if settings is not None:
        body: JsonObject = {"type": "om.settings.changed", "settings": settings}
        desk.append([control_entry(desk, key, tip, body)])
    return tip


def first_after(
    desk: Desk, position: Position, is_wanted: Callable[[Entry], bool], what: str
) -> Entry:
    """Return the first wanted entry after ``position``, once somebody has appended it.

    Raises:
        Unanswered: nothing moved for too long.
    """
    found: list[Entry] = []
    next_offset = position.offset + 1

    def is_there() -> bool:
        nonlocal next_offset
        for record in desk.engine.log.read(position.partition, next_offset, 1_000):
            next_offset = record.offset + 1
            entry = _entry(record)
            if entry is not None and is_wanted(entry):
                found.append(entry)
                return True
        return False

    desk.wait(is_there, what, works=True)
    return found[0]


def _entry(record: LogRecord) -> Entry | None:
    try:
        return msgspec.json.decode(record.value or b"null", type=Entry)
    except msgspec.DecodeError:
        return None


def _written(desk: Desk, key: bytes) -> JsonObject:
    """Return the last settings of a session without chain entries."""
    last: JsonObject = {}
    with desk.engine.reading(key) as live:
        if live.session.is_new:
            # Kafka has no index by key: to look would be to read the whole partition.
            return last
    for record in desk.engine.log.of_key(key):
        entry = _entry(record)
        if entry is not None and entry.data_type == "om.settings.changed":
            assert isinstance(entry.data, dict)
            said = entry.data.get("settings")
            last = said if isinstance(said, dict) else {}
    return last
