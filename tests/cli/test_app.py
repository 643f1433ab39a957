"""The command line as a whole: help, version, start time, errors without tracebacks."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.conftest import SAMPLE, Cli

COMMANDS = [
    "up",
    "import",
    "append",
    "flush",
    "compact",
    "sessions",
    "status",
    "view",
    "context",
    "recall",
    "page",
    "tail",
    "verify",
    "rebuild",
    "demo",
]


def test_help_names_every_command_the_data_folder_and_the_exit_codes(cli: Cli) -> None:
    shown = cli("--help").out

    for command in COMMANDS:
        assert f" {command} " in shown
        assert cli(command, "--help").code == 0
    assert "~/.local/share/ombus" in shown
    assert "OMBUS_DATA" in shown
    assert "3 unreachable" in shown


def test_help_shows_each_command_with_its_whole_sentence_under_what_it_is_for(cli: Cli) -> None:
    shown = cli("--help").out

    panels = [line[:-1] for line in shown.splitlines() if line.endswith(":") and line[0] != " "]
    assert panels == ["Options", "Work", "Read", "Prove", "Operate", "Develop"]
    assert "..." not in shown.partition("Work:")[2]


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["append"], "A line is {"),
        (["replay"], "Appends nothing"),
        (["dlq", "discard"], ""),
    ],
)
def test_a_paragraph_of_help_is_broken_at_the_width_alone(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: list[str], line: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = cli(*command, "--help").out.partition("╭")[0]

    lines = [each.strip() for each in shown.splitlines()]
    assert any(each.startswith(line) for each in lines)
    for this, following in pairwise(lines):
        first = following.split(" ")[0]
        assert not this or not first or len(this) + 1 + len(first) > 78, this


def test_an_unknown_worker_is_told_which_there_are_before_anything_else(cli: Cli) -> None:
    done = cli("worker", "nosuch")

    assert done.code == 2
    assert done.err.startswith("ombus: worker nosuch is none of observer, reflector, ")


def test_help_imports_nothing_that_costs_time() -> None:
    code = (
        "import sys; from ombus.cli.app import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "print([name for name in sys.modules if name.split('.')[0] in "
        "('ombus_streams', 'sqlite3', 'structlog', 'asyncio', 'rich')])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout.splitlines()[-1] == "[]"


def test_an_unknown_command_or_option_is_misuse(cli: Cli) -> None:
    assert cli("fold").code == 2
    assert cli("view", "--leef", "x").code == 2


def test_the_data_folder_may_be_named_before_and_behind_the_command(
    cli: Cli, tmp_path: Path
) -> None:
    cli("--data", tmp_path / "a", "append", "s1", stdin='{"role":"user","content":"x"}')
    cli("append", "s2", "--data", tmp_path / "b", stdin='{"role":"user","content":"x"}')

    assert cli("sessions", "--data", tmp_path / "a", "--json").json()["session"] == "local/s1"
    assert cli("--data", tmp_path / "b", "sessions", "--json").json()["session"] == "local/s2"


def test_data_that_are_a_file_are_refused_by_every_command(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "ferry.jsonl"
    file.write_text("{}")

    for command in (("import", SAMPLE), ("sessions",), ("up",)):
        done = cli("--data", file, *command)
        assert done.code == 2
        assert done.err == f"ombus: {file} is a file: --data names a folder\n"


def test_a_damaged_log_is_named_with_its_way_out(cli: Cli, folder: Path) -> None:
    folder.mkdir()
    (folder / "log.db").write_bytes(b"no database at all" * 1_000)

    done = cli("view")

    assert done.code == 3
    assert str(folder / "log.db") in done.err
    assert len(done.err.splitlines()) == 1


def test_a_log_with_other_partitions_is_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("append", "s1", stdin='{"role":"user","content":"x"}')
    monkeypatch.setenv("OMBUS_PARTITIONS", "5")

    done = cli("view")

    assert done.code == 3
    assert "8 partitions" in done.err


def test_a_reader_that_goes_early_is_no_error(cli: Cli, folder: Path) -> None:
    cli("import", SAMPLE)
    script = f"{sys.executable} -m ombus.cli tail -n 1000 | head -n 1"

    done = subprocess.run(script, shell=True, capture_output=True, text=True, check=False)

    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def test_the_version_is_that_of_the_package(cli: Cli) -> None:
    assert cli("--version").out.startswith("ombus ")
