"""Settings of the memory: everything that decides how one session is remembered.

They come from ``resolution``, are a fact once ``om.settings.changed`` holds them, and are shown
again by ``settings_json``.
"""

from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ombus_schemas.ids import is_principal_id, is_scope_id
from ombus_schemas.jsontext import JsonObject, JsonValue

PROVIDER_KEY: Final = "observational-memory"
"""Where a settings provider keeps them."""

DropperPolicy = Literal["model", "lowest-relevance"]
WindowSource = Literal["model", "settings"]
ModelSource = Literal["entries", "settings"]

DEFAULT_CHUNK_MAX_TOKENS: Final = 60_000
CHUNK_SHARE_OF_WINDOW: Final = 0.2
"""The part of the worker model's window that one observer run may read."""


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


def chunk_max_tokens(settings: MemorySettings, window_tokens: int | None = None) -> int:
    """Return how many tokens one observer run may read (design.md section 5)."""
    if settings.observer_chunk_max_tokens is not None:
        return settings.observer_chunk_max_tokens
    if window_tokens is not None:
        return max(1, int(window_tokens * CHUNK_SHARE_OF_WINDOW))
    return DEFAULT_CHUNK_MAX_TOKENS


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
