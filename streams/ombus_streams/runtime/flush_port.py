"""What a flush speaks: its session, its workers, its result (S16)."""

from collections.abc import Sequence
from typing import Final, Literal, Protocol

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.resolution import resolve_worker_limits
from ombus_schemas.settings import SettingOutOfRange, WorkerLimits

from ombus_streams.runtime.errors import TerminalError
from ombus_streams.runtime.provider import ModelProvider

Skipped = Literal[
    "in_flight", "run_active", "passive", "missing_model", "missing_credentials", "error"
]
"""Why a flush did less than it could, in the order it is found out."""

Stage = Literal["observation", "reflection", "dropper"]

_LIMIT_PREFIX: Final = "maxWorker"


class FlushSession(Protocol):
    """What a flush needs of a session: its view, and a way to add to it."""

    @property
    def session_id(self) -> str: ...

    def entries(self) -> Sequence[Entry]:
        """Return the view of the leaf that is flushed, what was appended here included."""
        ...

    def append(self, data: JsonObject, anchor: str | None) -> None:
        """Append a side record of kind ``custom`` with ``data``, hung on chain entry ``anchor``."""
        ...

    def has_active_run(self) -> bool:
        """Say whether the host is in the middle of a run."""
        ...


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """Who does a stage's work, as configured. Each may lack what it needs; the flush says so."""

    provider: ModelProvider | None = None
    model: JsonValue = None
    """The model asked for; else the settings' one, else the session's."""
    require_explicit_model: bool = False
    """Whether the session's model may not stand in."""
    has_credentials: bool = True
    """False: a credential was asked for by name and is not there."""


class FlushResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was persisted, and why no more was."""

    observations: int = 0
    reflections: int = 0
    dropped: int = 0
    skipped: Skipped | None = None


class FlushStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a flush is under way, and how the last one failed, if it did."""

    is_in_flight: bool
    last_error: str | None = None


def bounds_turns(options: JsonObject) -> bool:
    """Say whether a host's options bound the turns of a run, be it by the default itself."""
    return options.get(f"{_LIMIT_PREFIX}Turns") is not None


def limits_of(options: JsonObject) -> WorkerLimits:
    """Return the worker limits among a host's options (``maxWorkerTurns``…).

    Raises:
        TypeError: ``workerProvider`` or ``workerModel``: configure each worker instead.
        TerminalError: ``store``: a flush writes through its session alone.
        SettingOutOfRange: a limit that is no whole number up to its hard cap.
    """
    for removed in ("workerProvider", "workerModel"):
        if removed in options:
            raise TypeError(f"option {removed} was removed: configure each worker instead")
    if "store" in options:
        raise TerminalError("option store is refused: a flush writes through its session alone")
    said: JsonObject = {
        f"max{key.removeprefix(_LIMIT_PREFIX)}": value
        for key, value in options.items()
        if key.startswith(_LIMIT_PREFIX)
    }
    try:
        return resolve_worker_limits(said)
    except SettingOutOfRange as error:
        key = f"{_LIMIT_PREFIX}{error.key.removeprefix('max')}"
        raise SettingOutOfRange(key, error.actual, error.least, error.most) from error
