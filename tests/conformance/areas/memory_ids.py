"""S4."""

from typing import cast

from ombus_schemas.ids import memory_id
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import is_memory_id

from tests.conformance.cases import Result, UnknownOp


def run(case: JsonObject) -> Result:
    match case["op"]:
        case "create":
            return memory_id(cast("list[JsonValue]", case["parts"]))
        case "is":
            return is_memory_id(case.get("value"))
        case op:
            raise UnknownOp(op)
