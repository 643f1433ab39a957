"""JSON Schema (2020-12) of an entry and of every body, made from the types and what folds demand.

The schemas describe what we write. Readers pass over fields and bodies they do not know, so nothing
forbids additional ones; a body is looked up by ``data.type``, as every fold does it.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from ombus_schemas.admission import KINDS
from ombus_schemas.entries import SCHEMA_VERSION, Entry
from ombus_schemas.facts import FACT_TYPE_BY_NAME
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import (
    FOLDED,
    OBSERVATIONS_DROPPED,
    OBSERVATIONS_RECORDED,
    REFLECTIONS_RECORDED,
    Compaction,
    ObservationsDropped,
    ObservationsRecorded,
    ReflectionsRecorded,
)
from ombus_schemas.supervision import EVENT_TYPE_BY_NAME, Delegation

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def entry_schema() -> JsonObject:
    """Return the schema of entries on the topics of sessions and grants."""
    types: list[type[msgspec.Struct]] = [Entry, Compaction, Delegation, *_BODY_BY_NAME.values()]
    folded = _when("kind", "compaction", {"data": _ref("Compaction")})
    return _schema("ombus session entry", types, [*_when_bodies(_BODY_BY_NAME), folded])


def supervision_schema() -> JsonObject:
    """Return the schema of entries on the topic of supervision events."""
    types: list[type[msgspec.Struct]] = [Entry, *EVENT_TYPE_BY_NAME.values()]
    is_event: JsonObject = {"properties": {"kind": {"const": "event"}}}
    return _schema("ombus supervision event", types, [is_event, *_when_bodies(EVENT_TYPE_BY_NAME)])


_BODY_BY_NAME: Final[Mapping[str, type[msgspec.Struct]]] = {
    OBSERVATIONS_RECORDED: ObservationsRecorded,
    REFLECTIONS_RECORDED: ReflectionsRecorded,
    OBSERVATIONS_DROPPED: ObservationsDropped,
    **FACT_TYPE_BY_NAME,
}
_ENTRY_ID: Final[JsonObject] = {"type": "string", "pattern": "^[!-~]{1,200}$"}
_KEY_PART: Final[JsonObject] = {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"}
_MEMORY_ID: Final[JsonObject] = {"type": "string", "pattern": "^[a-f0-9]{12}$"}
_LINE: Final[JsonObject] = {"type": "string", "pattern": "^[^\\n]+$"}
_COUNT: Final[JsonObject] = {"type": "number", "minimum": 0}

_TIGHTER: Final[Mapping[str, JsonObject]] = {
    "Entry": {
        "id": _ENTRY_ID,
        "sessionId": _KEY_PART,
        "tenantId": _KEY_PART,
        "parentId": {"anyOf": [_ENTRY_ID, {"type": "null"}]},
        "kind": {"type": "string", "examples": list(KINDS)},
        "schemaVersion": {"type": "integer", "minimum": 1},
        "event": {},
        "data": {},
    },
    "Observation": {"id": _MEMORY_ID, "content": _LINE, "tokenCount": _COUNT},
    "Reflection": {
        "id": _MEMORY_ID,
        "content": _LINE,
        "tokenCount": _COUNT,
        "supportingObservationIds": {"type": "array", "items": _MEMORY_ID},
    },
    "Compaction": {"throughEntryId": _ENTRY_ID},
    "ObservationsRecorded": {"coversUpToId": _ENTRY_ID},
    "ReflectionsRecorded": {"coversUpToId": _ENTRY_ID},
    "ObservationsDropped": {
        "coversUpToId": _ENTRY_ID,
        "observationIds": {"type": "array", "items": _MEMORY_ID},
    },
}
"""What a fold or admission demands beyond the Python type."""
_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "Entry": ("id", "sessionId", "tenantId", "parentId", "kind", "schemaVersion"),
    "ObservationsRecorded": ("type", "observations"),
    "ReflectionsRecorded": ("type", "reflections"),
    "ObservationsDropped": ("type", "observationIds"),
    "FoldedMemory": ("type", "version", "fullFold", "observations", "reflections"),
}
_CONSTANTS: Final[Mapping[str, JsonObject]] = {
    "ObservationsRecorded": {"type": {"const": OBSERVATIONS_RECORDED}},
    "ReflectionsRecorded": {"type": {"const": REFLECTIONS_RECORDED}},
    "ObservationsDropped": {"type": {"const": OBSERVATIONS_DROPPED}},
    "FoldedMemory": {"type": {"const": FOLDED}, "version": {"const": 1}},
}
"""Members that stand on the wire and in no Python field."""


def _schema(
    title: str, types: list[type[msgspec.Struct]], conditions: list[JsonValue]
) -> JsonObject:
    _, components = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    return {
        "$schema": DIALECT,
        "title": title,
        "description": f"Schema version {SCHEMA_VERSION}. Unknown fields and bodies are legal.",
        "$ref": "#/$defs/Entry",
        "allOf": conditions,
        "$defs": {name: _published(name, components[name]) for name in sorted(components)},
    }


def _when_bodies(body_by_name: Mapping[str, type[msgspec.Struct]]) -> list[JsonValue]:
    return [
        {
            "if": {"properties": {"data": _named(name)}, "required": ["data"]},
            "then": {"properties": {"data": _ref(body_by_name[name].__name__)}},
        }
        for name in sorted(body_by_name)
    ]


def _named(name: str) -> JsonObject:
    return {"type": "object", "properties": {"type": {"const": name}}, "required": ["type"]}


def _when(field: str, value: str, then: JsonObject) -> JsonObject:
    return {
        "if": {"properties": {field: {"const": value}}, "required": [field]},
        "then": {"properties": then},
    }


def _ref(definition: str) -> JsonObject:
    return {"$ref": f"#/$defs/{definition}"}


def _published(name: str, component: JsonObject) -> JsonObject:
    """Return the component as it stands on the wire: constants in, Python's bookkeeping out."""
    members = {**_CONSTANTS.get(name, {}), **_object(component.get("properties"))}
    members.pop("extra", None)
    tighter = _TIGHTER.get(name, {})
    description = component.get("description")
    first = description.split("\n\n")[0] if isinstance(description, str) else ""
    required: JsonValue = component.get("required", [])
    return {
        "title": name,
        "description": " ".join(first.split()),
        "type": "object",
        "properties": {
            key: tighter.get(key, _without_null_default(_object(value)))
            for key, value in members.items()
        },
        "required": list(_REQUIRED[name]) if name in _REQUIRED else required,
    }


def _without_null_default(value: JsonObject) -> JsonObject:
    return {key: item for key, item in value.items() if key != "default" or item is not None}


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}
