"""S24: the newest level, which keeps what is not observed yet."""

from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.compaction import LATEST

from tests.conformance.areas.strategy import compacted
from tests.conformance.cases import Result, UnknownOp


def run(case: JsonObject) -> Result:
    if case["op"] not in ("strategy", "strategy_latest"):
        raise UnknownOp(case["op"])
    return compacted(case, LATEST)
