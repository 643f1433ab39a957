"""What every command starts from: the settings that hold for it, and the data folder opened."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from ombus.cli.output import progress

if TYPE_CHECKING:
    from ombus_schemas.jsontext import JsonValue

    from ombus.operator.desk import Desk
    from ombus.settings import ProcessSettings
    from ombus.wiring_grants import RedisConnection
    from ombus.wiring_kafka import Connection


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """The options before the command; ``None`` was not given."""

    data: Path | None = None
    tenant: str | None = None
    config: Path | None = None
    wait_seconds: float | None = None
    log_level: str | None = None
    log_json: bool | None = None


def settings_for(
    context: typer.Context,
    data: Path | None = None,
    tenant: str | None = None,
    *,
    quiet: bool = True,
    flags: "Mapping[str, JsonValue] | None" = None,
) -> "ProcessSettings":
    """Return the settings of this command, and let its logs go where they say.

    ``quiet`` commands log from warnings on, unless somebody asked for more. ``flags`` are those of
    the command itself, as the settings files spell them.

    Raises:
        BadSetting: what was set makes no sense.
    """
    from ombus.cli.logs import configure
    from ombus.settings import CONFIG, load_settings, settings_files

    general: Flags = context.find_object(Flags) or Flags()
    environ: Mapping[str, str] = dict(os.environ)
    if general.config is not None:
        environ = {**environ, CONFIG: str(general.config)}
    folder = data or general.data
    given: dict[str, JsonValue] = {
        "data": None if folder is None else str(folder),
        "tenant": tenant or general.tenant,
        "wait-seconds": general.wait_seconds,
        "log-level": general.log_level,
        "log-json": general.log_json,
        **(flags or {}),
    }
    if quiet:
        environ = {"OMBUS_LOG_LEVEL": "warning", **environ}
    settings = load_settings(given, environ, settings_files(environ, Path.cwd()))
    configure(settings.log_level, as_json=settings.log_json, secrets=settings.secrets)
    return settings


def connection_for_command(context: typer.Context, bootstrap_servers: str | None) -> "Connection":
    """Return how this command reaches the brokers.

    Raises:
        BadSetting: nothing says where they are, or what is said makes no sense.
    """
    from ombus.wiring_kafka import connection_for

    settings_for(context)
    # What the client says on its own behalf, the error that follows says better.
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())
    environ, files = _said(context)
    return connection_for(environ, files, bootstrap_servers)


def redis_for_command(context: typer.Context) -> "RedisConnection | None":
    """Return how this command reaches Redis, ``None`` if nothing names one.

    Raises:
        BadSetting: what is said makes no sense.
    """
    from ombus.wiring_grants import redis_for

    return redis_for(*_said(context))


def _said(context: typer.Context) -> tuple[dict[str, str], list[Path]]:
    """Return the environment of a command, and the settings files it names."""
    from ombus.settings import CONFIG, settings_files

    flags: Flags = context.find_object(Flags) or Flags()
    environ = dict(os.environ)
    if flags.config is not None:
        environ[CONFIG] = str(flags.config)
    return environ, settings_files(environ, Path.cwd())


@contextmanager
def desk_for(settings: "ProcessSettings", *, needs_log: bool = True) -> Iterator["Desk"]:
    """Open the data folder, with a line of progress for what must be waited for."""
    from ombus.operator.desk import Desk, Progress

    most = 0
    with progress("folding") as tell:

        def watch(seen: Progress) -> None:
            nonlocal most
            most = max(most, seen.lag)
            tell(most - seen.lag, most)

        with Desk(settings, needs_log=needs_log, watch=watch) as desk:
            yield desk


@contextmanager
def caught_up(context: typer.Context, data: Path | None) -> Iterator["Desk"]:
    """Open the data folder of a command once everything in it is folded."""
    with desk_for(settings_for(context, data)) as desk:
        desk.catch_up()
        yield desk
