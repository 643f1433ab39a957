"""``ombus child`` as it is called: what it prints, how it ends, and over a gateway."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ombus.cli.app import app
from typer.testing import CliRunner

from tests.gateway.serving import running
from tests.supervision.test_child import TIMEOUT_S, House, house, until
from tests.supervision.test_child_http import TOML, ask, end_of

__all__ = ["house"]

ECHO = [sys.executable, "-S", "-c", "import sys; print('heard', sys.stdin.read())"]


def started(*arguments: str, command: list[str] = ECHO) -> subprocess.Popen[str]:
    environ = {name: text for name, text in os.environ.items() if not name.startswith("OMBUS_")}
    return subprocess.Popen(
        [sys.executable, "-m", "ombus.cli", "child", "scout", *arguments, "--", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
    )


def test_a_program_answers_to_a_name_until_its_tasks_are_done(house: House) -> None:
    delegation = house.ask("the pump")
    folder = str(house.settings.folder)

    child = started("--data", folder, "--tenant", "acme", "--tasks", "1", "--json")
    said, noted = child.communicate(timeout=TIMEOUT_S)

    assert child.returncode == 0, noted
    claimed, ended = map(json.loads, said.splitlines())
    assert (claimed["delegationId"], claimed["parent"]) == (delegation, "boss")
    assert (ended["standing"], ended["offer"]["epoch"]) == ("finished", 1)
    assert house.end_of(delegation).output == "heard the pump"


def test_a_signal_ends_it_in_order(house: House) -> None:
    house.ask()
    sleep = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    child = started("--data", str(house.settings.folder), "--tenant", "acme", command=sleep)
    assert child.stdout is not None
    assert child.stdout.readline().startswith("claimed ")

    child.send_signal(signal.SIGTERM)

    assert child.wait(TIMEOUT_S) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel has to do it")
def test_a_killed_child_takes_its_program_with_it(house: House, tmp_path: Path) -> None:
    house.ask()
    mark = tmp_path / "pid"
    text = (
        "import os, sys, time\n"
        f"open({str(mark)!r}, 'w').write(str(os.getpid()))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-S", "-c", text]
    child = started("--data", str(house.settings.folder), "--tenant", "acme", command=command)
    until(lambda: mark.exists() and mark.read_text() != "")
    pid = int(mark.read_text())

    child.kill()
    child.wait(TIMEOUT_S)

    until(lambda: not is_alive(pid))


def is_alive(pid: int) -> bool:
    """Say whether a process is there and no zombie that nobody waits for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_program_works_behind_a_gateway(tmp_path: Path) -> None:
    with running(tmp_path, toml=TOML) as gateway:
        delegation = ask(gateway)

        child = started("--url", gateway.url, "--tasks", "1")
        said, noted = child.communicate(timeout=TIMEOUT_S)

        assert child.returncode == 0, noted
        assert said.splitlines() == [f"claimed {delegation} of boss", f"finished {delegation}"]
        assert end_of(gateway, delegation)["output"] == "heard look"


def test_a_name_that_is_none_is_refused() -> None:
    done = CliRunner().invoke(app, ["child", "no/name", "--", "true"])

    assert done.exit_code == 2
    assert "is no child id" in done.output
