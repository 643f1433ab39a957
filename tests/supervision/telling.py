"""Supervision events for tests: requests and what follows, under one parent session."""

from typing import Any, Final

from ombus_schemas.entries import Entry, Ownership
from ombus_schemas.ids import delegation_id
from ombus_schemas.supervision import DelegationRequested, SupervisionEvent
from ombus_streams.supervision.events import event_entry, request_entry

TENANT: Final = "acme"
PARENT: Final = "boss"
STAMP: Final = "2026-11-29T10:00:00.000Z"
OWNER: Final = Ownership(account_id="acme")


def request(
    n: int = 1, child_id: str = "scout", session: str = PARENT, **said: Any
) -> DelegationRequested:
    """Return request number ``n`` of a session."""
    asked = f"ask-{n}"
    return DelegationRequested(
        child_id=child_id,
        delegation_id=delegation_id(TENANT, session, asked),
        request_entry_id=asked,
        **{"input": "look around", **said},
    )


def entry_of(body: SupervisionEvent, session: str = PARENT, tenant: str = TENANT) -> Entry:
    """Return the entry that carries ``body``."""
    if isinstance(body, DelegationRequested):
        return request_entry(tenant, session, body, STAMP, OWNER)
    return event_entry(tenant, session, body, id="any", timestamp=STAMP)
