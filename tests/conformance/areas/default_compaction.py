"""S23.1: compaction without memory."""

from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory.summary import MAX_SUMMARY_UNITS, NAME, Compacted, summarise

from tests.conformance.cases import Result, UnknownOp, entries_of, number_of, secrets_of


def run(case: JsonObject) -> Result:
    options, context = case["options"], case["context"]
    if case["op"] != "default_compaction" or not isinstance(options, dict):
        raise UnknownOp(case["op"])
    assert isinstance(context, dict)
    trigger, name, units = (
        context.get("trigger"),
        options.get("name"),
        options.get("maxSummaryChars"),
    )
    compacted = summarise(
        entries_of(context["entries"]),
        keep_of(options, context),
        trigger if isinstance(trigger, str) else None,
        [*secrets_of(options.get("secrets")), *secrets_of(context.get("secrets"))],
        MAX_SUMMARY_UNITS if units is None else int(number_of(units)),
        name if isinstance(name, str) else NAME,
    )
    return compacted_json(compacted, context)


def keep_of(options: JsonObject, context: JsonObject) -> int | float | None:
    """Return how many messages stay: the context's word, then the option's."""
    for said in (context.get("keepRecentEntries"), options.get("keepRecentEntries")):
        if said is not None:
            return number_of(said)
    return None


def compacted_json(compacted: Compacted, context: JsonObject) -> JsonObject:
    """Return the result of a strategy; what the runtime fills in stands as the vectors' words."""
    session_id = context.get("sessionId")
    entry: dict[str, JsonValue] = {
        "sessionId": session_id if isinstance(session_id, str) else "s1",
        "kind": "compaction",
        "summary": compacted.summary,
        "data": compacted.data,
        "id": "<id>",
        "timestamp": "<timestamp>",
    }
    if compacted.parent_id is not None:
        entry["parentId"] = compacted.parent_id
    return {"name": compacted.name, "summary": compacted.summary, "entries": [entry]}
