"""Entries of ``ombus.supervision.events``, with ids that follow from what they say.

Whoever decides twice appends the same id twice; the fold passes over the second by its state.
"""

from typing import Final

import msgspec
from ombus_schemas.bodies import data_of
from ombus_schemas.entries import SCHEMA_VERSION, Entry, Ownership
from ombus_schemas.ids import RUN_ID_DIGITS, hash_parts
from ombus_schemas.supervision import DelegationRequested, SupervisionEvent

SUPERVISOR: Final = "supervisor"
UNSTORABLE: Final = (
    msgspec.MsgspecError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a record raises whose values no row or event can hold: it is passed over, alone."""


def event_id(kind: str, delegation: str, *parts: str | int) -> str:
    """Return the id of the event of ``kind`` (lower-case letters) these parts ask for."""
    digest = hash_parts(kind, delegation, [str(part) for part in parts])
    return f"om:{kind}:{digest[:RUN_ID_DIGITS]}"


def event_entry(
    tenant: str,
    session: str,
    body: SupervisionEvent,
    *,
    id: str,
    timestamp: str,
    ownership: Ownership | None = None,
) -> Entry:
    """Return the entry that carries ``body`` under the key ``tenant``/``session``."""
    return Entry(
        id=id,
        session_id=session,
        tenant_id=tenant,
        parent_id=None,
        timestamp=timestamp,
        kind="event",
        schema_version=SCHEMA_VERSION,
        data=data_of(body),
        ownership=ownership,
    )


def decided(
    tenant: str, session: str, body: SupervisionEvent, timestamp: str, *parts: str | int
) -> Entry:
    """Return an event the supervisor decided: its id is that of its body's name and ``parts``."""
    name = str(type(body).__struct_config__.tag)
    id = event_id(SUPERVISOR, body.delegation_id, name, session, *parts)
    return event_entry(tenant, session, body, id=id, timestamp=timestamp)


def request_entry(
    tenant: str, session: str, body: DelegationRequested, timestamp: str, ownership: Ownership
) -> Entry:
    """Return the entry of a request; its id is the one the delegation's id is made of."""
    return event_entry(
        tenant,
        session,
        body,
        id=body.request_entry_id,
        timestamp=timestamp,
        ownership=ownership,
    )
