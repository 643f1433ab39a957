"""Entries of a branch in one call each, for tests of the pure memory."""

from typing import TypedDict, Unpack, cast

import msgspec
from hypothesis import strategies as st
from ombus_schemas.entries import Entry, Origin
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import (
    FoldedThrough,
    Observation,
    Reflection,
    Relevance,
    observation_json,
    reflection_json,
)
from ombus_streams.memory.projection import folded_json

AT = "2026-02-03T04:05:06.000Z"


def memory(n: int) -> str:
    """Return the n-th memory id."""
    return f"{n:012x}"


def observation(
    n: int,
    content: str = "fact",
    *,
    sources: tuple[str, ...] = ("e1",),
    relevance: Relevance = "medium",
    tokens: int | float = 1,
) -> Observation:
    return Observation(
        id=memory(n),
        content=content,
        timestamp=AT,
        relevance=relevance,
        source_entry_ids=sources,
        token_count=tokens,
    )


def reflection(n: int, content: str = "gist", *, supports: tuple[int, ...] = ()) -> Reflection:
    return Reflection(
        id=memory(n),
        content=content,
        supporting_observation_ids=tuple(map(memory, supports)),
        token_count=1,
    )


def entry(entry_id: str, kind: str = "custom", data: JsonValue = None) -> Entry:
    return Entry(id=entry_id, session_id="s1", timestamp=AT, kind=kind, data=data)


def message(
    entry_id: str,
    *blocks: str | JsonObject,
    role: str = "user",
    parent: str | None = None,
    origin: Origin | None = None,
) -> Entry:
    content: list[JsonValue] = [
        {"type": "text", "text": block} if isinstance(block, str) else block for block in blocks
    ]
    raw: JsonObject = {
        "id": entry_id,
        "sessionId": "s1",
        "timestamp": AT,
        "kind": "message",
        "message": {"role": role, "content": content},
    }
    if parent is not None:
        raw["parentId"] = parent
    if origin is not None:
        raw["origin"] = origin
    return msgspec.convert(raw, Entry)


class Fields(TypedDict, total=False):
    """What a record may carry beside its items."""

    coversUpToId: str
    through: str
    reason: str


def observed(entry_id: str, *items: Observation, **fields: Unpack[Fields]) -> Entry:
    data: JsonObject = {
        "type": "om.observations.recorded",
        "observations": [observation_json(item) for item in items],
        **cast("JsonObject", fields),
    }
    return entry(entry_id, data=data)


def reflected(entry_id: str, *items: Reflection, **fields: Unpack[Fields]) -> Entry:
    data: JsonObject = {
        "type": "om.reflections.recorded",
        "reflections": [reflection_json(item) for item in items],
        **cast("JsonObject", fields),
    }
    return entry(entry_id, data=data)


def dropped(entry_id: str, *ids: int, **fields: Unpack[Fields]) -> Entry:
    data: JsonObject = {
        "type": "om.observations.dropped",
        "observationIds": [memory(n) for n in ids],
        **cast("JsonObject", fields),
    }
    return entry(entry_id, data=data)


def compacted(
    entry_id: str,
    observations: tuple[Observation, ...] = (),
    reflections: tuple[Reflection, ...] = (),
    dropped_ids: tuple[int, ...] = (),
    folded_through: FoldedThrough | None = None,
) -> Entry:
    memory_data = folded_json(False, observations, reflections, map(memory, dropped_ids))
    data: JsonObject = {"keepEntryIds": [], "memory": memory_data}
    if folded_through is not None:
        data["foldedThrough"] = msgspec.to_builtins(folded_through)
    return msgspec.structs.replace(entry(entry_id, "compaction", data), summary="folded")


def json_values() -> st.SearchStrategy[JsonValue]:
    """Return any JSON value, lone surrogates and awkward numbers among them."""
    texts = st.text(st.characters(codec=None), max_size=8)
    leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(texts | st.integers(0, 99).map(str), inner, max_size=3)
        ),
        max_leaves=8,
    )


def hostile_entries() -> st.SearchStrategy[list[Entry]]:
    """Return branches whose bodies are almost records."""
    observations = st.builds(
        lambda n, tokens, relevance: {
            "id": memory(n),
            "content": "c",
            "timestamp": AT,
            "relevance": relevance,
            "sourceEntryIds": ["e1"],
            "tokenCount": tokens,
        },
        st.integers(0, 5),
        st.sampled_from([0, 1.5, -1, True, 10**400, "1", None]),
        st.sampled_from(["low", "high", "HIGH", ["low"], None]),
    )
    items = st.lists(observations | json_values(), max_size=3) | json_values()
    ids = st.lists(st.integers(0, 5).map(memory) | json_values(), max_size=3) | json_values()
    bodies = st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                [
                    "om.observations.recorded",
                    "om.reflections.recorded",
                    "om.observations.dropped",
                    "om.other",
                ]
            )
        },
        optional={
            "observations": items,
            "reflections": items,
            "observationIds": ids,
            "coversUpToId": st.text(max_size=2) | json_values(),
            "reason": st.just("pruned") | json_values(),
            "producedBy": json_values(),
            "memory": st.fixed_dictionaries(
                {"type": st.just("om.folded"), "version": st.sampled_from([1, 1.0, True, 2])},
                optional={
                    "fullFold": st.booleans() | json_values(),
                    "observations": items,
                    "reflections": items,
                    "droppedObservationIds": ids,
                },
            )
            | json_values(),
        },
    )
    data = bodies | json_values()
    return st.lists(st.builds(entry, st.sampled_from("abcd"), data=data), max_size=8)
