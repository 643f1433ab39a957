"""Which models a process may use, as its settings files say it: providers, workers, budgets.

::

    [providers.local]
    kind = "openai"
    base-url = "http://127.0.0.1:8080/v1"
    model = "qwen3"

    [workers.observer]
    provider = "local"

    [models]
    tokens-per-day = 2_000_000

Process settings: they never reach a fold. Without a provider the model-free one does the work.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.retry import RetryPolicy
from ombus_streams.runtime.ahead import AheadPolicy
from ombus_streams.runtime.breaker import BreakerPolicy
from ombus_streams.runtime.budget import Caps
from ombus_streams.runtime.provider import WorkerName
from ombus_streams.runtime.roster import ProviderSpec, WorkerSpec

from ombus.tables import read_table

TABLES: Final = ("providers", "workers", "models", "callbacks")


class Budgets(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True
):
    """``[models]``: how much of them, and how patiently."""

    max_runs: int = 16
    max_provider_runs: int = 8
    max_tenant_runs: int = 4
    tokens_per_day: int | None = None
    tenant_tokens_per_day: int | None = None
    max_attempts: int = 3
    max_retry_ms: int = 8_000
    """A hint to wait longer is kept by the scheduler, not by a run that stands still."""
    work_ahead: float = 0.25
    """The share of the threshold at which a run is prepared; 0 = never."""
    idle_seconds: int = 300


class Callbacks(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True
):
    """``[callbacks]``: functions of the host, as ``module:function``.

    Here and not among the memory settings, because those are facts on the log, and whoever may
    append to a log must not choose what a worker imports.
    """

    should_compact: str | None = None
    seconds: float = 2.0


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything the tables say."""

    providers: dict[str, ProviderSpec] = {}
    workers: dict[WorkerName, WorkerSpec] = {}
    models: Budgets = Budgets()
    callbacks: Callbacks = Callbacks()

    @property
    def caps(self) -> Caps:
        said = self.models
        return Caps(
            max_runs=said.max_runs,
            max_tenant_runs=said.max_tenant_runs,
            max_tokens_per_day=said.tokens_per_day,
            max_tenant_tokens_per_day=said.tenant_tokens_per_day,
        )

    @property
    def breaker(self) -> BreakerPolicy:
        return BreakerPolicy(max_in_flight=self.models.max_provider_runs)

    @property
    def retry(self) -> RetryPolicy:
        said = self.models
        return RetryPolicy(max_attempts=said.max_attempts, base_ms=500, max_ms=said.max_retry_ms)

    @property
    def ahead(self) -> AheadPolicy | None:
        """How far ahead to work; without a model a run takes milliseconds and nothing is won."""
        said = self.models
        if not self.providers or not 0 < said.work_ahead < 1:
            return None
        return AheadPolicy(share=said.work_ahead, idle=timedelta(seconds=said.idle_seconds))

    def keys(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return the credentials that are named: none of them may be seen anywhere."""
        names = {spec.api_key_env for spec in self.providers.values()}
        names |= {spec.api_key_env for spec in self.workers.values()}
        return tuple(value for name in names if name and (value := environ.get(name)))


def model_settings(tables: JsonObject) -> ModelSettings:
    """Return what the tables of the files say; a file's table replaces a weaker file's.

    Raises:
        BadTable: by its path.
    """
    return read_table(ModelSettings, tables)
