"""Entries of other times, in the words of today.

A new schema version adds fields with defaults and nothing else; what cannot be said that way gets
a step here. Names of older memory systems are an importer's business: were they read as ours on the
log, anybody could forge memory under an old name.
"""

from typing import Final

import msgspec

from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import (
    FOLDED,
    OBSERVATIONS_DROPPED,
    OBSERVATIONS_RECORDED,
    REFLECTIONS_RECORDED,
)

_OUR_NAMES: Final = {
    "observations_recorded": OBSERVATIONS_RECORDED,
    "reflections_recorded": REFLECTIONS_RECORDED,
    "observations_dropped": OBSERVATIONS_DROPPED,
    "observations.recorded": OBSERVATIONS_RECORDED,
    "reflections.recorded": REFLECTIONS_RECORDED,
    "observations.dropped": OBSERVATIONS_DROPPED,
    "folded": FOLDED,
}


def upcast(entry: Entry) -> Entry:
    """Return ``entry`` as today's schema version would have written it.

    There is one version so far; an entry of a later release is read by the fields we know.
    """
    return entry


def upcast_marker(entry: Entry) -> Entry:
    """Return an imported entry with the old names of its record and payload replaced by ours.

    For importers, before admission (formats.md section 1: markers without ``om.``).
    """
    if not isinstance(entry.data, dict):
        return entry
    data = _renamed(entry.data)
    memory = data.get("memory")
    if isinstance(memory, dict):
        data = {**data, "memory": _renamed(memory)}
    return entry if data == entry.data else msgspec.structs.replace(entry, data=data)


def _renamed(body: JsonObject) -> JsonObject:
    name: JsonValue = body.get("type")
    if isinstance(name, str) and name in _OUR_NAMES:
        return {**body, "type": _OUR_NAMES[name]}
    return body
