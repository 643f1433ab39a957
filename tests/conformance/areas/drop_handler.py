"""S20."""

from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.tombstones import tombstone

from tests.conformance.cases import Result, UnknownOp, entries_of, strings_of


def run(case: JsonObject) -> Result:
    if case["op"] != "drop_handler":
        raise UnknownOp(case["op"])
    entries = entries_of(case["entries"])
    record = tombstone(entries, strings_of(case["ids"]))
    if record is None:
        return {"count": 0, "appended": []}
    gone, leaf = record["observationIds"], entries[-1].id
    assert isinstance(gone, list)
    appended: JsonObject = {
        "kind": "custom",
        "parent": leaf,
        "expectedParentId": leaf,
        "data": record,
    }
    return {"count": len(gone), "appended": [appended]}
