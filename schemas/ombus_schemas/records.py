"""What workers record: observations, reflections, drops, folded payloads.

A record is recognised by ``data`` alone, whatever the entry's kind. Parsing is total: malformed
input gives ``None``, a malformed item is left out (S5). Fields of design.md section 15 that a
record may carry are absent on imported ones.
"""

import re
import sys
from typing import Final, Literal, TypedDict

import msgspec
from msgspec import UNSET, UnsetType

from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue

OBSERVATIONS_RECORDED: Final = "om.observations.recorded"
REFLECTIONS_RECORDED: Final = "om.reflections.recorded"
OBSERVATIONS_DROPPED: Final = "om.observations.dropped"
FOLDED: Final = "om.folded"

Relevance = Literal["low", "medium", "high", "critical"]
RELEVANCES: Final[tuple[Relevance, ...]] = ("low", "medium", "high", "critical")
"""From what is forgotten first to what is forgotten last."""

_MEMORY_ID: Final = re.compile(r"[a-f0-9]{12}")


class Observation(msgspec.Struct, kw_only=True, frozen=True, rename="camel", gc=False):
    """One fact with its sources."""

    id: str
    content: str
    timestamp: str
    relevance: Relevance
    source_entry_ids: tuple[str, ...]
    token_count: int | float
    extra: JsonObject = {}
    """Fields of another release, kept."""


class Reflection(msgspec.Struct, kw_only=True, frozen=True, rename="camel", gc=False):
    """One line over several observations."""

    id: str
    content: str
    supporting_observation_ids: tuple[str, ...]
    token_count: int | float
    extra: JsonObject = {}


class ProducedBy(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """The run that made a record."""

    worker: str
    run_id: str
    provider: str | None = None
    model: str | None = None
    prompt_version: str | None = None
    settings_hash: str | None = None
    estimator: str | None = None


class WorkerFields(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """What every worker record of ours carries beside its items (design.md sections 5 and 15)."""

    covers_up_to_id: str | None = None
    base: str | None | UnsetType = UNSET
    """The state the run started from; ``None`` = from nothing, absent = an imported record."""
    seen: str | None = None
    """The last invalidation applied to the input; ``None`` = none."""
    scope_id: str | None = None
    produced_by: ProducedBy | None = None
    cause: str | None = None
    """``threshold``, or the id of the flush, reflection or trigger entry that asked for the run."""


class ObservationsRecorded(WorkerFields, kw_only=True, frozen=True, rename="camel"):
    """One successful observer run; empty ``observations`` still advance coverage."""

    observations: tuple[Observation, ...] = ()
    reason: str | None = None
    """Why a refused source is covered by an empty record."""


class ReflectionsRecorded(WorkerFields, kw_only=True, frozen=True, rename="camel"):
    """One successful reflector run."""

    reflections: tuple[Reflection, ...] = ()
    through: str | None = None
    """The last observation record it read."""


class ObservationsDropped(WorkerFields, kw_only=True, frozen=True, rename="camel"):
    """One dropper run, or (without ``base``) an imported drop or a tombstone."""

    observation_ids: tuple[str, ...] = ()
    reason: str | None = None
    """``pruned`` keeps the reflections that rest on what is dropped."""


class FoldedThrough(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """The last accepted record of each kind that a compaction folded; ids, never positions."""

    observations: str | None = None
    reflections: str | None = None
    drops: str | None = None


class FoldedMemory(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """The payload of a compaction, as recorded: its items are validated when used."""

    full_fold: bool
    observations: tuple[Observation, ...]
    reflections: tuple[Reflection, ...]
    dropped_observation_ids: tuple[str, ...] = ()


class Compaction(WorkerFields, kw_only=True, frozen=True, rename="camel"):
    """``data`` of a compaction entry of ours, or of an imported one."""

    through_entry_id: str | None = None
    keep_entry_ids: tuple[str, ...] = ()
    folded_through: FoldedThrough | None = None
    memory: FoldedMemory | None = None


Record = ObservationsRecorded | ReflectionsRecorded | ObservationsDropped


def is_memory_id(value: JsonValue) -> bool:
    """Say whether ``value`` is exactly twelve lower-case hex digits."""
    return isinstance(value, str) and _MEMORY_ID.fullmatch(value) is not None


def observation_of(value: JsonValue) -> Observation | None:
    """Return the observation ``value`` holds, or ``None`` where S5 ignores the item."""
    if not isinstance(value, dict) or not _is_item(value):
        return None
    sources = _strings(value.get("sourceEntryIds"))
    relevance, timestamp = value.get("relevance"), value.get("timestamp")
    if sources is None or relevance not in RELEVANCES or not isinstance(timestamp, str):
        return None
    return Observation(
        id=str(value["id"]),
        content=str(value["content"]),
        timestamp=timestamp,
        relevance=relevance,
        source_entry_ids=sources,
        token_count=_number(value["tokenCount"]),
        extra={key: item for key, item in value.items() if key not in _OBSERVATION_KEYS},
    )


def reflection_of(value: JsonValue) -> Reflection | None:
    """Return the reflection ``value`` holds, or ``None`` where S5 ignores the item."""
    if not isinstance(value, dict) or not _is_item(value):
        return None
    supports = _strings(value.get("supportingObservationIds"))
    if supports is None or not all(map(is_memory_id, supports)):
        return None
    return Reflection(
        id=str(value["id"]),
        content=str(value["content"]),
        supporting_observation_ids=supports,
        token_count=_number(value["tokenCount"]),
        extra={key: item for key, item in value.items() if key not in _REFLECTION_KEYS},
    )


def observation_json(item: Observation) -> JsonObject:
    """Return the wire object of ``item``, extra fields last."""
    return {
        "id": item.id,
        "content": item.content,
        "timestamp": item.timestamp,
        "relevance": item.relevance,
        "sourceEntryIds": list(item.source_entry_ids),
        "tokenCount": item.token_count,
        **item.extra,
    }


def reflection_json(item: Reflection) -> JsonObject:
    """Return the wire object of ``item``, extra fields last."""
    return {
        "id": item.id,
        "content": item.content,
        "supportingObservationIds": list(item.supporting_observation_ids),
        "tokenCount": item.token_count,
        **item.extra,
    }


def record_of(entry: Entry) -> Record | None:
    """Return the worker record in ``entry.data``, or ``None`` if there is none that counts (S5)."""
    data = entry.data
    if not isinstance(data, dict):
        return None
    kind = data.get("type")
    if kind not in _RECORDED:
        return None
    covers = data.get("coversUpToId", "")
    if not isinstance(covers, str):
        return None
    worker = _worker_fields(data)
    if kind == OBSERVATIONS_RECORDED:
        items = data.get("observations")
        if not isinstance(items, list):
            return None
        observations = tuple(item for item in map(observation_of, items) if item is not None)
        return ObservationsRecorded(
            observations=observations, reason=_string(data.get("reason")), **worker
        )
    if kind == REFLECTIONS_RECORDED:
        items = data.get("reflections")
        if not isinstance(items, list):
            return None
        reflections = tuple(item for item in map(reflection_of, items) if item is not None)
        return ReflectionsRecorded(
            reflections=reflections, through=_string(data.get("through")), **worker
        )
    ids = _strings(data.get("observationIds"))
    if ids is None or not all(map(is_memory_id, ids)):
        return None
    return ObservationsDropped(observation_ids=ids, reason=_string(data.get("reason")), **worker)


def folded_of(entry: Entry) -> FoldedMemory | None:
    """Return the valid folded payload in ``entry.data.memory``, whatever the entry's kind (S5)."""
    if not isinstance(entry.data, dict):
        return None
    memory = entry.data.get("memory")
    if not isinstance(memory, dict) or memory.get("type") != FOLDED:
        return None
    version, full_fold = memory.get("version"), memory.get("fullFold")
    observations, reflections = memory.get("observations"), memory.get("reflections")
    if isinstance(version, bool) or version != 1 or not isinstance(full_fold, bool):
        return None
    if not isinstance(observations, list) or not isinstance(reflections, list):
        return None
    dropped: tuple[str, ...] | None = ()
    if "droppedObservationIds" in memory:
        dropped = _strings(memory["droppedObservationIds"])
    if dropped is None:
        return None
    return FoldedMemory(
        full_fold=full_fold,
        observations=tuple(item for item in map(observation_of, observations) if item is not None),
        reflections=tuple(item for item in map(reflection_of, reflections) if item is not None),
        dropped_observation_ids=dropped,
    )


def compaction_of(entry: Entry) -> Compaction | None:
    """Return the compaction in ``entry``: kind ``compaction``, a summary, well-formed boundary."""
    if entry.kind != "compaction" or not entry.summary:
        return None
    data = entry.data if isinstance(entry.data, dict) else {}
    through = data.get("throughEntryId")
    kept = _strings(data.get("keepEntryIds", []))
    if ("throughEntryId" in data and not isinstance(through, str)) or kept is None:
        return None
    folded = data.get("foldedThrough")
    marks = None
    if isinstance(folded, dict):
        marks = FoldedThrough(
            observations=_string(folded.get("observations")),
            reflections=_string(folded.get("reflections")),
            drops=_string(folded.get("drops")),
        )
    return Compaction(
        through_entry_id=_string(through),
        keep_entry_ids=kept,
        folded_through=marks,
        memory=folded_of(entry),
        **_worker_fields(data),
    )


_MAX_SAFE: Final = 2**53 - 1
_RECORDED: Final = (OBSERVATIONS_RECORDED, REFLECTIONS_RECORDED, OBSERVATIONS_DROPPED)
_OBSERVATION_KEYS: Final = frozenset(
    {"id", "content", "timestamp", "relevance", "sourceEntryIds", "tokenCount"}
)
_REFLECTION_KEYS: Final = frozenset({"id", "content", "supportingObservationIds", "tokenCount"})


class _WorkerKeywords(TypedDict):
    covers_up_to_id: str | None
    base: str | None | UnsetType
    seen: str | None
    scope_id: str | None
    produced_by: ProducedBy | None
    cause: str | None


def _worker_fields(data: JsonObject) -> _WorkerKeywords:
    base = data.get("base", UNSET)
    return {
        "covers_up_to_id": _string(data.get("coversUpToId")),
        "base": base if base is None or isinstance(base, str) else UNSET,
        "seen": _string(data.get("seen")),
        "scope_id": _string(data.get("scopeId")),
        "produced_by": _produced_by(data.get("producedBy")),
        "cause": _string(data.get("cause")),
    }


def _produced_by(value: JsonValue) -> ProducedBy | None:
    try:
        return msgspec.convert(value, ProducedBy) if isinstance(value, dict) else None
    except (msgspec.ValidationError, UnicodeEncodeError):
        return None


def _is_item(value: JsonObject) -> bool:
    content, count = value.get("content"), value.get("tokenCount")
    return (
        is_memory_id(value.get("id"))
        and isinstance(content, str)
        and content != ""
        and "\n" not in content
        and isinstance(count, int | float)
        and not isinstance(count, bool)
        and 0 <= count <= sys.float_info.max  # a longer integer is infinite to JavaScript
    )


def _number(value: JsonValue) -> int | float:
    assert isinstance(value, int | float)
    return value if value <= _MAX_SAFE else float(value)  # as JavaScript adds it up


def _string(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def _strings(value: JsonValue) -> tuple[str, ...] | None:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return None
    return tuple(str(item) for item in value)
