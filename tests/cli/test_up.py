"""``ombus up``: the process that folds, how it ends, and that killing it loses nothing.

``KILLS=50 pytest tests/cli/test_up.py`` (``make kills``) is the long form of the last test.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec
import pytest
from ombus.settings import ProcessSettings
from ombus.wiring import Ownership, is_owned, open_engine

from tests.cli.conftest import SAMPLE, Cli

KILLS = int(os.environ.get("KILLS", "5"))
MAX_WAIT_S = 120
SEED = 20_261_129
OMBUS = (sys.executable, "-m", "ombus.cli")


class Running(msgspec.Struct, frozen=True):
    """A command in a process of its own; what it logs goes to a file."""

    process: subprocess.Popen[bytes]
    logs: Path

    @property
    def stdin(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def running(*arguments: str) -> Iterator[Running]:
    """Run a command; it is gone afterwards."""
    pipe = subprocess.PIPE
    with tempfile.NamedTemporaryFile(prefix="logs-", dir=Path.cwd()) as logs:
        process = subprocess.Popen([*OMBUS, *arguments], stdin=pipe, stdout=pipe, stderr=logs)
        found = Running(process, Path(logs.name))
        try:
            yield found
        finally:
            found.kill()
            for stream in (found.stdin, found.stdout):
                with suppress(BrokenPipeError):
                    stream.close()


@contextmanager
def up(*arguments: str) -> Iterator[Running]:
    """Run ``ombus up`` and go on once it is ready."""
    with running("up", *arguments) as owner:
        first = owner.stdout.readline()
        assert first.startswith((b"ready", b'{"ready"')), owner.logs.read_text()[-2_000:]
        yield owner


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_is_ready_and_ends_cleanly(folder: Path, number: signal.Signals) -> None:
    with up("--log-json") as owner:
        assert is_owned(folder)
        owner.process.send_signal(number)
        out = owner.stdout.read()
        code = owner.process.wait(30)
        logs = owner.logs.read_text().splitlines()

    assert code == 0, logs
    assert out == b"stopped\n"
    events = [msgspec.json.decode(line)["event"] for line in logs]
    # The record that opens each partition may be folded in between, or not yet.
    assert [each for each in events if each != "batch.folded"] == ["owner.started", "owner.stopped"]
    assert not is_owned(folder)


def test_commands_let_it_fold_and_wait_for_it(low: Cli, folder: Path) -> None:
    with up():
        imported = low("import", SAMPLE, "--json").json()
        flushed = low("flush", "--json").json()
        compacted = low("compact")
        viewed = low("view")
        verified = low("verify")
        assert is_owned(folder)

    assert imported["entries"] == 79
    assert flushed["failure"] is None
    assert compacted.code == viewed.code == verified.code == 0
    assert "Two rules before you start" in viewed.out


@pytest.mark.parametrize(
    ("command", "way_out"),
    [("up", "stop that one first"), ("serve", "stop that one first, or serve beside it")],
)
def test_a_second_one_is_refused_by_its_own_name(
    cli: Cli, folder: Path, command: str, way_out: str
) -> None:
    with Ownership(folder):
        done = cli(command, "--wait", 0)

    assert done.code == 3
    assert f"`ombus {command}` needs {folder} for itself, process {os.getpid()}" in done.err
    assert way_out in done.err
    assert "[busy]" in done.err


def test_an_owner_that_does_not_get_on_is_given_up(cli: Cli, folder: Path) -> None:
    cli("append", "s1", stdin='{"role":"user","content":"x"}')
    with Ownership(folder):
        done = cli("--wait-seconds", 0.3, "view")

    assert done.code == 3
    assert "[unanswered]" in done.err


class Appender:
    """Sends messages through ``ombus append`` and remembers which were acknowledged.

    What was not acknowledged is sent again by the next process: at least once, as hosts do.
    """

    def __init__(self) -> None:
        self.acknowledged: set[str] = set()
        self._n_sent = 0
        self._unanswered: dict[str, bytes] = {}

    @contextmanager
    def at_work(self) -> Iterator[Running]:
        with running("append", "load") as command:
            stop = threading.Event()
            sender = threading.Thread(target=self._send, args=(command, stop))
            receiver = threading.Thread(target=self._receive, args=(command,))
            sender.start()
            receiver.start()
            try:
                yield command
            finally:
                stop.set()
                sender.join()
                with suppress(BrokenPipeError):
                    command.stdin.close()
                receiver.join()

    def wait_for_more(self, command: Running) -> None:
        """Return once more is acknowledged than now."""
        before, pause = len(self.acknowledged), threading.Event()
        for _ in range(int(MAX_WAIT_S / 0.005)):
            if len(self.acknowledged) > before:
                return
            if command.process.poll() is not None:
                break
            pause.wait(0.005)
        pytest.fail(f"nothing is acknowledged any more: {command.logs.read_text()[-2_000:]}")

    def _send(self, command: Running, stop: threading.Event) -> None:
        with suppress(BrokenPipeError):
            for line in list(self._unanswered.values()):
                command.stdin.write(line)
            while not stop.wait(0.005):
                name = f"m{self._n_sent}"
                self._n_sent += 1
                text = f"Rule {name}: never deploy version {name}.{self._n_sent} without a test."
                line = msgspec.json.encode({"role": "user", "id": name, "content": text}) + b"\n"
                self._unanswered[name] = line
                command.stdin.write(line)
                command.stdin.flush()

    def _receive(self, command: Running) -> None:
        for line in command.stdout:
            if line.endswith(b"\n"):
                name = line.decode().split()[1]
                self.acknowledged.add(name)
                self._unanswered.pop(name, None)


def appended(folder: Path) -> Counter[str]:
    """Return how often each id of the load is on the log."""
    engine = open_engine(ProcessSettings(data=str(folder)), owns=False)
    try:
        found: Counter[str] = Counter()
        for record in engine.log.of_key(b"local/load"):
            found[msgspec.json.decode(record.value or b"{}")["id"]] += 1
    finally:
        engine.close()
    return found


def test_killed_at_any_moment_it_keeps_every_acknowledged_entry_once(
    low: Cli, folder: Path
) -> None:
    chance = random.Random(SEED)
    appender = Appender()
    Path("ombus.toml").write_text("[observational-memory.observation]\nmessageTokens = 1000\n")
    for _ in range(KILLS):
        with up() as owner, appender.at_work() as appending:
            appender.wait_for_more(appending)
            threading.Event().wait(chance.uniform(0.0, 0.4))
            owner.kill()
            if chance.random() < 0.5:
                appending.kill()

    with up():
        assert low("flush", "-s", "load").code == 0
    found = appended(folder)
    assert all(found[name] == 1 for name in appender.acknowledged)
    assert {name: count for name, count in found.items() if count != 1} == {}
    done = low("verify")
    assert done.code == 0, done.out
    assert low("status", "-s", "load", "--json").json()["lag"] == 0


def test_tail_follows_what_is_appended_until_it_is_interrupted(cli: Cli) -> None:
    cli("append", "s1", stdin='{"role":"user","content":"one","id":"a"}')
    with running("tail", "--follow", "-s", "s1") as command:
        assert b" a user: one" in command.stdout.readline()
        cli("append", "s2", stdin='{"role":"user","content":"elsewhere","id":"x"}')
        cli("append", "s1", stdin='{"role":"user","content":"two","id":"b"}')
        assert b" b user: two" in command.stdout.readline()
        command.process.send_signal(signal.SIGINT)
        assert command.process.wait(30) == 0
