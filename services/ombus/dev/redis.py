"""A Redis server on loopback: as the grant cache wants it (``noeviction``), with an append file."""

import shutil
import socket
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

from ombus.dev.processes import HOST, Process, free_ports, require_tool

ASK_WITHIN: Final = timedelta(seconds=2)
_STATE: Final = "server.json"
_NAME: Final = "redis"
_MAX_ANSWER: Final = 65_536


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """What ``up`` started; ``ombus dev redis up --json`` prints it."""

    folder: str
    port: int
    version: str = ""

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    @property
    def process(self) -> Process:
        return Process(_NAME, Path(self.folder))

    def start(self) -> None:
        """Start it if it does not run; it is not ready yet."""
        program = require_tool("redis-server", "is the server", "redis-server")
        told = {
            "--bind": HOST,
            "--port": str(self.port),
            "--dir": self.folder,
            "--appendonly": "yes",
            "--save": "",
            "--maxmemory-policy": "noeviction",
            # The folder stays in the command line, by which the process is known.
            "--proc-title-template": f"redis-server {self.folder} {{listen-addr}}",
        }
        self.process.start([program, *(word for pair in told.items() for word in pair)])

    def wait(self) -> None:
        """Return once it answers a ping.

        Raises:
            NotReady: it has ended, or does not answer.
        """
        self.process.wait_until(lambda: _ask(self.port, b"PING\r\n").startswith(b"+PONG"))


def up(folder: Path) -> Server:
    """Start the server of ``folder``, and return once it answers.

    Raises:
        ToolMissing: ``redis-server`` is not there.
        NotReady: see the output it names.
    """
    server = find(folder) or Server(folder=str(folder.absolute()), port=free_ports(1)[0])
    server.start()
    server.wait()
    server = msgspec.structs.replace(server, version=_version(server.port))
    (folder / _STATE).write_bytes(msgspec.json.encode(server))
    return server


def find(folder: Path) -> Server | None:
    """Return the server of ``folder``, running or not."""
    try:
        return msgspec.json.decode((folder / _STATE).read_bytes(), type=Server)
    except FileNotFoundError:
        return None


def down(folder: Path, *, wipe: bool = False) -> bool:
    """Stop the server of ``folder``, delete it with ``wipe``; say whether it was running."""
    server = find(folder)
    was_running = server is not None and server.process.stop()
    if wipe:
        shutil.rmtree(folder, ignore_errors=True)
    return was_running


def _version(port: int) -> str:
    for line in _ask(port, b"INFO server\r\n").splitlines():
        name, _, value = line.decode("utf-8", "replace").partition(":")
        if name == "redis_version":
            return value
    return "unknown"


def _ask(port: int, command: bytes) -> bytes:
    """Return the beginning of the answer, empty if there is none."""
    try:
        with socket.create_connection((HOST, port), ASK_WITHIN.total_seconds()) as connection:
            connection.settimeout(ASK_WITHIN.total_seconds())
            connection.sendall(command)
            return connection.recv(_MAX_ANSWER)
    except OSError:
        return b""
