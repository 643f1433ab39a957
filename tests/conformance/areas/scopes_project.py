"""S18: what is visible from a scope."""

from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory import ledger, scopes
from ombus_streams.memory.scope_projection import project_scopes

from tests.conformance.cases import Result, UnknownOp, entries_of, ids


def run(case: JsonObject) -> Result:
    options = case["options"]
    if case["op"] != "project" or not isinstance(options, dict):
        raise UnknownOp(case["op"])
    entries, kinds = entries_of(case["entries"]), options.get("kinds")
    visible = project_scopes(
        ledger.fold(entries),
        scopes.fold(entries),
        str(options.get("from")),
        str(options.get("include")),
        "include" if options.get("closed") == "include" else "hide",
        kinds if isinstance(kinds, list) else None,
    )
    return {
        "observations": ids(visible.observations),
        "reflections": ids(visible.reflections),
        "outline": [
            {"id": line.id} if line.label is None else {"id": line.id, "label": line.label}
            for line in visible.outline
        ],
    }
