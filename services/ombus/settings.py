"""Settings of a process: where the data lie, who waits how long, what is logged; and the memory's.

Precedence: flags, then ``OMBUS_*`` of the environment, then the project's ``ombus.toml``, then the
user's ``config.toml``. Process settings never reach a fold; what ``[observational-memory]`` says
does, but only as a fact on the log (``operator.opening``).
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec
from ombus_schemas.ids import is_tenant_id
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.resolution import resolve_settings
from ombus_schemas.secrets import MIN_CHARS, BadSecret, needles
from ombus_schemas.settings import PROVIDER_KEY, MemorySettings, SettingOutOfRange, SettingRemoved

from ombus.memory_settings import PASSIVE, BadPassive, layered, of_environment
from ombus.models import TABLES, ModelSettings, model_settings
from ombus.secrets import load_secrets
from ombus.supervising import TABLE as SUPERVISION_TABLE
from ombus.supervising import SupervisionSettings, supervision_settings
from ombus.tables import BadTable, misfit, unknown

PREFIX: Final = "OMBUS_"
CONFIG: Final = "OMBUS_CONFIG"
KAFKA_KEY: Final = "kafka"
"""The table of the connection to Kafka, read where there is one (``wiring_kafka``)."""
REDIS_KEY: Final = "redis"
"""The table of the connection to Redis, read where there is one (``wiring_grants``)."""
_ELSEWHERE: Final = ("OMBUS_KAFKA_", "OMBUS_REDIS_", "OMBUS_TEST_", "OMBUS_CHILD_")
"""The connection to Kafka, where tests find their brokers, what a child's program is told."""
PROJECT_FILE: Final = "ombus.toml"
DEFAULT_DATA: Final = "~/.local/share/ombus"


class BadSetting(ValueError):
    """A setting nobody knows, or a value that is none; ``path`` is where it was said."""

    def __init__(self, path: str, fact: str) -> None:
        super().__init__(path, fact)
        self.path, self.fact = path, fact

    def __str__(self) -> str:
        return f"{self.path} {self.fact}"


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What one process was told."""

    data: str
    """The data folder."""
    tenant: str = "local"
    partitions: int | None = None
    """Virtual partitions of a log that is created now; of one that exists they are fixed."""
    wait_seconds: float = 60.0
    """How long a command waits for whoever folds without seeing progress."""
    log_level: str = "info"
    log_json: bool = False
    secrets_file: str | None = None
    """A file of values that must never get onto the log (``ombus_schemas.secrets``)."""
    redact_patterns: bool = True
    """Whether appends are searched for what looks like a secret; imports always are."""
    redact_env: tuple[str, ...] = ()
    """Environment variables whose values must never get onto the log."""
    traces: Literal["off", "global", "otlp", "console"] = "off"
    """Where spans go (``telemetry.spans``)."""
    gateway_rate: float | None = None
    """Bounds of a gateway; of those that are not set ``gateway.limits`` has the defaults."""
    gateway_burst: int | None = None
    gateway_tenant_rate: float | None = None
    gateway_tenant_burst: int | None = None
    gateway_max_requests: int | None = None
    gateway_max_body: int | None = None
    gateway_max_tails: int | None = None
    secrets: tuple[str, ...] = ()
    """Every form of every known value, longest first; not to be set itself."""
    memory: MemorySettings | None = None
    """What the settings files say about memory; ``None``: nothing, so nothing is written."""
    memory_said: JsonObject = {}
    """The same as it was said, environment included: a session's own word goes before it."""
    models: ModelSettings = ModelSettings()
    supervision: SupervisionSettings = SupervisionSettings()

    @property
    def folder(self) -> Path:
        return Path(self.data).expanduser()


KEYS: Final[Mapping[str, type]] = {
    "data": str,
    "tenant": str,
    "partitions": int,
    "wait-seconds": float,
    "log-level": str,
    "log-json": bool,
    "secrets-file": str,
    "redact-patterns": bool,
    "redact-env": tuple[str, ...],
    "traces": str,
    "gateway-rate": float,
    "gateway-burst": int,
    "gateway-tenant-rate": float,
    "gateway-tenant-burst": int,
    "gateway-max-requests": int,
    "gateway-max-body": int,
    "gateway-max-tails": int,
}
"""What may be set, as the files spell it; ``OMBUS_WAIT_SECONDS`` and kin in the environment."""
PROCESS_TABLES: Final = (*TABLES, SUPERVISION_TABLE)
"""The tables that are read whole: that of a stronger file replaces that of a weaker one."""
ALL_TABLES: Final = (PROVIDER_KEY, *PROCESS_TABLES, KAFKA_KEY, REDIS_KEY)
"""The tables a settings file may hold."""
LEVELS: Final = ("debug", "info", "warning", "error")
TRACES: Final = ("off", "global", "otlp", "console")


def load_settings(
    flags: Mapping[str, JsonValue],
    environ: Mapping[str, str],
    files: Sequence[Path],
) -> ProcessSettings:
    """Return the settings that hold; ``files`` go from the weakest to the strongest.

    ``flags`` has keys of ``KEYS``; a value of ``None`` was not given.

    Raises:
        BadSetting: an unknown key, or a value of another type, by its path; data that are a file.
    """
    said: dict[str, JsonValue] = {"data": _default_data(environ)}
    memory: list[JsonObject] = [_of_environment(environ)]
    tables: JsonObject = {}
    tables_from: dict[str, Path] = {}
    for file in files:
        content = read_file(file)
        content.pop(KAFKA_KEY, None)
        content.pop(REDIS_KEY, None)
        named: JsonObject = {name: content.pop(name) for name in PROCESS_TABLES if name in content}
        tables |= named
        tables_from |= dict.fromkeys(named, file)
        group = content.pop(PROVIDER_KEY, None)
        if group is not None:
            if not isinstance(group, dict):
                raise BadSetting(f"{file}: {PROVIDER_KEY}", "is no table")
            memory.append(group)
        said |= {key: _checked(key, value, f"{file}: {key}") for key, value in content.items()}
    for name, text in environ.items():
        if (
            name.startswith(PREFIX)
            and name not in (CONFIG, PASSIVE)
            and not name.startswith(_ELSEWHERE)
        ):
            key = name.removeprefix(PREFIX).lower().replace("_", "-")
            if key not in KEYS:
                known = [f"{PREFIX}{each.upper().replace('-', '_')}" for each in KEYS]
                raise BadSetting(f"environment: {name}", unknown(name, [*known, CONFIG, PASSIVE]))
            said[key] = _checked(key, _listed(key, text), f"environment: {name}")
    for key, flag in flags.items():
        if flag is not None:
            said[key] = _checked(key, flag, f"--{key}")
    settings = msgspec.convert(said, ProcessSettings)
    if settings.folder.is_file():
        raise BadSetting(settings.data, "is a file: --data names a folder")
    try:
        supervision = supervision_settings(tables.pop(SUPERVISION_TABLE, {}))
        models = model_settings(tables)
    except BadTable as error:
        file = tables_from[error.place.partition(".")[0]]
        raise BadSetting(f"{file}: {error.place}", error.fact) from error
    return msgspec.structs.replace(
        settings,
        memory=_memory(memory, files),
        memory_said=layered(memory),
        models=models,
        supervision=supervision,
        secrets=_secrets(settings, environ, models),
    )


def settings_files(environ: Mapping[str, str], project: Path) -> list[Path]:
    """Return the settings files there are: the user's, then the project's, or the one named.

    Raises:
        BadSetting: ``OMBUS_CONFIG`` names no file.
    """
    named = environ.get(CONFIG)
    if named:
        path = Path(named).expanduser()
        if not path.is_file():
            raise BadSetting(str(path), "is no file: name a settings file, or unset OMBUS_CONFIG")
        return [path]
    home = environ.get("XDG_CONFIG_HOME") or "~/.config"
    user = Path(home).expanduser() / "ombus" / "config.toml"
    return [path for path in (user, project / PROJECT_FILE) if path.is_file()]


def _default_data(environ: Mapping[str, str]) -> str:
    home = environ.get("XDG_DATA_HOME")
    return f"{home}/ombus" if home else DEFAULT_DATA


def read_file(file: Path) -> JsonObject:
    """Return what a settings file says.

    Raises:
        BadSetting: it cannot be read, or is no TOML.
    """
    try:
        content: JsonObject = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise BadSetting(str(file), f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSetting(str(file), f"is no TOML: {error}") from error
    return content


def _listed(key: str, text: str) -> JsonValue:
    if key == "redact-env":
        return [name.strip() for name in text.split(",") if name.strip()]
    return text


def _checked(key: str, value: JsonValue, path: str) -> JsonValue:
    kind = KEYS.get(key)
    if kind is None:
        raise BadSetting(path, unknown(key, [*KEYS, *(f"[{name}]" for name in ALL_TABLES)]))
    try:
        found: JsonValue = msgspec.convert(value, kind, strict=not isinstance(value, str))
    except msgspec.ValidationError as error:
        raise BadSetting(path, misfit(kind)) from error
    match key:
        case "tenant" if not is_tenant_id(str(found)):
            raise BadSetting(path, "is no tenant id: use 1 to 128 of A-Z a-z 0-9 . _ : -")
        case "log-level" if found not in LEVELS:
            raise BadSetting(path, f"is none of {', '.join(LEVELS)}")
        case "traces" if found not in TRACES:
            raise BadSetting(path, f"is none of {', '.join(TRACES)}")
        case "gateway-max-body" if not isinstance(found, int) or found < 1_024:
            raise BadSetting(path, "is no number of bytes from 1,024 on")
        case _ if key.startswith("gateway-") and not _is_above_zero(found):
            raise BadSetting(path, "is no number above 0")
        case "partitions" if not isinstance(found, int) or not 1 <= found <= 1_024:
            raise BadSetting(path, "is no whole number from 1 to 1,024")
        case "wait-seconds" if not isinstance(found, int | float) or not 0 < found < 86_400:
            raise BadSetting(path, "is no number of seconds above 0")
        case "data" if not found:
            raise BadSetting(path, "is empty: name a folder")
    return found


def _is_above_zero(value: JsonValue) -> bool:
    return isinstance(value, int | float) and value > 0


def _of_environment(environ: Mapping[str, str]) -> JsonObject:
    try:
        return of_environment(environ)
    except BadPassive as error:
        raise BadSetting(f"environment: {PASSIVE}", str(error)) from error


def _secrets(
    settings: ProcessSettings, environ: Mapping[str, str], models: ModelSettings
) -> tuple[str, ...]:
    """Return the needles of the secrets file and of the named variables that are set."""
    file, values = settings.secrets_file, list[str]()
    if file is not None:
        try:
            values += load_secrets(Path(file))
        except BadSecret as error:
            raise BadSetting(f"secrets-file: {file}:", str(error)) from error
        except (OSError, UnicodeDecodeError) as error:
            raise BadSetting(f"secrets-file: {file}", "cannot be read as text") from error
    for name in settings.redact_env:
        value = environ.get(name)
        if value:
            try:
                needles((value,))
            except BadSecret as error:
                raise BadSetting(f"redact-env: the value of {name}", error.fact) from error
            values.append(value)
    values += [key for key in models.keys(environ) if len(key) >= MIN_CHARS]
    return needles(values)


def _memory(groups: Sequence[JsonObject], files: Sequence[Path]) -> MemorySettings | None:
    said = layered(groups)
    if not said and len(groups) < 2:
        return None
    try:
        return resolve_settings(said)
    except (SettingRemoved, SettingOutOfRange) as error:
        where = ", ".join(map(str, files))
        raise BadSetting(f"{where}: {PROVIDER_KEY}:", str(error)) from error
