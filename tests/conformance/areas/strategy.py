"""S13 as the seed documents have it: the reference's rules are asked for by options."""

import msgspec
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory.compaction import SEED, Refused, Strategy, compact
from ombus_streams.memory.errors import MemoryFault

from tests.conformance.areas.default_compaction import compacted_json, keep_of
from tests.conformance.cases import Result, UnknownOp, entries_of, number_of, secrets_of


class Aborted(MemoryFault):
    """The caller gave up before the strategy ran."""


def run(case: JsonObject) -> Result:
    if case["op"] != "strategy":
        raise UnknownOp(case["op"])
    return compacted(case, SEED)


def compacted(case: JsonObject, level: Strategy) -> Result:
    """Return what the strategy makes of a case's context at a level of the reference."""
    options, context = _object(case.get("options")), _object(case.get("context"))
    signal = _object(context.get("signal"))
    if signal.get("aborted") is True:
        raise Aborted(str(signal.get("reason", "the compaction was aborted")))
    trigger, name = context.get("trigger"), options.get("name")
    pool_max = options.get("observationsPoolMaxTokens")
    strategy = msgspec.structs.replace(
        level,
        name=name if isinstance(name, str) else level.name,
        pool_max_tokens=level.pool_max_tokens if pool_max is None else number_of(pool_max),
    )
    result = compact(
        entries_of(context["entries"]),
        keep_of(options, context),
        trigger if isinstance(trigger, str) else None,
        [*secrets_of(options.get("secrets")), *secrets_of(context.get("secrets"))],
        strategy=strategy,
    )
    assert not isinstance(result, Refused), "the reference never refuses"
    return compacted_json(result, context)


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}
