"""Copies of messages in another session, and the invalidations that follow them (section 10).

A copy says where it comes from, has an id that follows from that, and is a root on the wire: it
hangs where the target stands when it is folded, so that several sources make one conversation there
whatever the order they come in.
"""

from typing import Final

import msgspec

from ombus_schemas.bodies import EntryId, KeyPart, data_of
from ombus_schemas.control import InvalidationOrigin, InvalidationReason, SourcesInvalidated
from ombus_schemas.entries import SCHEMA_VERSION, Entry
from ombus_schemas.ids import hash_parts

COPIED_FROM: Final = "copiedFrom"
"""The member of ``metadata`` that names the source."""
COPY_PREFIX: Final = "copy:"
DERIVED_PREFIX: Final = "derived:"
_DIGITS: Final = 24


class CopiedFrom(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """The entry a copy was made of; in the same tenant."""

    session_id: KeyPart
    entry_id: EntryId


def copy_id(tenant: str, session: str, entry_id: str, target: str) -> str:
    """Return the id of the copy of an entry in ``target``: asking twice asks for the same one."""
    return COPY_PREFIX + hash_parts(tenant, session, entry_id, target)[:_DIGITS]


def copy_of(source: Entry, target: str) -> Entry:
    """Return the copy of a message in the session ``target``; nothing in it depends on when."""
    return Entry(
        id=copy_id(source.tenant_id, source.session_id, source.id, target),
        session_id=target,
        tenant_id=source.tenant_id,
        parent_id=None,
        timestamp=source.timestamp,
        kind="message",
        schema_version=SCHEMA_VERSION,
        message=source.message,
        metadata={COPIED_FROM: {"sessionId": source.session_id, "entryId": source.id}},
        origin="other_session",
        ownership=source.ownership,
    )


def copied_from(entry: Entry) -> CopiedFrom | None:
    """Return where a copy comes from, or ``None`` if the entry is none."""
    if entry.origin != "other_session" or entry.metadata is None:
        return None
    try:
        return msgspec.convert(entry.metadata.get(COPIED_FROM), CopiedFrom)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return None


def derived_invalidation(
    tenant: str,
    session: str,
    entry_id: str,
    reason: InvalidationReason,
    target: str,
    copy_ids: tuple[str, ...],
    timestamp: str,
    *,
    hold: bool = False,
) -> Entry:
    """Return the invalidation of copies in ``target`` that follows one in the source session."""
    named = hash_parts(tenant, session, entry_id, target, copy_ids)[:_DIGITS]
    body = SourcesInvalidated(
        ids=copy_ids,
        reason=reason,
        hold=hold,
        derived_from=InvalidationOrigin(session_id=session, entry_id=entry_id),
    )
    return Entry(
        id=DERIVED_PREFIX + named,
        session_id=target,
        tenant_id=tenant,
        parent_id=None,
        timestamp=timestamp,
        kind="custom",
        schema_version=SCHEMA_VERSION,
        data=data_of(body),
        origin="worker",
        side=True,
    )
