"""S14, pages; refusal texts are our own."""

from msgspec import UNSET
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.pages import NoPage, page, page_json

from tests.conformance.cases import Result, UnknownOp, entries_of, ids, secrets_of


def run(case: JsonObject) -> Result:
    request = case["request"]
    if case["op"] != "page" or not isinstance(request, dict):
        raise UnknownOp(case["op"])
    answer = page(
        entries_of(case["entries"]),
        request.get("cursor"),
        request.get("limit", UNSET),
        request.get("direction"),
        request.get("detail"),
        secrets_of(case.get("secrets")),
    )
    result = page_json(answer)
    if isinstance(answer, NoPage):
        del result["text"]
    else:
        result["entries"] = ids(answer.entries)
    return result
