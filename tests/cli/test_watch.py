"""``ombus watch`` and ``ombus export`` as commands."""

from pathlib import Path

import msgspec

from tests.cli.conftest import SAMPLE, Cli


def test_a_watch_takes_in_a_folder_and_runs_the_workers(low: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / "ferry.jsonl").write_bytes(SAMPLE.read_bytes())

    done = low("watch", folder, "--backfill", "--once", "--settle", 0)

    assert done.code == 0
    found = low("sessions", "--json").json()
    assert found["observations"] != 0
    assert low("import", SAMPLE, "--json").json()["duplicates"] == 79
    assert low("watch", folder, "--once", "--settle", 0).code == 0
    assert low("sessions", "--json").json() == found
    assert low("verify").code == 0


def test_a_watch_of_folders_that_are_not_there_is_misuse(cli: Cli, tmp_path: Path) -> None:
    done = cli("watch", tmp_path / "nowhere")

    assert done.code == 2
    assert "is not there" in done.err


def test_an_export_is_written_to_a_file_or_to_standard_output(
    remembered: Cli, tmp_path: Path
) -> None:
    session = str(remembered("sessions", "--json").json()["session"])
    path = tmp_path / "out.jsonl"

    done = remembered("export", session, "-o", path)

    n_entries = len(path.read_bytes().splitlines())
    assert done.code == 0
    assert f"{n_entries:,} entries" in done.err
    assert remembered("export", session).out.encode() == path.read_bytes()
    assert list(tmp_path.glob(".*partial*")) == []
    pi = remembered("export", session, "--format", "pi").out.splitlines()
    assert msgspec.json.decode(pi[0])["version"] == 3
    assert "## Observations" in remembered("export", session, "--format", "markdown").out
    assert remembered("import", path, "--json").json()["entries"] == 0


def test_an_unknown_session_is_named(cli: Cli) -> None:
    cli("import", SAMPLE)

    done = cli("export", "nobody", "--format", "pi")

    assert done.code == 2
    assert "nobody" in done.err
