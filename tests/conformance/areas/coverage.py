"""S7."""

from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.coverage import (
    eligible_sources,
    is_eligible,
    tier,
    uncovered_observations,
    unscanned,
)

from tests.conformance.cases import Result, UnknownOp, entries_of, entry_of, ids, number_of


def run(case: JsonObject) -> Result:
    mark = case.get("latestObservationCoverageId")
    coverage_id = mark if isinstance(mark, str) else None
    match case["op"]:
        case "eligible":
            return is_eligible(entry_of(case["entry"]))
        case "unscanned":
            return ids(unscanned(entries_of(case["entries"]), coverage_id))
        case "eligible_sources" | "sources":
            return ids(eligible_sources(entries_of(case["entries"]), coverage_id))
        case "uncovered":
            rebuild = case.get("fullRebuild") is True
            return ids(uncovered_observations(entries_of(case["entries"]), rebuild))
        case "tier":
            return tier(number_of(case["covered"]), number_of(case["total"]))
        case op:
            raise UnknownOp(op)
