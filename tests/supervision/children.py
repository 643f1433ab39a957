"""Sessions of children as they come onto the log, and what their parents hear of them."""

from collections.abc import Sequence

import msgspec
from ombus_schemas.bodies import data_of
from ombus_schemas.entries import Entry, Message
from ombus_schemas.ids import delegation_id
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.supervision import (
    DELEGATION_KEY,
    Delegation,
    Report,
    ReportPolicy,
    SupervisionEvent,
    supervision_event_of,
)

TENANT, PARENT, CHILD = "acme", "parent", "researcher"
AT = "2026-11-29T10:00:00.000Z"


def delegation(
    report: Report = "milestones",
    *,
    parent: str = PARENT,
    request: str = "ask-1",
    every: int | None = None,
    when: tuple[str, ...] = (),
    **limits: int,
) -> Delegation:
    return Delegation(
        parent_session_id=parent,
        delegation_id=delegation_id(TENANT, parent, request),
        child_id=CHILD,
        policy=ReportPolicy(report=report, every_turns=every, when=when),
        limits=limits,
    )


def first(said: Delegation, text: str = "find it") -> Entry:
    """Return the first entry of the child's session."""
    metadata: JsonObject = {DELEGATION_KEY: msgspec.to_builtins(said)}
    entry = spoken(said, "e0", "user", {"type": "text", "text": text})
    return msgspec.structs.replace(entry, parent_id=None, metadata=metadata)


def spoken(said: Delegation, entry_id: str, role: str, *blocks: JsonObject) -> Entry:
    return Entry(
        id=entry_id,
        session_id=f"{said.delegation_id}-session",
        tenant_id=TENANT,
        parent_id="e0",
        timestamp=AT,
        kind="message",
        schema_version=1,
        message=Message(role=role, content=list(blocks)),
    )


def told(said: Delegation, entry_id: str, name: str, **members: str | int) -> Entry:
    """Return an event of the child's own agent."""
    return Entry(
        id=entry_id,
        session_id=f"{said.delegation_id}-session",
        tenant_id=TENANT,
        parent_id="e0",
        timestamp=AT,
        kind="event",
        schema_version=1,
        event={"type": name, **members},
    )


def call(call_id: str, name: str = "bash", **arguments: str) -> JsonObject:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": {**arguments}}


def result(call_id: str, name: str = "bash", **outcome: str) -> JsonObject:
    return {"type": "tool_result", "toolCallId": call_id, "name": name, **outcome}


def invalidated(said: Delegation, entry_id: str, *ids: str) -> Entry:
    entry = told(said, entry_id, "none")
    data: JsonObject = {"type": "om.sources.invalidated", "ids": [*ids], "reason": "revoked"}
    return msgspec.structs.replace(entry, kind="custom", event=None, data=data, side=True)


def bodies(entries: Sequence[Entry]) -> list[SupervisionEvent]:
    """Return what entries of the supervision topic say."""
    found = [supervision_event_of(entry) for entry in entries]
    assert None not in found
    return [body for body in found if body is not None]


def brief(body: SupervisionEvent) -> str:
    """Return an event in a few words: ``tool_execution_started bash``, ``coalesced 3``."""
    said = data_of(body)
    event = said.get("childEvent")
    if isinstance(event, dict):
        words = [event["type"], event.get("toolName", event.get("turn"))]
        return " ".join(str(word) for word in words if word is not None)
    name = str(said["type"]).removeprefix("delegation_child_events_")
    if name == "closed":
        return "closed {offered}={delivered}+{coalesced}+{capped}".format(**said)
    return f"{name} {said['dropped']}" if "dropped" in said else name
