"""S18: the scope map and the grants. The ``*_generated`` ops say how their records are made."""

from collections.abc import Mapping

from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory import grants, scopes

from tests.conformance.cases import Result, UnknownOp, entries_of, number_of, strings_of


def run(case: JsonObject) -> Result:
    match case["op"]:
        case "map":
            return map_json(scopes.fold(entries_of(case["entries"])))
        case "grants":
            return _pairs(grants.fold(entries_of(case["entries"])))
        case "binds_generated":
            return _generated_binds(int(number_of(case["n"])), strings_of(case.get("extra")))
        case "scopes_generated":
            return _summary(
                scopes.fold(
                    _entry({"type": "om.scope.opened", "id": f"s{i}"})
                    for i in range(int(number_of(case["n"])))
                )
            )
        case "grants_generated":
            return _generated_grants(case["counts"])
        case op:
            raise UnknownOp(op)


def map_json(scope_map: scopes.ScopeMap) -> JsonObject:
    return {
        "scopes": [_scope_json(scope) for scope in scope_map.scopes.values()],
        "binds": _pairs(scope_map.refs_by_scope_id),
        "stack": list(scope_map.stack),
    }


def _scope_json(scope: scopes.Scope) -> JsonObject:
    value: JsonObject = {"id": scope.id}
    for key, text in (("parentId", scope.parent_id), ("kind", scope.kind), ("label", scope.label)):
        if text is not None:
            value[key] = text
    return value | {"status": scope.status}


def _generated_binds(n: int, extra: list[str]) -> JsonObject:
    refs: list[JsonValue] = [f"om:{i:012x}" for i in range(n)]
    records: list[JsonObject] = [
        {"type": "om.scope.opened", "id": "p"},
        {"type": "om.scope.bound", "scopeId": "p", "refs": refs},
        {"type": "om.scope.bound", "scopeId": "p", "refs": list[JsonValue](extra)},
    ]
    return _summary(scopes.fold(_entry(record) for record in records))


def _generated_grants(counts: JsonValue) -> Result:
    assert isinstance(counts, list)
    held = grants.fold(
        _entry(
            {
                "type": "om.scope.granted",
                "scopeId": "p",
                "principalIds": [f"r{r}-{i}" for i in range(int(number_of(n)))],
            }
        )
        for r, n in enumerate(counts)
    )
    return [[scope_id, len(named), named[-1]] for scope_id, named in held.items()]


def _summary(scope_map: scopes.ScopeMap) -> JsonObject:
    return {
        "scopeCount": len(scope_map.scopes),
        "lastScope": list(scope_map.scopes)[-1],
        "bindCounts": [[key, len(refs)] for key, refs in scope_map.refs_by_scope_id.items()],
        "stack": list(scope_map.stack),
    }


def _pairs(held: Mapping[str, tuple[str, ...]]) -> list[JsonValue]:
    return [[key, list(values)] for key, values in held.items()]


def _entry(data: JsonObject) -> Entry:
    return Entry(id="generated", session_id="s1", kind="custom", data=data)
