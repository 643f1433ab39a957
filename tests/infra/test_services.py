"""The service files parse, and what they start is what the command line takes."""

import configparser
import plistlib
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from ombus.cli.app import app
from typer.main import get_command
from typer.testing import CliRunner

INFRA = Path(__file__).parents[2] / "infra"
UNIT = INFRA / "systemd" / "ombus-watch.service"
PLIST = INFRA / "launchd" / "dev.ombus.watch.plist"


def started(command: str, home: Path) -> list[str]:
    """Return the words after ``ombus`` with the home folder in their place."""
    program, *words = shlex.split(command.replace("%h", str(home)).replace("$HOME", str(home)))
    assert program == str(home / ".local/bin/ombus")
    return words


def assert_is_taken(words: list[str], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for word in words:
        if word.startswith(str(home)):
            Path(word).mkdir(parents=True)
    monkeypatch.setenv("OMBUS_DATA", str(home / "data"))
    assert "watch" in get_command(app).commands  # type: ignore[attr-defined]
    done = CliRunner().invoke(app, [*words, "--once"])
    assert done.exit_code == 0, done.output


def test_the_systemd_unit_parses_and_starts_a_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(UNIT.read_text())

    assert parser.sections() == ["Unit", "Service", "Install"]
    service = parser["Service"]
    assert (service["Restart"], service["KillSignal"]) == ("always", "SIGTERM")
    assert parser["Install"]["WantedBy"] == "default.target"
    assert_is_taken(started(service["ExecStart"], tmp_path), tmp_path, monkeypatch)


def test_systemd_itself_finds_nothing_in_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is absent")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("%h/.local/bin/ombus", "/bin/true"))
    done = subprocess.run(
        [analyze, "verify", "--user", str(unit)], capture_output=True, text=True, check=False
    )
    assert UNIT.name not in done.stderr, done.stderr


def test_the_launchd_file_parses_and_starts_the_same_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = plistlib.loads(PLIST.read_bytes())

    assert job["Label"] == PLIST.stem
    assert job["KeepAlive"] is True
    shell, option, command = job["ProgramArguments"]
    assert (shell, option) == ("/bin/sh", "-c")
    assert command.startswith("exec ")
    command, _, log = command.removeprefix("exec ").partition(" 2>>")
    assert log == '"$HOME/Library/Logs/ombus-watch.log"'
    assert_is_taken(started(command, tmp_path), tmp_path, monkeypatch)


def test_both_follow_the_same_folders(tmp_path: Path) -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(UNIT.read_text())
    command = plistlib.loads(PLIST.read_bytes())["ProgramArguments"][2].removeprefix("exec ")

    there = started(command.partition(" 2>>")[0], tmp_path)

    assert there == started(parser["Service"]["ExecStart"], tmp_path)
