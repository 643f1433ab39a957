"""S6."""

from ombus_schemas.jsontext import JsonObject
from ombus_schemas.records import observation_json, reflection_json
from ombus_streams.memory.ledger import Ledger, active, fold

from tests.conformance.cases import Result, UnknownOp, entries_of


def run(case: JsonObject) -> Result:
    match case["op"]:
        case "fold":
            return ledger_json(fold(entries_of(case["entries"])))
        case "active":
            return [observation_json(item) for item in active(fold(entries_of(case["entries"])))]
        case op:
            raise UnknownOp(op)


def ledger_json(ledger: Ledger) -> JsonObject:
    """Return a ledger as the vectors write it."""
    result: JsonObject = {
        "observations": [observation_json(item) for item in ledger.observations],
        "reflections": [reflection_json(item) for item in ledger.reflections],
        "droppedObservationIds": list(ledger.dropped_ids),
    }
    marks = {
        "latestObservationCoverageId": ledger.observation_coverage_id,
        "latestReflectionCoverageId": ledger.reflection_coverage_id,
        "latestDropCoverageId": ledger.drop_coverage_id,
    }
    result.update({name: mark for name, mark in marks.items() if mark is not None})
    return result
