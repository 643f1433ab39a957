"""S24: the advisory stands only over memory there is."""

from ombus_schemas.jsontext import JsonObject

from tests.conformance.areas.render import rendered
from tests.conformance.cases import Result, UnknownOp


def run(case: JsonObject) -> Result:
    if case["op"] not in ("render", "render_latest"):
        raise UnknownOp(case["op"])
    return rendered(case, "when_any")
