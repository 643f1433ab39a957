"""Session entries as they travel on ``ombus.session.entries``: the envelope.

Decoding is two steps: the envelope here, then the body by ``data.type`` (``records``, ``facts``).
An unknown body is data we do not fold yet, never a decoding failure. Source: design.md section 3.
"""

from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ombus_schemas.jsontext import JsonObject, JsonValue

SCHEMA_VERSION: Final = 1

Origin = Literal["human", "model", "tool", "injected", "summary", "worker", "other_session"]
"""Who spoke. Injected, summary and worker entries are never sources of memory."""


class Message(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, gc=False):
    """One user, assistant, tool or system message; blocks stay as they came."""

    role: str
    content: list[JsonObject] = msgspec.field(default_factory=list)
    id: str | None = None
    metadata: JsonObject | None = None


class Ownership(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """Whose session it is, inside the tenant; stamped by the gateway."""

    account_id: str | None = None
    user_id: str | None = None


class Encryption(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Reserved: the body is unreadable without the named key (design.md section 10)."""

    alg: str
    key_id: str


class Entry(
    msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True, gc=False
):
    """One immutable record of a session; ``id`` is unique within its session."""

    id: str
    session_id: str
    tenant_id: str = ""
    """Empty only in pure functions and vectors; admission refuses it."""
    parent_id: str | None | UnsetType = UNSET
    """Absent: to be filled by admission. ``None``: a root."""
    timestamp: str = ""
    """ISO text, the host's claim: never used for order, thresholds or coverage."""
    kind: str
    schema_version: int = 0
    """Zero is written by nobody: an entry without the field, as in vectors."""
    run_id: str | None = None
    message: Message | None = None
    event: JsonValue = None
    data: JsonValue = None
    summary: str | None = None
    label: str | None = None
    model: JsonObject | None = None
    previous_model: JsonObject | None = None
    metadata: JsonObject | None = None
    origin: Origin | None = None
    ownership: Ownership | None = None
    side: bool = False
    """A side record hangs on a chain entry (its anchor) and is never a leaf."""
    expected_leaf: str | None = None
    enc: Encryption | None = None

    @property
    def parent(self) -> str | None:
        """The parent's id; absent counts as a root, which only happens before admission."""
        return self.parent_id or None

    @property
    def data_type(self) -> str:
        """``data.type`` when ``data`` is an object that names one, else the empty string."""
        if isinstance(self.data, dict):
            name = self.data.get("type")
            if isinstance(name, str):
                return name
        return ""
