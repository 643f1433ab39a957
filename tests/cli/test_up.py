"""``ombus up``: the process that folds, how it ends, and that killing it loses nothing.

``KILLS=50 pytest tests/cli/test_up.py`` (``make kills``) is the long form of the last test.
"""

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
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


@contextmanager
def running(*arguments: str, logs: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a process of its own; it is gone afterwards."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([*OMBUS, *arguments], stdin=pipe, stdout=pipe, stderr=logs)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            with suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()


def line_of(stream: IO[bytes] | None) -> str:
    assert stream is not None
    return stream.readline().decode()


@contextmanager
def up(*arguments: str, logs: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``ombus up`` and go on once it is ready."""
    with running("up", *arguments, logs=logs) as process:
        assert "ready" in line_of(process.stdout)
        yield process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_is_ready_and_ends_cleanly(folder: Path, number: signal.Signals) -> None:
    with up("--log-json", logs=subprocess.PIPE) as process:
        assert is_owned(folder)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)

    assert process.returncode == 0
    assert out.decode().splitlines() == ["stopped"]
    events = [msgspec.json.decode(line)["event"] for line in err.splitlines()]
    assert events == ["owner.started", "owner.stopped"]
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


def test_a_second_one_is_refused(cli: Cli, folder: Path) -> None:
    with Ownership(folder):
        done = cli("up", "--wait", 0)

    assert done.code == 3
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
    def at_work(self) -> Iterator[subprocess.Popen[bytes]]:
        with running("append", "load") as process:
            stop = threading.Event()
            threads = [
                threading.Thread(target=self._send, args=(process, stop)),
                threading.Thread(target=self._receive, args=(process,)),
            ]
            for thread in threads:
                thread.start()
            try:
                yield process
            finally:
                stop.set()
                threads[0].join()
                if process.stdin is not None:
                    with suppress(BrokenPipeError):
                        process.stdin.close()
                threads[1].join()

    def _send(self, process: subprocess.Popen[bytes], stop: threading.Event) -> None:
        assert process.stdin is not None
        try:
            for line in list(self._unanswered.values()):
                process.stdin.write(line)
            while not stop.wait(0.005):
                name = f"m{self._n_sent}"
                self._n_sent += 1
                text = f"Rule {name}: never deploy version {name}.{self._n_sent} without a test."
                line = msgspec.json.encode({"role": "user", "id": name, "content": text}) + b"\n"
                self._unanswered[name] = line
                process.stdin.write(line)
                process.stdin.flush()
        except (BrokenPipeError, ValueError):
            return

    def _receive(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
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
    for kill in range(KILLS):
        before = len(appender.acknowledged)
        with up() as process, appender.at_work() as appending:
            wait_until(lambda: len(appender.acknowledged) > before, appending)  # noqa: B023
            threading.Event().wait(chance.uniform(0.0, 0.4))
            process.kill()
            process.wait()
            if chance.random() < 0.5:
                appending.kill()
                appending.wait()
        assert len(appender.acknowledged) > before, kill

    with up():
        assert low("flush", "-s", "load").code == 0
    found = appended(folder)
    assert all(found[name] == 1 for name in appender.acknowledged)
    assert {name: count for name, count in found.items() if count != 1} == {}
    done = low("verify")
    assert done.code == 0, done.out
    assert low("status", "-s", "load", "--json").json()["lag"] == 0


def wait_until(is_done: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    pause = threading.Event()
    for _ in range(int(MAX_WAIT_S / 0.005)):
        if is_done():
            return
        if process.poll() is not None:
            pytest.fail(f"{process.args!r} ended with {process.returncode}")
        pause.wait(0.005)
    pytest.fail(f"nothing happened for {MAX_WAIT_S} s")
