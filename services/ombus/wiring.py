"""The only composition root: which engine, which clock, which model stand behind a process."""

import os
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ombus_schemas.topics import ENTRIES
from ombus_streams.engine.embedded.engine import Engine, Reading, state_folder
from ombus_streams.engine.embedded.errors import AlreadyOwned
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.engine.embedded.ownership import Ownership
from ombus_streams.engine.embedded.store import StateFile
from ombus_streams.engine.traces import TraceFiles
from ombus_streams.providers.anthropic import MAX_TOKENS, Anthropic
from ombus_streams.providers.extractive import Extractive
from ombus_streams.providers.openai import OpenAI
from ombus_streams.runtime.callbacks import Callback, CompactionWatch
from ombus_streams.runtime.dispatch import Dispatch
from ombus_streams.runtime.ports import Clock
from ombus_streams.runtime.provider import ModelProvider, WorkerName
from ombus_streams.runtime.roster import Configured, Fixed, Opening
from ombus_streams.runtime.staff import Staff
from ombus_streams.runtime.telemetry import Telemetry

from ombus.settings import BadSetting, ProcessSettings
from ombus.wiring_owners import FolderOwners

__all__ = [
    "AlreadyOwned",
    "Engine",
    "Ownership",
    "Providers",
    "Reading",
    "StateFile",
    "SystemClock",
    "extractive_providers",
    "has_log",
    "is_owned",
    "open_engine",
    "open_log",
    "staff_of",
    "state_folder",
    "switch_state",
    "telemetry_of",
]

TRACES: Final = "traces"
"""Where a session with ``debugLog`` leaves what its runs asked and were answered."""
READY: Final = ".ready"
OLD: Final = ".old"

Providers = Mapping[WorkerName, ModelProvider]


class SystemClock:
    """Wall time."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def extractive_providers() -> Providers:
    """Return the default: no key, no network, no model."""
    provider = Extractive()
    return {"observer": provider, "reflector": provider, "dropper": provider}


def open_engine(
    settings: ProcessSettings,
    *,
    owns: bool,
    clock: Clock | None = None,
    providers: Providers | Staff | None = None,
    telemetry: Telemetry | None = None,
) -> Engine:
    """Return the engine over the data folder, which is created if there is none.

    Raises:
        AlreadyOwned: with ``owns``, if another process folds this folder.
        StorageError, TerminalError: see their way out.
    """
    if owns:
        with Ownership(settings.folder):
            finish_switch(settings.folder)
    clock = clock or SystemClock()
    engine = Engine(
        settings.folder,
        clock,
        providers or staff_of(settings, clock, os.environ),
        owns=owns,
        partitions=settings.partitions,
        secrets=settings.secrets,
        ahead=settings.models.ahead,
        watch=watch_of(settings) if owns else None,
        telemetry=telemetry or telemetry_of(settings),
    )
    engine.interpreter.owners = FolderOwners(settings.folder, clock)
    return engine


def telemetry_of(settings: ProcessSettings) -> Telemetry:
    """Return what a process tells of itself, with spans if the settings want them.

    Raises:
        BadSetting: what makes or sends them is not installed.
    """
    if settings.traces == "off":
        return Telemetry()
    try:
        from ombus.telemetry.spans import tracer_of

        return Telemetry(tracer=tracer_of(settings.traces))
    except ImportError as error:
        fact = "needs an extra: pip install 'ombus[otel]'"
        raise BadSetting(f"traces = {settings.traces}", fact) from error


def watch_of(settings: ProcessSettings) -> CompactionWatch | None:
    """Return who asks the host's ``should-compact``, if there is one.

    Raises:
        NoSuchCallback: the name leads to no function.
    """
    said = settings.models.callbacks
    if said.should_compact is None:
        return None
    return CompactionWatch(Callback(said.should_compact, said.seconds))


def staff_of(settings: ProcessSettings, clock: Clock, environ: Mapping[str, str]) -> Staff:
    """Return who does the workers' work: the configured models, else the model-free provider."""
    said = settings.models
    trace = TraceFiles(settings.folder / TRACES, clock, settings.secrets)
    if not said.providers:
        return Staff(Fixed(extractive_providers()), trace=trace)
    roster = Configured(said.providers, said.workers, environ, _open_provider)
    dispatch = Dispatch(clock, caps=said.caps, breaker=said.breaker, retry=said.retry)
    return Staff(roster, dispatch, trace)


def _open_provider(opening: Opening) -> ModelProvider:
    """Return the adapter of a provider; its SDK is imported with the first turn."""
    spec = opening.spec
    match spec.kind:
        case "extractive":
            return Extractive()
        case "openai":
            return OpenAI(
                opening.model,
                api_key=opening.api_key,
                base_url=spec.base_url,
                name=opening.name,
                streams=spec.streams,
                tool_choice=spec.tool_choice,
                forced_turns=spec.forced_turns,
                max_tokens=spec.max_tokens,
                timeout_seconds=spec.timeout_seconds,
                names_ids=spec.names_ids,
            )
        case "anthropic":
            return Anthropic(
                opening.model,
                api_key=opening.api_key,
                base_url=spec.base_url,
                name=opening.name,
                streams=spec.streams,
                tool_choice=spec.tool_choice,
                forced_turns=spec.forced_turns,
                max_tokens=spec.max_tokens or MAX_TOKENS,
                timeout_seconds=spec.timeout_seconds,
            )


def open_log(folder: Path, partitions: int | None = None, topic: str = ENTRIES) -> SqliteLog:
    """Return the log in a folder, made if there is none, without anything that folds it.

    Raises:
        StorageError: see its way out.
    """
    return SqliteLog(folder, SystemClock(), partitions=partitions, topic=topic)


def has_log(folder: Path) -> bool:
    """Say whether anything was ever appended under ``folder``."""
    return (folder / "log.db").is_file()


def is_owned(folder: Path) -> bool:
    """Say whether some process folds ``folder`` right now."""
    try:
        with Ownership(folder):
            return False
    except AlreadyOwned:
        return True


def switch_state(folder: Path, rebuilt: Path) -> None:
    """Put a complete, closed state in the place of the live one; the caller owns ``folder``.

    Killed anywhere in here, the next owner finishes it or finds the old state untouched.
    """
    live = state_folder(folder)
    rebuilt.rename(live.with_name(live.name + READY))
    finish_switch(folder)


def finish_switch(folder: Path) -> None:
    """Finish the switch an earlier owner began; the caller owns ``folder``. Idempotent."""
    live = state_folder(folder)
    ready, old = live.with_name(live.name + READY), live.with_name(live.name + OLD)
    while ready.exists():
        if live.exists():
            shutil.rmtree(old, ignore_errors=True)
            live.rename(old)
        try:
            ready.rename(live)
        except OSError:
            # A reader that opened the folder in between has made an empty one: move it, too.
            if not live.exists():
                raise
    shutil.rmtree(old, ignore_errors=True)
