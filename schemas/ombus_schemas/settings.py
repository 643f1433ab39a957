"""Settings of the memory: what a host may say, what is meant, and what is refused.

Resolution is that of S17: groups merge shallowly, so an override group replaces the provider's
whole group; a number that makes no sense falls back to its default; counts that bound work are
refused instead. The resolved value travels in ``om.settings.changed`` and is a fact from then on.
"""

import math
from collections.abc import Mapping
from typing import Final, Literal, TypedDict

import msgspec
from msgspec import UNSET, UnsetType

from ombus_schemas.ids import is_key_part, is_principal_id, is_scope_id
from ombus_schemas.jsontext import JsonObject, JsonValue

PROVIDER_KEY: Final = "observational-memory"
"""Where a settings provider keeps them."""

DropperPolicy = Literal["model", "lowest-relevance"]
WindowSource = Literal["model", "settings"]
ModelSource = Literal["entries", "settings"]

DEFAULT_CHUNK_MAX_TOKENS: Final = 60_000
CHUNK_SHARE_OF_WINDOW: Final = 0.2
"""The part of the worker model's window that one observer run may read."""
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


class SettingRemoved(TypeError):
    """A flat key of an older release is set: move its value to ``replacements``."""

    def __init__(self, key: str, replacements: tuple[str, ...]) -> None:
        super().__init__(key, replacements)
        self.key, self.replacements = key, replacements

    def __str__(self) -> str:
        return f"setting {self.key} was removed: set {', '.join(self.replacements)} instead"


class SettingOutOfRange(ValueError):
    """A count that bounds work is no whole number within its limits."""

    def __init__(self, key: str, actual: JsonValue, least: int, most: int | None) -> None:
        super().__init__(key, actual, least, most)
        self.key, self.actual, self.least, self.most = key, actual, least, most

    def __str__(self) -> str:
        top = "" if self.most is None else f" to {self.most:,}"
        return f"{self.key} is {self.actual!r}: give a whole number from {self.least}{top}"


class WorkerSettings(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """What every worker group may carry beside its threshold; passed through unread."""

    model: JsonValue | UnsetType = UNSET
    instruction: JsonValue | UnsetType = UNSET
    thinking_level: JsonValue | UnsetType = UNSET
    provider_options: JsonValue | UnsetType = UNSET
    require_explicit_model: bool = False
    """Whether the session's model may not stand in for a missing one."""


class ObservationSettings(WorkerSettings, kw_only=True, frozen=True, rename="camel"):
    """When the observer runs."""

    message_tokens: int | float = 10_000


class ReflectionSettings(WorkerSettings, kw_only=True, frozen=True, rename="camel"):
    """When the reflector runs."""

    observation_tokens: int | float = 20_000


class DropperSettings(WorkerSettings, kw_only=True, frozen=True, rename="camel"):
    """How far the dropper goes."""

    target_tokens: int | float = 10_000
    """Defaults to the pool's target."""
    policy: DropperPolicy = "model"


class ContextSettings(
    msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True
):
    """What a prompt holds and when the session is compacted."""

    recent_messages: int = 8
    recent_message_max_tokens: int | float | None = None
    """``None``: the window is bounded by count alone."""
    compact_after_tokens: int | float = 81_000
    observations_pool_max_tokens: int | float = 20_000
    observations_pool_target_tokens: int | float = 10_000
    """Not corrected when it lies above the maximum."""


class RetrievalSettings(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """How recall answers."""

    page_limit: int = 20
    """Has no upper bound here; a page above 100 fails when it is asked for."""


class FunnelSettings(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Where copies of what is said in the session go."""

    workspace: str | None = None
    """A session of the same tenant; ``None``, or the session itself: nowhere."""


class SharedScope(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A scope of another session that this one declares it reads."""

    scope_id: str
    owner_session_id: str
    is_readable: bool = True
    """False when the declaration names no way to read the owner: every read is denied."""

    @property
    def is_valid(self) -> bool:
        """Whether the declaration can be acted on at all (S19)."""
        spelled = is_scope_id(self.scope_id) and is_principal_id(self.owner_session_id)
        return spelled and self.is_readable


class MemorySettings(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """Everything that decides how one session is remembered."""

    observation: ObservationSettings = ObservationSettings()
    reflection: ReflectionSettings = ReflectionSettings()
    dropper: DropperSettings = DropperSettings()
    context: ContextSettings = ContextSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    agent_max_turns: int = 16
    passive: bool = False
    """Whether the memory only reads: nothing is observed, reflected, dropped or compacted."""
    debug_log: bool = False
    """Whether every request and answer of this session's runs is written to its trace."""
    show_worker_notifications: bool = True
    """Whether whoever runs the workers is told of each finished run of this session."""
    observer_chunk_max_tokens: int | None = None
    """``None``: a share of the worker model's window, see ``chunk_max_tokens``."""
    shared_scopes: tuple[SharedScope, ...] = ()
    funnel: FunnelSettings = FunnelSettings()
    context_window_source: WindowSource = "model"
    """``model``: what is known of the session's model; ``settings``: ``context_window_tokens``."""
    context_window_tokens: int | None = None
    session_model_source: ModelSource = "entries"
    """``entries``: the last ``model_change`` of the view; ``settings``: ``session_model``."""
    session_model: JsonObject | None = None


class WorkerLimits(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Bounds of one worker run (S15); each may be set between 1 and its hard cap."""

    max_turns: int = 16
    max_tool_calls_per_turn: int = 32
    max_tool_calls: int = 128
    max_argument_bytes: int = 65_536
    max_result_bytes: int = 65_536
    max_message_bytes: int = 1_048_576
    max_error_bytes: int = 1_024


HARD_WORKER_LIMITS: Final = WorkerLimits(
    max_turns=64,
    max_tool_calls_per_turn=256,
    max_tool_calls=1_024,
    max_argument_bytes=1_048_576,
    max_result_bytes=1_048_576,
    max_message_bytes=8_388_608,
    max_error_bytes=8_192,
)


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


def chunk_max_tokens(settings: MemorySettings, window_tokens: int | None = None) -> int:
    """Return how many tokens one observer run may read (design.md section 5)."""
    if settings.observer_chunk_max_tokens is not None:
        return settings.observer_chunk_max_tokens
    if window_tokens is not None:
        return max(1, int(window_tokens * CHUNK_SHARE_OF_WINDOW))
    return DEFAULT_CHUNK_MAX_TOKENS


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


def settings_json(settings: MemorySettings) -> JsonObject:
    """Return the settings as a settings provider would hold them, defaults spelled out."""
    context = settings.context
    shown: JsonObject = {
        "recentMessages": context.recent_messages,
        "compactAfterTokens": context.compact_after_tokens,
        "observationsPoolMaxTokens": context.observations_pool_max_tokens,
        "observationsPoolTargetTokens": context.observations_pool_target_tokens,
    }
    if context.recent_message_max_tokens is not None:
        shown["recentMessageMaxTokens"] = context.recent_message_max_tokens
    result: JsonObject = {
        "observation": {
            "messageTokens": settings.observation.message_tokens,
            **_worker_json(settings.observation),
        },
        "reflection": {
            "observationTokens": settings.reflection.observation_tokens,
            **_worker_json(settings.reflection),
        },
        "dropper": {
            "targetTokens": settings.dropper.target_tokens,
            "policy": settings.dropper.policy,
            **_worker_json(settings.dropper),
        },
        "context": shown,
        "retrieval": {"pageLimit": settings.retrieval.page_limit},
        "agentMaxTurns": settings.agent_max_turns,
        "passive": settings.passive,
        "debugLog": settings.debug_log,
    }
    if not settings.show_worker_notifications:
        result["showWorkerNotifications"] = False
    if settings.observer_chunk_max_tokens is not None:
        result["observerChunkMaxTokens"] = settings.observer_chunk_max_tokens
    if settings.shared_scopes:
        result["sharedScopes"] = {
            scope.scope_id: {"ownerSessionId": scope.owner_session_id}
            for scope in settings.shared_scopes
        }
    if settings.funnel.workspace is not None:
        result["funnel"] = {"workspace": settings.funnel.workspace}
    if settings.context_window_tokens is not None:
        result["contextWindowTokens"] = settings.context_window_tokens
    if settings.session_model is not None:
        result["sessionModel"] = settings.session_model
    return result


def _worker_json(group: WorkerSettings) -> JsonObject:
    shown: JsonObject = {}
    for key, value in (
        ("model", group.model),
        ("instruction", group.instruction),
        ("thinkingLevel", group.thinking_level),
        ("providerOptions", group.provider_options),
    ):
        if value is not UNSET:
            shown[key] = value
    if group.require_explicit_model:
        shown["requireExplicitModel"] = True
    return shown


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
