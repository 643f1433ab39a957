"""S14, serialised sources."""

from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.serialize import serialize_entries, serialize_entry

from tests.conformance.cases import (
    Result,
    UnknownOp,
    entries_of,
    entry_of,
    number_of,
    secrets_of,
)


def run(case: JsonObject) -> Result:
    secrets = secrets_of(case.get("secrets"))
    cap = case.get("maxBytes")
    max_bytes = None if cap is None else number_of(cap)
    match case["op"]:
        case "serialize_entry":
            return serialize_entry(entry_of(case["entry"]), secrets, max_bytes)
        case "serialize_entries":
            return serialize_entries(entries_of(case["entries"]), secrets, max_bytes)
        case op:
            raise UnknownOp(op)
