"""S17, and the worker limits of S15. Settings the reference does not have are left out."""

from msgspec import to_builtins
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.resolution import composed_overrides, resolve_settings, resolve_worker_limits
from ombus_schemas.settings import settings_json

from tests.conformance.cases import Result, UnknownOp


def run(case: JsonObject) -> Result:
    match case["op"]:
        case "settings":
            return settings_json(
                resolve_settings(_object(case.get("provider")), _object(case.get("overrides")))
            )
        case "composed_settings":
            overrides = composed_overrides(_object(case.get("options")) or {})
            return settings_json(resolve_settings(_object(case.get("provider")), overrides))
        case "worker_limits":
            limits: JsonObject = to_builtins(resolve_worker_limits(_object(case.get("input"))))
            return limits
        case op:
            raise UnknownOp(op)


def _object(value: JsonValue) -> JsonObject | None:
    return value if isinstance(value, dict) else None
