"""Who does each worker's work: provider, model, credentials, resolved explicitly (S16).

Nothing is guessed. A model comes from the worker's own configuration, else from the session's
memory settings, else from its provider's, else it is the one the session talks with, unless that is
forbidden; a key comes from the variable that was named for it. What is missing parks the leaf
under its reason.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal, Protocol

import msgspec
from msgspec import UNSET
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.settings import WorkerSettings

from ombus_streams.runtime.errors import NotConfigured
from ombus_streams.runtime.provider import ModelProvider, WorkerName

ProviderKind = Literal["extractive", "openai", "anthropic"]

FALLBACKS: Final[tuple[WorkerName, ...]] = ("observer", "reflector")
"""Whose provider a worker without one gets; the dropper's is nobody's fallback (S16)."""


class Assigned(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's provider and what its requests say."""

    provider: ModelProvider
    options: JsonObject = {}
    instruction: str | None = None


class Roster(Protocol):
    """Finds who does a run's work."""

    def assign(
        self, worker: WorkerName, settings: WorkerSettings, session_model: JsonObject | None
    ) -> Assigned:
        """Return who does the work.

        Raises:
            NotConfigured: nobody can, and why.
        """
        ...


class Fixed:
    """One provider a worker, whatever settings say of models: tests, and the model-free default."""

    def __init__(self, providers: Mapping[WorkerName, ModelProvider]) -> None:
        self._providers = providers

    def assign(
        self, worker: WorkerName, settings: WorkerSettings, session_model: JsonObject | None
    ) -> Assigned:
        provider = self._providers.get(worker)
        if provider is None:
            raise NotConfigured(f"the {worker} has no provider", "missing_model")
        return _assigned(provider, settings, None, None)


class ProviderSpec(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True
):
    """A provider as a process is told of it, under a name of its own."""

    kind: ProviderKind
    base_url: str | None = None
    """Another server that speaks the same API."""
    api_key_env: str | None = None
    """The variable that holds the credential. Absent: the server asks for none."""
    model: str | None = None
    streams: bool = True
    tool_choice: Literal["auto", "required", "named"] = "auto"
    forced_turns: int = 1
    max_tokens: int | None = None
    timeout_seconds: float = 120.0
    names_ids: bool = False
    """List the ids an item may cite in the tool's schema: for small models behind a server that
    decodes by schema."""


class WorkerSpec(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True
):
    """What a process is told of one worker; absent is left to settings and fallbacks."""

    provider: str | None = None
    model: str | None = None
    instruction: str | None = None
    thinking_level: str | None = None
    api_key_env: str | None = None
    """Instead of the provider's."""
    require_explicit_model: bool = False


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """A provider that is to be made: everything an adapter needs."""

    name: str
    spec: ProviderSpec
    model: str
    api_key: str | None


class Configured:
    """Providers and workers by their configuration; each provider is opened once."""

    def __init__(
        self,
        providers: Mapping[str, ProviderSpec],
        workers: Mapping[WorkerName, WorkerSpec],
        environ: Mapping[str, str],
        open_provider: Callable[[Opening], ModelProvider],
    ) -> None:
        self._providers, self._workers, self._environ = providers, workers, environ
        self._open = open_provider
        self._opened: dict[tuple[str, str, str | None], ModelProvider] = {}

    def assign(
        self, worker: WorkerName, settings: WorkerSettings, session_model: JsonObject | None
    ) -> Assigned:
        own = self._workers.get(worker, WorkerSpec())
        explicit = own.require_explicit_model or settings.require_explicit_model
        name, model = self._choice(worker, own, settings, None if explicit else session_model)
        spec = self._providers[name]
        variable = own.api_key_env or spec.api_key_env
        key = self._environ.get(variable) if variable is not None else None
        if variable is not None and not key:
            raise NotConfigured(
                f"the {worker}'s credential is to be in {variable}, which is not set: set it, or "
                "name another variable as api-key-env",
                "missing_credentials",
            )
        provider = self._opened.get((name, model, variable))
        if provider is None:
            provider = self._open(Opening(name=name, spec=spec, model=model, api_key=key))
            self._opened[(name, model, variable)] = provider
        return _assigned(provider, settings, own.instruction, own.thinking_level)

    def _choice(
        self,
        worker: WorkerName,
        own: WorkerSpec,
        settings: WorkerSettings,
        session_model: JsonObject | None,
    ) -> tuple[str, str]:
        """Return the provider's name and the model."""
        default = own.provider or self._fallback(worker)
        if default is not None and default not in self._providers:
            raise NotConfigured(f"the {worker} names provider {default}", "missing_model")
        if default is not None and self._providers[default].kind == "extractive":
            return default, ""
        said = None if isinstance(settings.model, msgspec.UnsetType) else settings.model
        of_provider = self._providers[default].model if default is not None else None
        for wanted in (own.model, said, of_provider, session_model):
            named, model = model_of(wanted, self._providers)
            name = named or default
            if model is None or name not in self._providers or name is None:
                continue
            if own.provider is None or name == own.provider:
                return name, model
        raise NotConfigured(
            f"the {worker} has no model: name one for it, in [workers.{worker}] or in the memory "
            "settings of the session",
            "missing_model",
        )

    def _fallback(self, worker: WorkerName) -> str | None:
        for other in FALLBACKS:
            spec = self._workers.get(other)
            if other != worker and spec is not None and spec.provider is not None:
                return spec.provider
        return None


def model_of(
    wanted: JsonValue, providers: Mapping[str, ProviderSpec]
) -> tuple[str | None, str | None]:
    """Return the provider and the model that a setting or a ``model_change`` names.

    ``{"provider", "model"}``, or a text: ``<provider>/<model>`` if the part before the slash is a
    configured provider, else all of it is the model's name.
    """
    if isinstance(wanted, dict):
        provider, model = wanted.get("provider"), wanted.get("model") or wanted.get("id")
        return (
            provider if isinstance(provider, str) and provider else None,
            model if isinstance(model, str) and model else None,
        )
    if not isinstance(wanted, str) or not wanted:
        return None, None
    provider, slash, model = wanted.partition("/")
    return (provider, model) if slash and model and provider in providers else (None, wanted)


def _assigned(
    provider: ModelProvider,
    settings: WorkerSettings,
    instruction: str | None,
    thinking_level: str | None,
) -> Assigned:
    said = settings.provider_options
    options: JsonObject = dict(said) if isinstance(said, dict) else {}
    level = settings.thinking_level
    if level is UNSET or level is None:
        level = thinking_level
    if isinstance(level, str):
        options["thinkingLevel"] = level
    told = settings.instruction
    return Assigned(
        provider=provider,
        options=options,
        instruction=told if isinstance(told, str) else instruction,
    )
