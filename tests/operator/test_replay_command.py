"""``ombus replay`` between folders and files, as a person types it."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from ombus.cli.app import app
from ombus.wiring import open_log
from ombus_schemas.topics import GRANTS
from ombus_streams.runtime.grant_fold import GrantFolds
from typer.testing import CliRunner

from tests.scopes.fleet import SCOPE, Owner
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


def test_grants_are_copied_when_they_are_asked_for_and_missed_when_not(
    data: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    entries = ("--to", "sqlite", "--into", str(other))
    assert "grants" not in run(data, *entries)
    with closing(open_log(data / "grants", topic=GRANTS)) as log:
        owner = Owner(log, "a")
        owner.take()
        owner.grant("b", "c")
        owner.revoke("c")

    assert "its grants of scopes stay behind" in run(data, *entries)
    assert "copied 3 records of 1 sessions" in run(data, *entries, "--grants")

    with closing(open_log(other / "grants", topic=GRANTS)) as copy:
        key = b"acme/a"
        found = GrantFolds(copy).snapshot(copy.incarnation, copy.partition_of(key), key, SCOPE)
    assert found is not None
    assert found.scope.granted("open") == ("b",)
    with closing(open_log(data)) as log, closing(open_log(other)) as copied:
        assert by_key(copied) == by_key(log)


def test_a_sessions_grants_come_with_its_revocations(data: Path, tmp_path: Path) -> None:
    with closing(open_log(data / "grants", topic=GRANTS)) as log:
        for name in "ab":
            owner = Owner(log, name)
            owner.take()
            owner.grant("c", "d")
            owner.revoke("d")

    other = tmp_path / "other"
    run(data, "--to", "sqlite", "--into", str(other), "--grants", "--session", "acme/a")

    with (
        closing(open_log(data / "grants", topic=GRANTS)) as log,
        closing(open_log(other / "grants", topic=GRANTS)) as copy,
    ):
        assert by_key(copy) == {b"acme/a": by_key(log)[b"acme/a"]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "sqlite"], "--to sqlite needs --into"),
        (["--to", "file"], "--to file needs --into"),
        (["--to", "file", "--into", "x", "--offsets", "1-2"], "write PARTITION:FROM-TO"),
        (["--to", "file", "--into", "x", "--since", "yesterday"], "is no time"),
        (["--to", "file", "--into", "x", "--from", "file"], "--from file needs --source"),
        (["--to", "file", "--into", "x", "--grants"], "has no grants of scopes"),
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
