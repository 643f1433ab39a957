"""A well-formed request for any route of the table, also for those that come later."""

import re
from collections.abc import Mapping
from typing import Any

import httpx
import msgspec
from ombus_schemas.route import Route

from tests.gateway.serving import Running

PARTS: Mapping[str, str] = {"memory": "0123456789ab"}
"""Parts of a path whose form is more than a short name."""


def ask(
    served: Running, route: Route, session: str, token: str | None, part: str | None = None
) -> httpx.Response:
    """Ask a route about ``session``; ``part`` stands for what else its path names."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    params = {each.name: "m1" for each in route.params if each.required}
    body = None if route.body is None else _minimal(route.body)
    path = path_of(route, session, part)
    with served.http.stream(
        route.method, path, params=params, json=body, headers=headers
    ) as answer:
        if answer.status_code != 200 or not route.streams:
            answer.read()
        return answer


def path_of(route: Route, session: str, part: str | None = None) -> str:
    """Return the route's path with its names filled in."""

    def filled(found: re.Match[str]) -> str:
        name = found.group(1)
        return session if name == "session" else part or PARTS.get(name, "p1")

    return re.sub(r"\{(\w+)\}", filled, route.path)


def _minimal(kind: type[msgspec.Struct]) -> Any:
    """Return a body with what the schema requires and nothing else."""
    (schema,), components = msgspec.json.schema_components([kind], ref_template="{name}")
    return _example(schema, components)


def _example(schema: Mapping[str, Any], components: Mapping[str, Any]) -> Any:
    if "$ref" in schema:
        return _example(components[schema["$ref"]], components)
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return _example(schema["anyOf"][0], components)
    match schema.get("type"):
        case "object":
            known = schema.get("properties", {})
            return {name: _example(known[name], components) for name in schema.get("required", ())}
        case "array":
            return [_example(schema["items"], components)] if schema.get("items") else []
        case "integer" | "number":
            return 1
        case "boolean":
            return False
        case _:
            return "x"
