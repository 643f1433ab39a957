"""Redis servers of a test's own: one to be killed, two to be swapped, two that are watched."""

import shutil
import subprocess
import time
from pathlib import Path
from typing import Self

import redis
from ombus.dev.processes import HOST, free_ports

from tests.scopes.leading import Lead

START_WITHIN_S = 15.0


class Server:
    """One server process over a folder; what it holds outlives ``kill`` and ``start``."""

    def __init__(self, folder: Path, *options: str, port: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.options = folder, options
        self.port = port or free_ports(1)[0]
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    def start(self) -> None:
        words = ["--port", str(self.port), "--bind", HOST, "--dir", str(self.folder)]
        words += [
            "--repl-diskless-sync-delay",
            "0",
            "--save",
            "",
            "--appendonly",
            "yes",
            "--maxmemory-policy",
            "noeviction",
        ]
        program = shutil.which("redis-server")
        assert program is not None
        with (self.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                [program, *words, *self.options], stdout=output, stderr=output
            )
        wait_until(self.answers)

    def answers(self) -> bool:
        try:
            return bool(self.client().ping())
        except redis.exceptions.RedisError:
            return False

    def client(self) -> "redis.Redis":
        return redis.Redis(host=HOST, port=self.port, socket_timeout=5)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Pair:
    """A primary and a replica behind one address, which follows whoever is promoted."""

    def __init__(self, folder: Path) -> None:
        self.servers = [Server(folder / "a")]
        self.servers.append(Server(folder / "b", "--replicaof", HOST, str(self.servers[0].port)))
        self.primary = 0
        self.lead = Lead(self.servers[0].port)
        self.await_replica()

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.lead.port}"

    def await_replica(self) -> None:
        """Return once the replica has what the primary has."""
        primary = self.servers[self.primary].client()
        wait_until(lambda: bool(primary.wait(1, 1_000)))

    def detach(self) -> None:
        """Let the replica miss what comes from now on; it can be promoted all the same."""
        self.servers[1 - self.primary].client().replicaof("NO", "ONE")

    def fail_over(self) -> None:
        """Lead everybody to the other server; the old one goes on by itself."""
        self.detach()
        self.primary = 1 - self.primary
        server = self.servers[self.primary]
        server.options = ()  # A restart finds it as what it is now.
        self.lead.lead_to(server.port)

    def heal(self) -> None:
        """Make the other server a replica of the primary again."""
        server = self.servers[self.primary]
        self.servers[1 - self.primary].client().replicaof(HOST, str(server.port))
        self.await_replica()

    def close(self) -> None:
        self.lead.close()
        for server in self.servers:
            server.kill()


class Watched:
    """A primary, a replica, and a sentinel that promotes it."""

    NAME = "ombus"

    def __init__(self, folder: Path) -> None:
        self.servers = [Server(folder / "a")]
        self.servers.append(Server(folder / "b", "--replicaof", HOST, str(self.servers[0].port)))
        self.port = free_ports(1)[0]
        settings = folder / "sentinel.conf"
        lines = [
            f"port {self.port}",
            f"bind {HOST}",
            f"dir {folder}",
            f"sentinel monitor {self.NAME} {HOST} {self.servers[0].port} 1",
            f"sentinel down-after-milliseconds {self.NAME} 300",
            f"sentinel failover-timeout {self.NAME} 2000",
        ]
        settings.write_text("\n".join(lines) + "\n")
        program = shutil.which("redis-server")
        assert program is not None
        with (folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                [program, str(settings), "--sentinel"], stdout=output, stderr=output
            )
        self.await_replica()
        wait_until(lambda: bool(self._replicas()))

    @property
    def sentinels(self) -> str:
        return f"{HOST}:{self.port}"

    def await_replica(self) -> None:
        """Return once the replica has what the first server has."""
        wait_until(lambda: bool(self.servers[0].client().wait(1, 1_000)))

    def primary_port(self) -> int:
        address = command(self._sentinel(), "SENTINEL", "get-master-addr-by-name", self.NAME)
        assert isinstance(address, list)
        return int(address[1])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for server in self.servers:
            server.kill()

    def _sentinel(self) -> "redis.Redis":
        return redis.Redis(host=HOST, port=self.port, socket_timeout=5)

    def _replicas(self) -> object:
        try:
            return command(self._sentinel(), "SENTINEL", "replicas", self.NAME)
        except redis.exceptions.RedisError:
            return None


def command(client: "redis.Redis", *words: str | int) -> object:
    """Return the answer to a command in words; the client has no types for it."""
    found: object = client.execute_command(*words)  # type: ignore[no-untyped-call]
    return found


def wait_until(is_so: object, within_s: float = START_WITHIN_S) -> None:
    assert callable(is_so)
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.02)
