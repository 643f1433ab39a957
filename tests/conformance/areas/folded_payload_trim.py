"""S12."""

from ombus_schemas.jsontext import JsonObject
from ombus_schemas.records import reflection_json
from ombus_streams.memory.payload import bound

from tests.conformance.cases import (
    Result,
    UnknownOp,
    ids,
    number_of,
    observations_in,
    reflections_in,
    strings_of,
)


def run(case: JsonObject) -> Result:
    match case["op"]:
        case "bound":
            bounded = bound(
                observations_in(case["observations"]),
                reflections_in(case["reflections"]),
                strings_of(case["droppedObservationIds"]),
                number_of(case["maxObservationTokens"]),
                number_of(case["maxPayloadBytes"]),
            )
            return {
                "observations": ids(bounded.observations),
                "reflections": [reflection_json(item) for item in bounded.reflections],
                "droppedObservationIds": list(bounded.dropped_ids),
                "fullFold": bounded.full_fold,
            }
        case op:
            raise UnknownOp(op)
