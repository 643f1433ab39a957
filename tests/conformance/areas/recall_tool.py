"""S22: the recall tool. Failure texts are our own words (design.md section 12, row 9)."""

from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory.recall_tool import NAME, Answer, answer, request_of

from tests.conformance.cases import ERROR, Result, UnknownOp, entries_of, secrets_of


def run(case: JsonObject) -> Result:
    options, args = case.get("options"), case.get("args")
    if case["op"] != "recall_tool" or not isinstance(options, dict):
        raise UnknownOp(case["op"])
    name, secrets = options.get("name"), secrets_of(options.get("secrets"))
    request = request_of(
        args if isinstance(args, dict) else {},
        str(case["sessionId"]),
        options.get("pageLimit"),
        secrets,
    )
    n_fetched = 0
    if not isinstance(request, Answer):
        n_fetched = 1
        request = answer(request, entries_of(case["entries"]), secrets)
    return {
        "getEntriesCalls": n_fetched,
        "result": {
            "toolCallId": "tc1",
            "name": name if isinstance(name, str) else NAME,
            **_shown(request),
        },
    }


def _shown(given: Answer) -> JsonObject:
    value = dict(given.value)
    text = given.text
    if value.get("found") is False:
        del value["text"]
        text = ERROR
    for key in ("sourceEntries", "entries"):
        held = value.get(key)
        if isinstance(held, list):
            value[key] = [entry["id"] for entry in held if isinstance(entry, dict)]
    content: JsonValue = [{"type": "text", "text": text}]
    return {"value": value, "content": content}
