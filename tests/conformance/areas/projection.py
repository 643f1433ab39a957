"""S8."""

from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import FoldedMemory, folded_of, observation_json, reflection_json
from ombus_streams.memory.projection import folded_json, project

from tests.conformance.areas.fold import ledger_json
from tests.conformance.cases import Result, UnknownOp, entries_of, strings_of


def run(case: JsonObject) -> Result:
    boundary = case.get("firstKeptEntryId")
    entries = entries_of(case["entries"])
    projection = project(
        entries,
        boundary if isinstance(boundary, str) else None,
        frozenset(strings_of(case.get("invalidatedIds"))),
    )
    match case["op"]:
        case "projection":
            result: JsonObject = {
                "full": ledger_json(projection.full),
                "observations": [observation_json(item) for item in projection.observations],
                "reflections": [reflection_json(item) for item in projection.reflections],
                "droppedObservationIds": list(projection.dropped_ids),
            }
            if projection.folded is not None:
                result["folded"] = _payload_as_recorded(entries, projection.folded)
            return result
        case "folded_details":
            return folded_json(
                case["fullFold"] is True,
                projection.observations,
                projection.reflections,
                projection.dropped_ids,
            )
        case op:
            raise UnknownOp(op)


def _payload_as_recorded(entries: list[Entry], folded: FoldedMemory) -> JsonValue:
    """Return the recorded object of ``folded``, items that do not count included."""
    for entry in reversed(entries):
        if folded_of(entry) == folded and isinstance(entry.data, dict):
            return entry.data["memory"]
    raise AssertionError("the projection names a payload that no entry carries")
