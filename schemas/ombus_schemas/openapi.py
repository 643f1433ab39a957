"""OpenAPI 3.1 of the HTTP API, from the table of routes and the structs they speak."""

import re
from typing import Final

import msgspec

from ombus_schemas import api
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.problems import STATUS_BY_CODE
from ombus_schemas.route import MAX_NUMBER, Param, Route
from ombus_schemas.routes import ROUTES

VERSION: Final = "1"
_PROBLEM: Final = "application/problem+json"
_IN_PATH: Final = re.compile(r"\{(\w+)\}")
_PATTERN_BY_NAME: Final = {
    "session": "^[A-Za-z0-9._:-]{1,128}$",
    "memory": "^[a-f0-9]{12}$",
    "run": "^[!-~]{1,200}$",
    "delegation": "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$",
    "child": "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$",
}


def document() -> JsonObject:
    """Return the document; the same on every run."""
    types = dict.fromkeys(
        kind for route in ROUTES for kind in (route.answer, route.body) if kind is not None
    )
    _, components = msgspec.json.schema_components(
        [*types, api.Problem], ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, JsonValue] = {}
    for route in ROUTES:
        operations = paths.setdefault(route.path, {})
        assert isinstance(operations, dict)
        operations[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ombus",
            "version": VERSION,
            "description": "Observational memory on the bus. Absent and forbidden are one answer.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {name: _published(components[name]) for name in sorted(components)},
        },
    }


def _operation(route: Route) -> JsonObject:
    parameters: list[JsonValue] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": _PATTERN_BY_NAME[name]},
        }
        for name in _IN_PATH.findall(route.path)
    ]
    parameters += [_parameter(param) for param in route.params]
    if route.streams:
        parameters.append({"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}})
    media = "text/event-stream" if route.streams else "application/json"
    responses: JsonObject = {
        "200": {
            "description": route.meaning,
            "content": {media: {"schema": {"type": "string"} if route.streams else _ref(route)}},
        }
    }
    for status in sorted({status for status, _ in STATUS_BY_CODE.values()}):
        codes = ", ".join(code for code, said in STATUS_BY_CODE.items() if said[0] == status)
        responses[str(status)] = {
            "description": codes,
            "content": {_PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    operation: JsonObject = {
        "operationId": route.name,
        "summary": route.meaning,
        "description": f"Needs one of the roles {', '.join(sorted(route.roles))}.",
        "parameters": parameters,
        "responses": responses,
    }
    if route.body is not None:
        body: JsonObject = {"$ref": f"#/components/schemas/{route.body.__name__}"}
        operation["requestBody"] = {
            "required": any(field.required for field in msgspec.structs.fields(route.body)),
            "content": {"application/json": {"schema": body}},
        }
    return operation


def _parameter(param: Param) -> JsonObject:
    schema: JsonObject = {"type": param.type}
    if param.type in ("integer", "number"):
        schema["minimum"] = -MAX_NUMBER if param.minimum is None else param.minimum
        schema["maximum"] = MAX_NUMBER
    if param.pattern is not None:
        schema["pattern"] = param.pattern
    if param.one_of:
        schema["enum"] = list(param.one_of)
    return {
        "name": param.name,
        "in": "query",
        "required": param.required,
        "description": param.meaning,
        "schema": schema,
    }


def _ref(route: Route) -> JsonObject:
    return {"$ref": f"#/components/schemas/{route.answer.__name__}"}


def _published(component: JsonObject) -> JsonObject:
    """Return the component with the first sentence of its description."""
    said = component.get("description")
    first = said.split("\n\n")[0] if isinstance(said, str) else ""
    return {**component, "description": " ".join(first.split())}
