"""S14, by id; failure and revocation texts are our own."""

from typing import cast

from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.recall import NotRecalled, Revoked, recall, recall_json

from tests.conformance.cases import Result, UnknownOp, entries_of, secrets_of, strings_of


def run(case: JsonObject) -> Result:
    if case["op"] != "recall":
        raise UnknownOp(case["op"])
    options = case.get("options")
    invalidated = options.get("invalidatedIds") if isinstance(options, dict) else None
    recalled = recall(
        entries_of(case["entries"]),
        cast("str", case.get("id")),  # any value may be asked for
        secrets_of(case.get("secrets")),
        frozenset(strings_of(invalidated)),
    )
    result = recall_json(recalled)
    if isinstance(recalled, NotRecalled | Revoked):
        del result["text"]
    return result
