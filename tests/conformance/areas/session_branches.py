"""S1."""

from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory.branches import branch, branches, rebuild

from tests.conformance.cases import Result, UnknownOp, entries_of, ids


def run(case: JsonObject) -> Result:
    entries = entries_of(case["entries"])
    asked = case.get("leafId")
    leaf_id = asked if isinstance(asked, str) else None
    match case["op"]:
        case "branch":
            return ids(branch(entries, leaf_id))
        case "list":
            return [{"leafId": one.leaf_id, "ids": ids(one.entries)} for one in branches(entries)]
        case "rebuild":
            rebuilt = rebuild(entries, leaf_id)
            return {
                "leafId": rebuilt.leaf_id,
                "ids": ids(rebuilt.branch),
                "messages": [_shown(entry) for entry in rebuilt.messages],
                "summaries": list(rebuilt.summaries),
            }
        case op:
            raise UnknownOp(op)


def _shown(entry: Entry) -> JsonValue:
    """Return a message as the vectors reduce it: the first block's text, else its type."""
    blocks = entry.message.content if entry.message is not None else []
    if not blocks:
        return None
    text = blocks[0].get("text")
    return blocks[0].get("type") if text is None else text
