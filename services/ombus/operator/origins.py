"""Where each setting was said, and what was said that nobody reads."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

import msgspec
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.resolution import resolve_settings
from ombus_schemas.settings import PROVIDER_KEY, MemorySettings, settings_json

from ombus.connections import FILE, said_of
from ombus.memory_settings import PASSIVE, of_environment
from ombus.settings import (
    KAFKA_KEY,
    KEYS,
    PREFIX,
    PROCESS_TABLES,
    REDIS_KEY,
    BadSetting,
    ProcessSettings,
)
from ombus.tables import perhaps, taken_by
from ombus.wiring_grants import RedisConnection
from ombus.wiring_kafka import Connection

_WORKER: Final = (
    "model",
    "instruction",
    "thinkingLevel",
    "providerOptions",
    "requireExplicitModel",
)
MEMORY_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "observation": ("messageTokens", *_WORKER),
    "reflection": ("observationTokens", *_WORKER),
    "dropper": ("targetTokens", "policy", *_WORKER),
    "context": (
        "recentMessages",
        "recentMessageMaxTokens",
        "compactAfterTokens",
        "observationsPoolMaxTokens",
        "observationsPoolTargetTokens",
    ),
    "retrieval": ("pageLimit",),
    "funnel": ("workspace",),
}
"""The groups of memory settings and what each may hold (S17)."""
MEMORY_SCALARS: Final = (
    "agentMaxTurns",
    "passive",
    "debugLog",
    "showWorkerNotifications",
    "observerChunkMaxTokens",
    "sharedScopes",
    "contextWindowTokens",
    "sessionModel",
)


HIDDEN: Final = "(hidden)"


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that holds."""

    key: str
    value: JsonValue
    origin: str
    """``flag``, ``environment NAME``, a file, or ``default``."""

    @property
    def shown(self) -> str:
        return _json(self.value)


def effective(
    settings: ProcessSettings,
    flags: AbstractSet[str],
    environ: Mapping[str, str],
    files: Sequence[Path],
) -> list[Effective]:
    """Return every process setting, every memory setting, and what the other tables say.

    ``files`` go weakest first. No secret is among the values.
    """
    said = [(file, _read(file)) for file in files]
    found: list[Effective] = []
    for key in KEYS:
        name = f"{PREFIX}{key.upper().replace('-', '_')}"
        origin = next((str(file) for file, content in reversed(said) if key in content), "default")
        if name in environ:
            origin = f"environment {name}"
        if key in flags:
            origin = "flag"
        held = str(settings.folder) if key == "data" else getattr(settings, key.replace("-", "_"))
        value: JsonValue = msgspec.to_builtins(held)
        found.append(Effective(key=key, value=value, origin=origin))
    memory = settings_json(settings.memory or MemorySettings())
    groups = [(f"environment {PASSIVE}", of_environment(environ))]
    groups += [(str(file), _group(content)) for file, content in said]
    for key, value in memory.items():
        items = value.items() if isinstance(value, dict) and key in MEMORY_KEYS else [("", value)]
        for name, each in items:
            origin = "default"
            # Groups merge shallowly: the strongest file that names the group gives all of it.
            for source, group in groups:
                if key in group:
                    inner = group[key]
                    named = not name or (isinstance(inner, dict) and name in inner)
                    given = inner[name] if name and named and isinstance(inner, dict) else inner
                    origin = _origin(source, given, each) if named else "default"
            path = f"{key}.{name}" if name else key
            found.append(Effective(key=f"{PROVIDER_KEY}.{path}", value=each, origin=origin))
    return [*found, *_of_tables(said), *_of_connections(environ, files)]


def unknown_memory_keys(files: Sequence[Path]) -> list[str]:
    """Return ``FILE: KEY`` for each memory key that no release of today reads."""
    found: list[str] = []
    for file in files:
        for key, value in _group(_read(file)).items():
            path = f"{file}: {PROVIDER_KEY}.{key}"
            if key in MEMORY_KEYS and isinstance(value, dict):
                found += [f"{path}.{name}" for name in value if name not in MEMORY_KEYS[key]]
            elif key not in MEMORY_KEYS and key not in MEMORY_SCALARS:
                found.append(path)
    return found


def parsed(said: Sequence[str]) -> JsonObject:
    """Return ``group.key=value`` texts as memory settings; a value that is no JSON is text.

    Raises:
        BadSetting: a text without ``=``, a key nobody knows, or a value that is none of it.
        SettingRemoved, SettingOutOfRange: as ``resolve_settings``.
    """
    settings: JsonObject = {}
    for text in said:
        path, equals, value = text.removeprefix(f"{PROVIDER_KEY}.").partition("=")
        group, _, name = path.partition(".")
        known = name in MEMORY_KEYS.get(group, ()) if name else group in MEMORY_SCALARS
        if not equals or not known:
            every = [f"{each}.{key}" for each, keys in MEMORY_KEYS.items() for key in keys]
            # A key without its group is nearest to itself, not to what is spelt like it.
            named = [each for each in every if each.endswith(f".{path}")]
            hint = perhaps(named[0] if named else path, [*every, *MEMORY_SCALARS])
            fact = f"is no KEY=VALUE of a memory setting: {hint}`ombus settings` lists them"
            raise BadSetting(text, fact)
        try:
            decoded: JsonValue = msgspec.json.decode(value)
        except msgspec.DecodeError:
            decoded = value
        if name:
            inner = settings.setdefault(group, {})
            assert isinstance(inner, dict)
            inner[name] = decoded
        else:
            settings[group] = decoded
        taken: JsonValue = settings_json(resolve_settings(settings)).get(group)
        held = taken.get(name) if name and isinstance(taken, dict) else taken
        if not _is_taken(decoded, held):
            fact = f"is not taken: {path} takes {_kind(group, name)}, and would be {_json(held)}"
            raise BadSetting(text, fact)
    return settings


def _kind(group: str, name: str) -> str:
    kind: object = MemorySettings
    for key in filter(None, (group, name)):
        assert isinstance(kind, type)
        (kind,) = (each.type for each in msgspec.structs.fields(kind) if each.encode_name == key)
    words = taken_by(kind)
    # Only counts, which are whole, may be 0 (S17).
    return f"{words} above 0" if words == "a number" else words


def _of_tables(said: Sequence[tuple[Path, JsonObject]]) -> Iterator[Effective]:
    for table in PROCESS_TABLES:
        # The strongest file that has a table gives all of it.
        for file, content in reversed(said):
            if table in content:
                for key, value in _leaves(table, content[table]):
                    yield Effective(key=key, value=_public(value), origin=str(file))
                break


def _leaves(path: str, value: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from _leaves(f"{path}.{name}", each)
    else:
        yield path, value


def _of_connections(environ: Mapping[str, str], files: Sequence[Path]) -> Iterator[Effective]:
    for table, kind in ((KAFKA_KEY, Connection), (REDIS_KEY, RedisConnection)):
        said = said_of(table, environ, files)
        fields = {field.encode_name for field in msgspec.structs.fields(kind)}
        for key, value in said.values.items():
            # A secret is hidden, and so is what may be one under a name that is misspelt.
            is_public = key.endswith(FILE) or (key in fields and "password" not in key)
            yield Effective(
                key=f"{table}.{key}",
                value=_public(value) if is_public else HIDDEN,
                origin=said.sources[key],
            )


def _public(value: JsonValue) -> JsonValue:
    """Return a value without what an address may hold before its host."""
    return HIDDEN if isinstance(value, str) and "://" in value and "@" in value else value


def _origin(source: str, said: JsonValue, held: JsonValue) -> str:
    return source if _is_taken(said, held) else f"default ({source} says {_json(said)})"


def _is_taken(said: JsonValue, held: JsonValue) -> bool:
    """Say whether a value is what was said, not what replaces a value that is none (S17)."""
    return isinstance(held, bool) or said == held


def _json(value: JsonValue) -> str:
    return msgspec.json.encode(value).decode()


def _read(file: Path) -> JsonObject:
    content: JsonObject = tomllib.loads(file.read_text("utf-8"))
    return content


def _group(content: JsonObject) -> JsonObject:
    group = content.get(PROVIDER_KEY)
    return group if isinstance(group, dict) else {}
