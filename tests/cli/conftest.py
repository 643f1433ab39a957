"""A command line in a process, over a data folder of its own."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ombus.cli.app import app
from typer.testing import CliRunner

SHARED = Path(__file__).parents[3] / "shared" / "transcripts"
SAMPLE = Path(__file__).parents[2] / "services" / "ombus" / "cli" / "sample" / "ferry.jsonl"
LOW = """
[observational-memory.observation]
messageTokens = 1000
[observational-memory.reflection]
observationTokens = 500
[observational-memory.dropper]
targetTokens = 1000
[observational-memory.context]
recentMessages = 6
"""
"""Settings under which the sample comes to observations, reflections and a compaction."""


class Done(msgspec.Struct, frozen=True):
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """Return the only line as an object."""
        (line,) = self.out.splitlines()
        value: dict[str, Any] = msgspec.json.decode(line)
        return value

    def lines(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in self.out.splitlines()]


Cli = Callable[..., Done]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Name the data folder of the commands, and keep what this machine is set to out of them."""
    for name in list(os.environ):
        if name.startswith("OMBUS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("OMBUS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return tmp_path / "data"


@pytest.fixture
def cli(folder: Path) -> Cli:
    runner = CliRunner()

    def run(*arguments: object, stdin: str = "") -> Done:
        result = runner.invoke(app, [str(each) for each in arguments], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Done(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def low(cli: Cli) -> Cli:
    """The same with thresholds that a short session reaches."""
    Path("ombus.toml").write_text(LOW)
    return cli


@pytest.fixture
def remembered(low: Cli) -> Cli:
    """The same after the sample was imported and flushed."""
    assert low("import", SAMPLE).code == 0
    assert low("flush").code == 0
    return low


@pytest.fixture
def transcripts() -> Path:
    """The folder of real transcripts; absent on most machines, required in CI."""
    if not SHARED.is_dir():
        if os.environ.get("CI"):
            pytest.fail("../shared/transcripts is absent, and CI must have it")
        pytest.skip("../shared/transcripts is absent")
    return SHARED
