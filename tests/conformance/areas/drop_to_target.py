"""S15, the pool without a model."""

from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.payload import drop_to_target

from tests.conformance.cases import Result, UnknownOp, number_of, observations_in


def run(case: JsonObject) -> Result:
    if case["op"] != "drop_to_target":
        raise UnknownOp(case["op"])
    observations = observations_in(case["observations"])
    return list(drop_to_target(observations, number_of(case["targetTokens"])))
