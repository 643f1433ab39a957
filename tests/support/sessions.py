"""Entries of a session as clients, hosts, importers and workers put them on the log."""

from ombus_schemas.entries import Entry, Message, Origin
from ombus_schemas.ids import observation_id, reflection_id
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import Relevance

AT = "2026-02-03T04:05:06.000Z"
TENANT, SESSION = "t", "s"


def chat(
    entry_id: str,
    parent: str | None,
    text: str | None = None,
    *,
    role: str = "user",
    tokens: int | None = None,
    origin: Origin | None = None,
    expected_leaf: str | None = None,
    blocks: tuple[JsonObject, ...] = (),
) -> Entry:
    """Return a message that holds the marker of its id; ``tokens`` is about what it weighs."""
    said = f"mark-{entry_id}. " + (text or "")
    if tokens is not None:
        said += "x" * (tokens * 4 - len(said) - len('{"type":"text","text":""}'))
    content: list[JsonObject] = [{"type": "text", "text": said}, *blocks]
    return Entry(
        id=entry_id,
        session_id=SESSION,
        tenant_id=TENANT,
        parent_id=parent,
        timestamp=AT,
        kind="message",
        schema_version=1,
        message=Message(role=role, content=content),
        origin=origin,
        expected_leaf=expected_leaf,
    )


def custom(
    entry_id: str,
    parent: str | None,
    data: JsonValue,
    *,
    side: bool = True,
    kind: str = "custom",
    summary: str | None = None,
    origin: Origin | None = None,
) -> Entry:
    """Return an entry that carries ``data``: a side record, if not said otherwise."""
    return Entry(
        id=entry_id,
        session_id=SESSION,
        tenant_id=TENANT,
        parent_id=parent,
        timestamp=AT,
        kind=kind,
        schema_version=1,
        data=data,
        side=side,
        summary=summary,
        origin=origin,
    )


def fact(entry_id: str, anchor: str | None, name: str, **fields: JsonValue) -> Entry:
    """Return a control record: ``name`` is its type without ``om.``."""
    return custom(entry_id, anchor, {"type": f"om.{name}", **fields})


def settings(
    entry_id: str,
    anchor: str | None,
    *,
    observe: int = 10_000,
    reflect: int = 20_000,
    compact: int = 81_000,
    recent: int = 8,
    pool: int = 20_000,
    target: int = 10_000,
    chunk: int | None = None,
    policy: str = "model",
    passive: bool = False,
) -> Entry:
    """Return the settings of a session, small enough for a test to reach."""
    body: JsonObject = {
        "observation": {"messageTokens": observe},
        "reflection": {"observationTokens": reflect},
        "context": {
            "recentMessages": recent,
            "compactAfterTokens": compact,
            "observationsPoolMaxTokens": pool,
            "observationsPoolTargetTokens": target,
        },
        "dropper": {"targetTokens": target, "policy": policy},
        "passive": passive,
    }
    if chunk is not None:
        body["observerChunkMaxTokens"] = chunk
    return fact(entry_id, anchor, "settings.changed", settings=body)


def observed(
    content: str,
    *sources: str,
    relevance: Relevance = "medium",
    tokens: float = 5,
) -> JsonObject:
    """Return an observation as a record lists it."""
    return {
        "id": observation_id(content, sources),
        "content": content,
        "timestamp": AT,
        "relevance": relevance,
        "sourceEntryIds": list(sources),
        "tokenCount": tokens,
    }


def reflected(content: str, *supports: str, tokens: int = 5) -> JsonObject:
    """Return a reflection as a record lists it."""
    return {
        "id": reflection_id(content, supports),
        "content": content,
        "supportingObservationIds": list(supports),
        "tokenCount": tokens,
    }


def observations(*items: JsonObject, covers: str | None, **fields: JsonValue) -> JsonObject:
    """Return the body of an observer's record; give ``base`` for one of ours."""
    body: JsonObject = {"type": "om.observations.recorded", "observations": list(items), **fields}
    return body if covers is None else {**body, "coversUpToId": covers}


def reflections(*items: JsonObject, **fields: JsonValue) -> JsonObject:
    return {"type": "om.reflections.recorded", "reflections": list(items), **fields}


def drops(*ids: JsonValue, **fields: JsonValue) -> JsonObject:
    return {"type": "om.observations.dropped", "observationIds": list(ids), **fields}


def payload(
    *items: JsonObject, reflections: tuple[JsonObject, ...] = (), dropped: tuple[str, ...] = ()
) -> JsonObject:
    """Return the ``memory`` of a compaction."""
    return {
        "type": "om.folded",
        "version": 1,
        "fullFold": False,
        "observations": list(items),
        "reflections": list(reflections),
        "droppedObservationIds": list(dropped),
    }


def compaction(entry_id: str, parent: str | None, data: JsonObject, *, side: bool = True) -> Entry:
    return custom(entry_id, parent, data, side=side, kind="compaction", summary="# folded")
