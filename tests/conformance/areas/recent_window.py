"""S10."""

import json

from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.window import render_window, window_entries, window_ids

from tests.conformance.cases import Result, UnknownOp, entries_of, ids, number_of, secrets_of


def run(case: JsonObject) -> Result:
    if "entries_json" in case:
        entries = entries_of(json.loads(str(case["entries_json"])))
    else:
        entries = entries_of(case["entries"])
    match case["op"]:
        case "ids":
            return list(window_ids(entries, number_of(case["keepRecentEntries"])))
        case "entries":
            said = case.get("options")
            options = said if isinstance(said, dict) else {}
            keep, budget = options.get("keepRecentEntries"), options.get("maxTokens")
            window = window_entries(
                entries,
                None if keep is None else number_of(keep),
                None if budget is None else number_of(budget),
            )
            return ids(window)
        case "render":
            return render_window(entries, secrets_of(case.get("secrets")))
        case op:
            raise UnknownOp(op)
