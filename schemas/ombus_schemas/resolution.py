"""What a host says of the memory, resolved: what is meant, what falls back and what is refused.

The rules are those of S17: groups merge shallowly, so an override group replaces the provider's
whole group; a number that makes no sense falls back to its default; counts that bound work are
refused instead. The resolved value travels in ``om.settings.changed`` and is a fact from then on.
"""

import math
from collections.abc import Mapping
from typing import Final, TypedDict

import msgspec
from msgspec import UNSET, UnsetType

from ombus_schemas.ids import is_key_part
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.settings import (
    HARD_WORKER_LIMITS,
    ContextSettings,
    DropperSettings,
    FunnelSettings,
    MemorySettings,
    ObservationSettings,
    ReflectionSettings,
    RetrievalSettings,
    SettingOutOfRange,
    SettingRemoved,
    SharedScope,
    WorkerLimits,
)

MAX_AGENT_TURNS: Final = 64
_MAX_SAFE_INTEGER: Final = 2**53 - 1

REMOVED_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "observeAfterTokens": ("observation.messageTokens",),
    "reflectAfterTokens": ("reflection.observationTokens",),
    "compactAfterTokens": ("context.compactAfterTokens",),
    "keepRecentEntries": ("context.recentMessages",),
    "recentMessageMaxTokens": ("context.recentMessageMaxTokens",),
    "observationsPoolMaxTokens": ("context.observationsPoolMaxTokens",),
    "observationsPoolTargetTokens": ("context.observationsPoolTargetTokens",),
    "workerModel": ("observation.model", "reflection.model", "dropper.model"),
    "thinkingLevel": (
        "observation.thinkingLevel",
        "reflection.thinkingLevel",
        "dropper.thinkingLevel",
    ),
    "requireExplicitModel": (
        "observation.requireExplicitModel",
        "reflection.requireExplicitModel",
        "dropper.requireExplicitModel",
    ),
}
"""Flat keys of an older release and what says the same today, in the order they are checked."""

GROUPS: Final = ("observation", "reflection", "dropper", "context", "retrieval")


def resolve_settings(
    provider: JsonObject | None = None, overrides: JsonObject | None = None
) -> MemorySettings:
    """Return what ``overrides`` over ``provider`` mean; unknown keys are ignored.

    Raises ``SettingRemoved`` for a removed flat key, the provider's first, and
    ``SettingOutOfRange`` for a page limit or turn count that is no count.
    """
    for source in (provider, overrides):
        for key, replacements in REMOVED_KEYS.items():
            if source is not None and key in source:
                raise SettingRemoved(key, replacements)
    said: JsonObject = {**(provider or {}), **(overrides or {})}
    groups = {name: _object(said.get(name)) for name in GROUPS}
    context = _context(groups["context"])
    window = said.get("contextWindowTokens")
    return MemorySettings(
        observation=_observation(groups["observation"]),
        reflection=_reflection(groups["reflection"]),
        dropper=_dropper(groups["dropper"], context.observations_pool_target_tokens),
        context=context,
        retrieval=RetrievalSettings(page_limit=_page_limit(groups["retrieval"])),
        agent_max_turns=_count(said.get("agentMaxTurns"), "agentMaxTurns", 16, MAX_AGENT_TURNS),
        passive=_is_truthy(said.get("passive")),
        debug_log=_is_truthy(said.get("debugLog")),
        show_worker_notifications=said.get("showWorkerNotifications") is not False,
        observer_chunk_max_tokens=_whole(said.get("observerChunkMaxTokens"), 1),
        shared_scopes=shared_scopes_of(said.get("sharedScopes")),
        funnel=FunnelSettings(workspace=_session(_object(said.get("funnel")).get("workspace"))),
        context_window_source="settings" if _whole(window, 1) is not None else "model",
        context_window_tokens=_whole(window, 1),
        session_model_source=(
            "settings" if isinstance(said.get("sessionModel"), dict) else "entries"
        ),
        session_model=_object(said.get("sessionModel")) or None,
    )


def composed_overrides(options: JsonObject) -> JsonObject:
    """Return the overrides that the composed entry point hands on.

    It always passes all five groups, so no group of a settings provider takes effect through it;
    a member of a group option beats the same member of ``overrides`` (S17).
    """
    inner = _object(options.get("overrides"))
    merged: JsonObject = dict(inner)
    for name in GROUPS:
        merged[name] = {**_object(inner.get(name)), **_object(options.get(name))}
    for name in ("agentMaxTurns", "passive", "debugLog"):
        if name in options:
            merged[name] = options[name]
    return merged


def shared_scopes_of(declared: JsonValue) -> tuple[SharedScope, ...]:
    """Return the declared shared scopes in key order, invalid ones included.

    An invalid declaration is kept so that a read can be denied by name instead of being absent.
    """
    return tuple(
        SharedScope(
            scope_id=scope_id, owner_session_id=_string(_object(said).get("ownerSessionId"))
        )
        for scope_id, said in _object(declared).items()
    )


def resolve_worker_limits(said: JsonObject | None = None) -> WorkerLimits:
    """Return the limits of a worker run; ``null`` means the default.

    Raises ``SettingOutOfRange`` naming the first limit that is no whole number up to its hard cap.
    """
    given = said or {}
    limits: dict[str, int] = {}
    for field in msgspec.structs.fields(WorkerLimits):
        default: int = getattr(WorkerLimits(), field.name)
        hard: int = getattr(HARD_WORKER_LIMITS, field.name)
        limits[field.name] = _count(given.get(field.encode_name), field.encode_name, default, hard)
    return WorkerLimits(**limits)


def _observation(group: JsonObject) -> ObservationSettings:
    return ObservationSettings(
        message_tokens=_positive(group.get("messageTokens"), 10_000), **_worker(group)
    )


def _reflection(group: JsonObject) -> ReflectionSettings:
    return ReflectionSettings(
        observation_tokens=_positive(group.get("observationTokens"), 20_000), **_worker(group)
    )


def _dropper(group: JsonObject, pool_target_tokens: int | float) -> DropperSettings:
    return DropperSettings(
        target_tokens=_positive(group.get("targetTokens"), pool_target_tokens),
        policy="lowest-relevance" if group.get("policy") == "lowest-relevance" else "model",
        **_worker(group),
    )


def _context(group: JsonObject) -> ContextSettings:
    recent = _whole(group.get("recentMessages"), 0)
    return ContextSettings(
        recent_messages=8 if recent is None else recent,
        recent_message_max_tokens=_positive_or_none(group.get("recentMessageMaxTokens")),
        compact_after_tokens=_positive(group.get("compactAfterTokens"), 81_000),
        observations_pool_max_tokens=_positive(group.get("observationsPoolMaxTokens"), 20_000),
        observations_pool_target_tokens=_positive(
            group.get("observationsPoolTargetTokens"), 10_000
        ),
    )


class _WorkerKeywords(TypedDict):
    model: JsonValue | UnsetType
    instruction: JsonValue | UnsetType
    thinking_level: JsonValue | UnsetType
    provider_options: JsonValue | UnsetType
    require_explicit_model: bool


def _worker(group: JsonObject) -> _WorkerKeywords:
    return {
        "model": group.get("model", UNSET),
        "instruction": group.get("instruction", UNSET),
        "thinking_level": group.get("thinkingLevel", UNSET),
        "provider_options": group.get("providerOptions", UNSET),
        "require_explicit_model": group.get("requireExplicitModel") is True,
    }


def _page_limit(group: JsonObject) -> int:
    if "pageLimit" not in group:
        return 20
    limit = _integer(group["pageLimit"])
    if limit is None or limit < 1:
        raise SettingOutOfRange("retrieval.pageLimit", group["pageLimit"], 1, None)
    return limit


def _count(value: JsonValue, key: str, default: int, most: int) -> int:
    if value is None:
        return default
    count = _integer(value)
    if count is None or not 1 <= count <= most:
        raise SettingOutOfRange(key, value, 1, most)
    return count


def _positive(value: JsonValue, default: int | float) -> int | float:
    number = _positive_or_none(value)
    return default if number is None else number


def _positive_or_none(value: JsonValue) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        is_finite = math.isfinite(value)
    except OverflowError:  # an integer beyond every double is infinite to JavaScript
        return None
    return value if is_finite and value > 0 else None


def _whole(value: JsonValue, least: int) -> int | None:
    number = _integer(value)
    return number if number is not None and least <= number <= _MAX_SAFE_INTEGER else None


def _integer(value: JsonValue) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) else None


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _session(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and is_key_part(value) else None


def _string(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _is_truthy(value: JsonValue) -> bool:
    # The reference's truth: an empty list or object is true, the text "false" too.
    if isinstance(value, list | dict):
        return True
    return value == value and bool(value)
