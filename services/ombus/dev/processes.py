"""Servers that outlive the command that started them, known by the pid file in their folder.

A pid is trusted only while the process of that number carries the server's own folder in its
command line: after a restart of the machine the number may belong to anybody.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

from ombus.dev.errors import NotReady, ToolMissing

HOST: Final = "127.0.0.1"
START_WITHIN: Final = timedelta(seconds=120)
STOP_WITHIN: Final = timedelta(seconds=20)
_PAUSE_SECONDS: Final = 0.05
_TAIL_LINES: Final = 15


class Process(msgspec.Struct, frozen=True):
    """A server by its name and its folder, whether it runs or not."""

    name: str
    folder: Path

    @property
    def output(self) -> Path:
        """Where its output goes."""
        return self.folder / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """The number of the running process, ``None`` if it does not run."""
        try:
            pid = int(self._pid_file.read_text("ascii"))
            return pid if _belongs_to(pid, self.folder) else None
        except (OSError, ValueError):
            return None

    def start(self, command: Sequence[str], environ: dict[str, str] | None = None) -> None:
        """Start ``command``, which must name the folder; nothing happens if it runs already."""
        if self.pid is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.output.open("ab") as output:
            # A session of its own: Ctrl-C at the terminal that started it is not meant for it.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environ or {})},
                cwd=self.folder,
                start_new_session=True,
            )
        _started[process.pid] = process
        self._pid_file.write_text(f"{process.pid}\n", "ascii")

    def wait_until(self, is_ready: Callable[[], bool], within: timedelta = START_WITHIN) -> None:
        """Return once ``is_ready`` says so.

        Raises:
            NotReady: it ended, or did not get ready in time; with the last lines of its output.
        """
        deadline = time.monotonic() + within.total_seconds()
        while not is_ready():
            if self.pid is None:
                raise NotReady(self.name, "ended while it was starting", self._way_out())
            if time.monotonic() > deadline:
                fact = f"does not answer after {within.total_seconds():.0f} s"
                raise NotReady(self.name, fact, self._way_out())
            time.sleep(_PAUSE_SECONDS)

    def stop(self, within: timedelta = STOP_WITHIN) -> bool:
        """End it, by force if it takes longer than ``within``; say whether it was running."""
        return self._end(signal.SIGTERM, within)

    def kill(self) -> bool:
        """End it as a crash would; say whether it was running."""
        return self._end(signal.SIGKILL, STOP_WITHIN)

    @property
    def _pid_file(self) -> Path:
        return self.folder / f"{self.name}.pid"

    def _end(self, first: signal.Signals, within: timedelta) -> bool:
        pid = self.pid
        if pid is None:
            self._pid_file.unlink(missing_ok=True)
            return False
        for number, wait in ((first, within), (signal.SIGKILL, STOP_WITHIN)):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                break
            if self._is_gone(pid, wait):
                break
        self._pid_file.unlink(missing_ok=True)
        return True

    def _is_gone(self, pid: int, within: timedelta) -> bool:
        deadline = time.monotonic() + within.total_seconds()
        child = _started.get(pid)
        while time.monotonic() < deadline:
            if child is not None and child.poll() is not None:
                del _started[pid]
                return True
            if self.pid is None:
                return True
            time.sleep(_PAUSE_SECONDS)
        return False

    def _way_out(self) -> str:
        try:
            lines = self.output.read_text("utf-8", "replace").splitlines()[-_TAIL_LINES:]
        except OSError:
            lines = []
        said = "\n  ".join(lines) or "it said nothing"
        return f"read {self.output}; it ends\n  {said}"


_started: dict[int, "subprocess.Popen[bytes]"] = {}
"""Children of this process: one that ended stays a zombie, and looks alive, until it is polled."""


def require_tool(name: str, what_for: str, package: str) -> str:
    """Return the path of a program.

    Raises:
        ToolMissing: with the Debian package that brings it.
    """
    path = shutil.which(name)
    if path is None:
        raise ToolMissing(name, f"is not on the path; it {what_for}", _install(package))
    return path


def free_ports(n_ports: int) -> list[int]:
    """Return ports of loopback that nothing listens on now; all different."""
    sockets = [socket.socket() for _ in range(n_ports)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _install(package: str) -> str:
    return f"install it, on Debian with `apt-get install -y {package}`"


def _belongs_to(pid: int, folder: Path) -> bool:
    """Say whether the process of this number lives and was started over ``folder``.

    Raises:
        OSError: there is no such process.
    """
    proc = Path(f"/proc/{pid}")
    if not proc.parent.is_dir():
        asked = ["ps", "-p", str(pid), "-o", "command="]
        found = subprocess.run(asked, capture_output=True, text=True, check=False)
        return str(folder) in found.stdout
    command = (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    if command:
        return str(folder) in command
    # A zombie has none, and neither has a program in the moment it takes another's place.
    state = (proc / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    return state not in ("Z", "X")
