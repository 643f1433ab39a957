"""Facts about a session and its log: settings, ownership, invalidated sources, the log itself.

Source: design.md sections 3, 10 and 13.
"""

from typing import Literal

import msgspec

from ombus_schemas.bodies import Body, Count, EntryId, KeyPart, PrincipalId
from ombus_schemas.jsontext import JsonObject, JsonValue

InvalidationReason = Literal["revoked", "corrected", "deleted"]
"""What is ``corrected`` stays readable by recall; the others leave no content anywhere."""


class SettingsChanged(Body, tag="om.settings.changed", kw_only=True, frozen=True):
    """From here on these memory settings hold: all of them, not a difference."""

    settings: JsonObject


class InvalidationOrigin(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """The invalidation in the source session that a derived one follows."""

    session_id: KeyPart
    entry_id: EntryId


class SourcesInvalidated(Body, tag="om.sources.invalidated", kw_only=True, frozen=True):
    """Nothing derived from these entries or memories is shown again, on every leaf."""

    ids: tuple[str, ...]
    """Entry ids and memory ids."""
    reason: InvalidationReason
    hold: bool = False
    """Kept for audit: not to be erased though nobody may read it."""
    derived_from: InvalidationOrigin | None = None
    """Where a copied source was invalidated; absent on an invalidation somebody asked for."""


class SourceLink(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """One entry and its copy."""

    source_id: EntryId
    copy_id: EntryId


class SourcesLinked(Body, tag="om.sources.linked", kw_only=True, frozen=True):
    """A funnel copies these entries to another session of the tenant.

    It stands in the source session, before the copies, so that an invalidation in either order
    reaches them (design.md section 10).
    """

    target_session_id: KeyPart
    links: tuple[SourceLink, ...]


class SessionOwner(Body, tag="om.session.owner", kw_only=True, frozen=True):
    """Who owns the session; the first one wins and opens the session's key of the grants topic."""

    owner_id: PrincipalId
    issued_by: PrincipalId | None = None
    """Stamped by the gateway, never by the caller."""


class SessionErased(Body, tag="om.session.erased", kw_only=True, frozen=True):
    """Reserved: the session folds to an empty head, then its key goes."""


class SessionArchived(Body, tag="om.session.archived", kw_only=True, frozen=True):
    """The session's rows lie in the checkpoint store; the next touch brings them back."""


class LogCreated(Body, tag="om.log.created", kw_only=True, frozen=True):
    """First record of every partition: the identity positions are checked against."""

    cluster: str
    topic: str
    partition: Count
    incarnation: str


def invalidation_of(data: JsonObject) -> SourcesInvalidated | None:
    """Return the invalidation in ``data``, read so that no doubt leaves anything readable.

    An unknown reason counts as ``revoked`` and what is no string among the ids is passed over: an
    access decision that cannot be read must not fold to nothing.
    """
    ids = data.get("ids")
    if not isinstance(ids, list):
        return None
    return SourcesInvalidated(
        ids=tuple(item for item in ids if isinstance(item, str)),
        reason=reason_of(data.get("reason")),
        hold=data.get("hold") is True,
        derived_from=_origin(data.get("derivedFrom")),
    )


def reason_of(value: JsonValue) -> InvalidationReason:
    """Return the reason that ``value`` is; what is none counts as ``revoked``."""
    match value:
        case "corrected":
            return "corrected"
        case "deleted":
            return "deleted"
        case _:
            return "revoked"


def _origin(value: JsonValue) -> InvalidationOrigin | None:
    try:
        return msgspec.convert(value, InvalidationOrigin)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return None
