"""Reading fields of foreign objects: what is not of the expected type is absent."""

from collections.abc import Iterator

from ombus_schemas.jsontext import JsonObject, JsonValue


def text_of(holder: JsonObject, *names: str) -> str:
    """Return the first of ``names`` that is a non-empty string, else the empty string."""
    for name in names:
        value = holder.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def object_of(holder: JsonObject, name: str) -> JsonObject:
    """Return the object under ``name``, else an empty one."""
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def objects(value: JsonValue) -> Iterator[JsonObject]:
    """Yield the objects in a list."""
    if isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield item


def flag(holder: JsonObject, name: str) -> bool:
    """Say whether ``name`` is exactly true."""
    return holder.get(name) is True
