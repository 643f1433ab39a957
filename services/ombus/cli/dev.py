"""``ombus dev``: brokers for developers and tests, without Docker."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ombus.cli.options import Json
from ombus.cli.output import note, say, say_json
from ombus.cli.shell import settings_for

app = typer.Typer(help="Brokers for developers and tests, without Docker.", no_args_is_help=True)
kafka_app = typer.Typer(help="Apache Kafka on loopback, in KRaft mode.", no_args_is_help=True)
redis_app = typer.Typer(help="Redis on loopback, for grants.", no_args_is_help=True)
app.add_typer(kafka_app, name="kafka")
app.add_typer(redis_app, name="redis")

Folder = Annotated[
    Path | None,
    typer.Option(help="Where its data, logs and pids lie.", show_default="the data folder's .dev"),
]
Wipe = Annotated[bool, typer.Option("--wipe", help="Delete what it stored, too.")]


@kafka_app.command("up")
def kafka_up(
    context: typer.Context,
    brokers: Annotated[int, typer.Option(help="How many; fixed until `down --wipe`.")] = 1,
    folder: Folder = None,
    json: Json = False,
) -> None:
    """Start the brokers, fetched with Maven the first time, and return once they serve."""
    from ombus.dev import kafka

    with _reported():
        cluster = kafka.up(_folder(context, folder, "kafka"), brokers)
    if json:
        say_json({"bootstrap": cluster.bootstrap, **_fields(cluster)})
        return
    say(f"Apache Kafka {cluster.version}, {len(cluster.brokers)} broker(s), in {cluster.folder}")
    for broker in cluster.brokers:
        through = f"{broker.proxied_port} for a proxy on {broker.advertised_port}"
        say(f"  broker {broker.node_id}: {broker.address} ({through})")
    say(f"bootstrap servers: {cluster.bootstrap}")


@kafka_app.command("down")
def kafka_down(context: typer.Context, folder: Folder = None, wipe: Wipe = False) -> None:
    """Stop the brokers; what is on them stays, unless it is wiped."""
    from ombus.dev import kafka

    with _reported():
        n_running = kafka.down(_folder(context, folder, "kafka"), wipe=wipe)
    say(f"{n_running} broker(s) stopped")


@redis_app.command("up")
def redis_up(context: typer.Context, folder: Folder = None, json: Json = False) -> None:
    """Start the server and return once it answers."""
    from ombus.dev import redis

    with _reported():
        server = redis.up(_folder(context, folder, "redis"))
    if json:
        say_json({"url": server.url, **_fields(server)})
        return
    say(f"Redis {server.version} at {server.url}, in {server.folder}")


@redis_app.command("down")
def redis_down(context: typer.Context, folder: Folder = None, wipe: Wipe = False) -> None:
    """Stop the server; what it stored stays, unless it is wiped."""
    from ombus.dev import redis

    with _reported():
        was_running = redis.down(_folder(context, folder, "redis"), wipe=wipe)
    say("stopped" if was_running else "was not running")


def _folder(context: typer.Context, given: Path | None, name: str) -> Path:
    if given is not None:
        return given.absolute()
    return settings_for(context).folder.absolute() / ".dev" / name


@contextmanager
def _reported() -> Iterator[None]:
    from ombus.cli.exits import UNREACHABLE
    from ombus.dev.errors import DevError

    try:
        yield
    except DevError as error:
        # Not squeezed into one line: the way out may be the end of a broker's log.
        note(f"ombus: {error}")
        raise typer.Exit(UNREACHABLE) from error


def _fields(found: msgspec.Struct) -> dict[str, object]:
    return dict(msgspec.to_builtins(found))
