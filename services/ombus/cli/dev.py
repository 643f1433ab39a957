"""``ombus dev``: brokers for developers and tests, without Docker."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ombus.settings import BadSetting, load_settings, settings_files

UNREACHABLE = 3
"""Exit code: a server that cannot be had."""
USAGE = 2

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
kafka_app = typer.Typer(help="Apache Kafka on loopback, in KRaft mode.", no_args_is_help=True)
redis_app = typer.Typer(help="Redis on loopback, for grants.", no_args_is_help=True)
app.add_typer(kafka_app, name="kafka")
app.add_typer(redis_app, name="redis")

Folder = Annotated[
    Path | None,
    typer.Option(help="Where its data, logs and pids lie.", show_default="the data folder's .dev"),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object, for scripts.")]
Wipe = Annotated[bool, typer.Option("--wipe", help="Delete what it stored, too.")]


@kafka_app.command("up")
def kafka_up(
    brokers: Annotated[int, typer.Option(help="How many; fixed until `down --wipe`.")] = 1,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Start the brokers, fetched with Maven the first time, and return once they serve."""
    from ombus.dev import kafka

    with _reported():
        cluster = kafka.up(_folder(folder, "kafka"), brokers)
    if as_json:
        _print_json({"bootstrap": cluster.bootstrap, **_fields(cluster)})
        return
    print(f"Apache Kafka {cluster.version}, {len(cluster.brokers)} broker(s), in {cluster.folder}")
    for broker in cluster.brokers:
        through = f"{broker.proxied_port} for a proxy on {broker.advertised_port}"
        print(f"  broker {broker.node_id}: {broker.address} ({through})")
    print(f"bootstrap servers: {cluster.bootstrap}")


@kafka_app.command("down")
def kafka_down(folder: Folder = None, wipe: Wipe = False) -> None:
    """Stop the brokers; what is on them stays, unless it is wiped."""
    from ombus.dev import kafka

    with _reported():
        n_running = kafka.down(_folder(folder, "kafka"), wipe=wipe)
    print(f"{n_running} broker(s) stopped")


@redis_app.command("up")
def redis_up(folder: Folder = None, as_json: AsJson = False) -> None:
    """Start the server and return once it answers."""
    from ombus.dev import redis

    with _reported():
        server = redis.up(_folder(folder, "redis"))
    if as_json:
        _print_json({"url": server.url, **_fields(server)})
        return
    print(f"Redis {server.version} at {server.url}, in {server.folder}")


@redis_app.command("down")
def redis_down(folder: Folder = None, wipe: Wipe = False) -> None:
    """Stop the server; what it stored stays, unless it is wiped."""
    from ombus.dev import redis

    with _reported():
        was_running = redis.down(_folder(folder, "redis"), wipe=wipe)
    print("stopped" if was_running else "was not running")


def _folder(given: Path | None, name: str) -> Path:
    if given is not None:
        return given.absolute()
    try:
        settings = load_settings({}, os.environ, settings_files(os.environ, Path.cwd()))
    except BadSetting as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(USAGE) from error
    return settings.folder.absolute() / ".dev" / name


@contextmanager
def _reported() -> Iterator[None]:
    from ombus.dev.errors import DevError

    try:
        yield
    except DevError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(UNREACHABLE) from error


def _fields(found: msgspec.Struct) -> dict[str, object]:
    return dict(msgspec.to_builtins(found))


def _print_json(found: dict[str, object]) -> None:
    print(msgspec.json.encode(found).decode())
