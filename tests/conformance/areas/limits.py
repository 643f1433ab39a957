"""``limits``: sizes, joins, cuts, page limits and redaction at the edge (S9, S15, S17)."""

from msgspec import UNSET
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.redact import redact
from ombus_streams.runtime.limits import join, measure, page_limit, truncate

from tests.conformance.cases import UNDEFINED, Result, UnknownOp, number_of, secrets_of, strings_of


def run(case: JsonObject) -> Result:
    """Run one call."""
    label = str(case.get("label"))
    match case["op"]:
        case "measure":
            return measure(case.get("value", UNSET), _max_bytes(case), label)
        case "join":
            return join(strings_of(case["parts"]), _max_bytes(case), label)
        case "truncate":
            return truncate(str(case["text"]), _max_bytes(case))
        case "page_limit":
            return page_limit(case.get("limit", UNSET))
        case "redact":
            if "value" not in case:
                return UNDEFINED
            return redact(case["value"], secrets_of(case["secrets"]))
        case op:
            raise UnknownOp(op)


def _max_bytes(case: JsonObject) -> int:
    return int(number_of(case["maxBytes"]))
