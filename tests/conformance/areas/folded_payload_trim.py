"""S12."""

from collections import Counter
from hashlib import sha256

from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue, json_text, utf8_length
from ombus_schemas.records import folded_of, reflection_json
from ombus_streams.memory.compaction import SEED, Refused, compact
from ombus_streams.memory.payload import bound

from tests.conformance.cases import (
    Result,
    UnknownOp,
    entry_of,
    ids,
    number_of,
    observations_in,
    reflections_in,
    strings_of,
)

RELEVANCES = ("low", "medium", "high", "critical")
AT = "2026-02-03T04:05:06.000Z"


def run(case: JsonObject) -> Result:
    match case["op"]:
        case "bound":
            bounded = bound(
                observations_in(case["observations"]),
                reflections_in(case["reflections"]),
                strings_of(case["droppedObservationIds"]),
                number_of(case["maxObservationTokens"]),
                number_of(case["maxPayloadBytes"]),
            )
            return {
                "observations": ids(bounded.observations),
                "reflections": [reflection_json(item) for item in bounded.reflections],
                "droppedObservationIds": list(bounded.dropped_ids),
                "fullFold": bounded.full_fold,
            }
        case "strategy_generated":
            rule = case["generate"]
            assert isinstance(rule, dict)
            return _digest_of_a_compaction(_generated(int(number_of(rule["count"]))))
        case op:
            raise UnknownOp(op)


def _generated(count: int) -> list[Entry]:
    """Return the branch that the rule of the case describes: e1, c1 with all, e2."""
    observations: list[JsonValue] = [
        {
            "id": f"{i + 1:012x}",
            "content": f"{i:05d}" + "x" * 995,
            "timestamp": AT,
            "relevance": RELEVANCES[i % 4],
            "sourceEntryIds": ["e1"],
            "tokenCount": 1,
        }
        for i in range(count)
    ]
    data: JsonObject = {
        "type": "om.observations.recorded",
        "observations": observations,
        "coversUpToId": "e1",
    }
    return [
        entry_of(_spoken("e1", "x", None)),
        entry_of(
            {
                "id": "c1",
                "sessionId": "s1",
                "timestamp": AT,
                "kind": "custom",
                "parentId": "e1",
                "data": data,
            }
        ),
        entry_of(_spoken("e2", "y", "c1")),
    ]


def _spoken(entry_id: str, text: str, parent_id: str | None) -> JsonObject:
    return {
        "id": entry_id,
        "sessionId": "s1",
        "timestamp": AT,
        "kind": "message",
        "message": {"role": "user", "content": [{"type": "text", "text": text}]},
        **({} if parent_id is None else {"parentId": parent_id}),
    }


def _digest_of_a_compaction(entries: list[Entry]) -> JsonObject:
    made = compact(entries, 1, strategy=SEED)
    assert not isinstance(made, Refused), "the reference never refuses"
    summary = made.summary
    folded = folded_of(Entry(id="k", session_id="s1", kind="compaction", data=made.data))
    assert folded is not None
    kept = folded.observations
    by_relevance: dict[str, JsonValue] = dict(Counter(item.relevance for item in kept))
    return {
        "fullFold": folded.full_fold,
        "kept": len(kept),
        "keptByRelevance": by_relevance,
        "firstId": kept[0].id,
        "lastId": kept[-1].id,
        "memoryJsonBytes": utf8_length(json_text(made.data["memory"])),
        "keptIdsSha256": _digest(",".join(item.id for item in kept)),
        "summaryBytes": utf8_length(summary),
        "summarySha256": _digest(summary),
    }


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
