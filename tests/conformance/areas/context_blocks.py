"""S11: the reference's window, alignment and pairing (design.md section 12, rows 11, 12, 19)."""

from collections.abc import Sequence
from typing import Literal, TypedDict

from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory.context import Block, blocks

from tests.conformance.cases import (
    Result,
    UnknownOp,
    entries_of,
    number_of,
    secrets_of,
    strings_of,
)


class ReferenceOptions(TypedDict):
    """Keywords of ``blocks`` that ask for the reference's rule."""

    keep_recent: float | None
    max_tokens: float | None
    secrets: list[str]
    invalidated_ids: frozenset[str]
    window: Literal["recent"]
    alignment: Literal["record"]
    pairs: Literal["as_recorded"]


def run(case: JsonObject) -> Result:
    if case["op"] != "context":
        raise UnknownOp(case["op"])
    return blocks_json(
        blocks(entries_of(case["entries"]), **reference_options(case.get("options")))
    )


def reference_options(said: JsonValue) -> ReferenceOptions:
    options = said if isinstance(said, dict) else {}
    keep, budget = options.get("keepRecentEntries"), options.get("maxTokens")
    return {
        "keep_recent": None if keep is None else number_of(keep),
        "max_tokens": None if budget is None else number_of(budget),
        "secrets": secrets_of(options.get("secrets")),
        "invalidated_ids": frozenset(strings_of(options.get("invalidatedIds"))),
        "window": "recent",
        "alignment": "record",
        "pairs": "as_recorded",
    }


def blocks_json(found: Sequence[Block]) -> JsonValue:
    return [
        {"title": block.title, "content": block.content, "priority": block.priority}
        for block in found
    ]
