"""``ombus replay`` between folders and files, as a person types it."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from ombus.cli.app import app
from ombus.wiring import open_log
from typer.testing import CliRunner

from tests.support.replays import by_key, entry_draft


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    with closing(open_log(folder)) as log:
        log.append([entry_draft(session, number) for number in range(20) for session in "ab"])
    return folder


def run(data: Path, *words: str) -> str:
    shown = CliRunner().invoke(app, ["--data", str(data), "replay", *words])
    assert shown.exit_code == 0, shown.output
    return shown.output


def test_a_folder_goes_to_a_file_and_from_there_to_another_folder(
    data: Path, tmp_path: Path
) -> None:
    file, other = str(tmp_path / "out.jsonl"), tmp_path / "other"
    assert run(data, "--to", "file", "--into", file) == "copied 40 records of 2 sessions\n"
    run(data, "--from", "file", "--source", file, "--to", "sqlite", "--into", str(other))
    with closing(open_log(data)) as log, closing(open_log(other)) as copy:
        assert by_key(copy) == by_key(log)


def test_it_goes_on_where_it_was_and_says_so_as_json(data: Path, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    first = ("--to", "sqlite", "--into", other, "--session", "t/a", "--json")
    assert json.loads(run(data, *first))["copied"] == 20
    rest = json.loads(run(data, "--to", "sqlite", "--into", other, "--json"))
    assert (rest["copied"], rest["alreadyThere"]) == (20, 20)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "sqlite"], "--to sqlite needs --into"),
        (["--to", "file"], "--to file needs --into"),
        (["--to", "file", "--into", "x", "--offsets", "1-2"], "write PARTITION:FROM-TO"),
        (["--to", "file", "--into", "x", "--since", "yesterday"], "is no time"),
        (["--to", "file", "--into", "x", "--from", "file"], "--from file needs --source"),
        (["--to", "kafka"], "bootstrap-servers is not set"),
        (["--to", "nowhere"], "nowhere"),
    ],
)
def test_what_is_missing_is_named(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, ["--data", str(data), "replay", *words])
    assert shown.exit_code == 2
    assert said in shown.output


def test_an_empty_folder_is_no_log(tmp_path: Path) -> None:
    into = str(tmp_path / "x")
    words = ["--data", str(tmp_path / "none"), "replay", "--to", "file", "--into", into]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 2
    assert "[no_data]" in shown.output


def test_a_folder_is_not_copied_into_itself(data: Path) -> None:
    words = ["--data", str(data), "replay", "--to", "sqlite", "--into", str(data)]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 2
    assert "[same_log]" in shown.output
