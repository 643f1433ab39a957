"""Sessions remembered again by another provider or under other settings; the log stays as it is."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from ombus.cli import demo
from ombus.cli.app import app
from ombus.operator.shadow import shadow
from ombus.settings import ProcessSettings
from ombus.wiring import Providers, open_log
from ombus_streams.runtime.provider import WorkerName
from typer.testing import CliRunner

from tests.support.engine import diligent, worker
from tests.support.replays import by_key


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a session, its memory and a compaction."""
    found = tmp_path_factory.mktemp("demo") / "data"
    demo.run(found)
    return found


def run(*words: object) -> tuple[int, str]:
    shown = CliRunner().invoke(app, [*map(str, words)])
    return shown.exit_code, shown.output


def test_the_same_provider_and_settings_remember_the_same(folder: Path, tmp_path: Path) -> None:
    with closing(open_log(folder)) as log:
        before = by_key(log)
        settings = ProcessSettings(data=str(folder))
        found = shadow(log, settings, tmp_path / "out")
        assert by_key(log) == before
    (pair,) = found.sessions
    assert pair.real.observations > 0
    assert (pair.agreement, pair.shadow.observations) == (1.0, pair.real.observations)


def test_another_provider_remembers_otherwise_and_the_log_stays(
    folder: Path, tmp_path: Path
) -> None:
    provider = worker(diligent)
    workers: tuple[WorkerName, ...] = ("observer", "reflector", "dropper")
    providers: Providers = dict.fromkeys(workers, provider)
    settings = ProcessSettings(data=str(folder))
    with closing(open_log(folder)) as log:
        before = by_key(log)
        found = shadow(log, settings, tmp_path / "out", providers=providers)
        again = shadow(log, settings, tmp_path / "out", providers=providers)
        assert by_key(log) == before
    (pair,) = found.sessions
    assert pair.shadow.observations != pair.real.observations
    assert 0 < pair.agreement < 1
    assert (again.records, again.sessions) == (0, found.sessions)


def test_the_command_compares_under_other_settings(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, said = run("--data", folder, "shadow", out, "observation.messageTokens=300", "--json")
    assert code == 0, said
    found = json.loads(said)
    assert found["shadow"]["results"] > found["real"]["results"]
    assert run("--data", out / "shadow", "verify")[0] == 0
    assert run("--data", out / "real", "verify")[0] == 0
    code, said = run("--data", folder, "shadow", out, "observation.messageTokens=300")
    assert code == 0
    assert said.splitlines()[-1].startswith("shadow: ")
    assert "0 records of hosts" in said.splitlines()[0]


def test_settings_nobody_knows_are_refused(folder: Path, tmp_path: Path) -> None:
    code, said = run("--data", folder, "shadow", tmp_path / "out", "observation.tokens=300")
    assert code == 2
    assert len(said.splitlines()) == 1
