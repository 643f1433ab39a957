"""Gateways that share a log on Kafka: in this process, or in one of their own, to be killed."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
from ombus.gateway.limits import Limits
from ombus.gateway.serving import (
    Listening,
    Server,
    address_of,
    listen,
    open_shared_gateway,
    serve,
)
from ombus.settings import load_settings
from ombus.wiring_gateway import Sharing
from ombus.wiring_grants import RedisConnection
from ombus_schemas.topics import GRANTS

from tests.gateway.serving import MAX_WAIT_S, Running
from tests.kafka.world import Place, until

JOIN_SECONDS: Final = 120.0
"""A group without members waits for more of them first, and busy machines are slow."""
ROOT: Final = Path(__file__).parents[2]
SESSIONS: Final = 200
"""Enough names for every partition to have some."""


class Shared(Running):
    """A gateway of several in this process."""

    @property
    def instance(self) -> str:
        return self.gateway.instance

    @property
    def served(self) -> frozenset[int]:
        assert self.gateway.router is not None
        return self.gateway.router.served


@contextmanager
def sharing(
    place: Place,
    names: Sequence[str] = ("a", "b"),
    *,
    role: str = "all",
    toml: str = "",
    grants: str = GRANTS,
    redis: RedisConnection | None = None,
) -> Iterator[list[Shared]]:
    """Serve a place by gateways of these names, until the block ends; each has a share."""
    with ExitStack() as opened:
        found = [
            opened.enter_context(one(place, name, role, toml, grants, redis)) for name in names
        ]
        joined(found, place.partitions)
        yield found


def joined(gateways: Sequence[Shared], partitions: int) -> None:
    """Return once the gateways serve all partitions between them."""

    def is_shared() -> bool:
        served = [number for each in gateways for number in each.served]
        return sorted(served) == list(range(partitions)) and all(each.served for each in gateways)

    until(is_shared, JOIN_SECONDS, "gateways share the partitions")


@contextmanager
def one(
    place: Place,
    name: str,
    role: str,
    toml: str = "",
    grants: str = GRANTS,
    redis: RedisConnection | None = None,
) -> Iterator[Shared]:
    folder = Path(place.folder)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "settings.toml"
    file.write_text(toml)
    settings = load_settings({"data": str(folder)}, {}, [file])
    listening = Listening(port=0)
    listener = listen(listening)
    address = address_of(listening, listener.getsockname()[1])
    said = Sharing(
        instance=name,
        role=role,
        topic=place.topic,
        dead_letters=place.dead_letters,
        grants=grants,
    )
    gateway = open_shared_gateway(
        settings, place.connection, said, address, listening, Limits(), redis=redis
    )
    is_up = threading.Event()
    server = Server(gateway, listening, lambda _: is_up.set())
    thread = threading.Thread(target=lambda: asyncio.run(serve(server, gateway, listener)))
    thread.start()
    try:
        assert is_up.wait(MAX_WAIT_S)
        found = Shared(gateway, address)
        with found.http:
            yield found
    finally:
        server.should_exit = True
        thread.join(2 * MAX_WAIT_S)
        assert not thread.is_alive()


class Gone:
    """A gateway in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], url: str, instance: str) -> None:
        self.url, self.instance = url, instance
        self.http = httpx.Client(base_url=url, timeout=MAX_WAIT_S)
        self.process = process

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.process.wait()

    def served(self) -> list[int]:
        answer = self.http.get("/ready")
        found: list[int] = answer.json().get("partitions", [])
        return found


@contextmanager
def spawned(place: Place, name: str, *options: str, role: str = "all") -> Iterator[Gone]:
    """Run ``ombus serve --kafka`` until the block ends."""
    folder = Path(place.folder)
    folder.mkdir(parents=True, exist_ok=True)
    command: list[str] = [
        sys.executable, "-m", "ombus.cli", "serve", "--port", "0", "--json", "--data", str(folder),
        "--bootstrap-servers", place.bootstrap, "--topic", place.topic,
        "--dead-letters", place.dead_letters, "--instance", name, "--role", role, *options,
    ]  # fmt: skip
    with (folder / f"{name}-{time.monotonic_ns()}.log").open("w") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        try:
            assert process.stdout is not None
            said: dict[str, Any] = msgspec.json.decode(process.stdout.readline())
            found = Gone(process, said["url"], said["instance"])
            with found.http:
                yield found
        finally:
            process.terminate()
            process.wait(MAX_WAIT_S)


def sessions_by_owner(gateways: Sequence[Shared], prefix: str) -> dict[str, str]:
    """Return the name of a session for each gateway that owns one."""
    log = gateways[0].gateway.host.engine.log
    found: dict[str, str] = {}
    for number in range(SESSIONS):
        name = f"{prefix}-{number}"
        partition = log.partition_of(f"local/{name}".encode())
        for each in gateways:
            if partition in each.served:
                found.setdefault(each.instance, name)
    return found
