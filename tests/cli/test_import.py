"""``ombus import``: each entry once, every line accounted for."""

from pathlib import Path

import msgspec
import pytest

from tests.cli.conftest import SAMPLE, Cli


def rows(count: int) -> list[dict[str, object]]:
    return [
        {"role": "user" if at % 2 == 0 else "assistant", "content": f"message {at}"}
        for at in range(count)
    ]


def written(path: Path, values: list[dict[str, object]]) -> Path:
    path.write_bytes(b"\n".join(msgspec.json.encode(value) for value in values) + b"\n")
    return path


def test_every_line_of_a_transcript_is_accounted_for(cli: Cli) -> None:
    found = cli("import", SAMPLE, "--json").json()

    assert found["format"] == "claude-code"
    assert found["entries"] == 79
    counts = ("duplicates", "repeated", "merged", "leftOut", "nSkipped")
    rest = [found[name] for name in counts]
    assert found["lines"] == 112
    assert rest == [0, 0, 32, 1, 0]


def test_importing_again_adds_nothing(cli: Cli) -> None:
    cli("import", SAMPLE)
    before = cli("tail", "-n", 1_000, "--json").lines()

    again = cli("import", SAMPLE, "--json").json()

    assert (again["entries"], again["duplicates"], again["nConflicts"]) == (0, 79, 0)
    assert cli("tail", "-n", 1_000, "--json").lines() == before


def test_a_transcript_that_grew_adds_only_what_is_new(cli: Cli, tmp_path: Path) -> None:
    path = written(tmp_path / "chat.jsonl", rows(4))
    first = cli("import", path, "--session", "chat", "--json").json()
    written(path, rows(7))

    second = cli("import", path, "--session", "chat", "--json").json()

    assert (first["entries"], second["entries"], second["duplicates"]) == (4, 3, 4)


def test_other_content_under_a_known_id_is_a_conflict_and_stays_off_the_log(
    cli: Cli, tmp_path: Path
) -> None:
    path = written(tmp_path / "chat.jsonl", rows(3))
    cli("import", path, "--session", "chat")
    written(path, [*rows(2), {"role": "user", "content": "something else"}])

    done = cli("import", path, "--session", "chat", "--json")

    assert done.code == 1
    assert done.json()["conflicts"] == [{"line": 3, "id": "L3"}]
    assert "conflict at line 3" in cli("import", path, "--session", "chat").out
    assert cli("verify").code == 0


def test_lines_that_cannot_be_read_are_named_with_their_reason(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text('{"role":"user","content":"one"}\n{"role": broken\n["no object"]\n')

    done = cli("import", path)

    assert done.code == 0
    assert "1 entries appended" in done.out
    assert "2 skipped" in done.out
    assert "skipped line 2: not JSON" in done.out
    assert "skipped line 3: not an object" in done.out


@pytest.mark.parametrize("text", ["", "# Title\n\nSome words.\n", "[1]\n{}\n"])
def test_a_file_that_is_no_transcript_is_a_finding_and_keeps_no_other_out(
    cli: Cli, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "README.md"
    path.write_text(text)

    done = cli("import", path, SAMPLE)

    assert done.code == 1
    assert done.err == f"ombus: {path} holds no line of a transcript: nothing was imported\n"
    assert "79 entries appended" in done.out
    assert cli("import", SAMPLE).code == 0


def test_a_file_that_is_not_there_is_named_and_keeps_no_other_out(cli: Cli) -> None:
    done = cli("import", "nowhere.jsonl", SAMPLE, "--json")

    assert done.code == 2
    told = f"there is no such file in {Path.cwd()}, name one that is"
    assert done.err.splitlines()[0] == f"ombus: nowhere.jsonl is not there: {told}"
    assert done.json()["entries"] == 79


def test_a_folder_is_told_who_follows_folders_and_keeps_no_other_out(cli: Cli) -> None:
    done = cli("import", ".", SAMPLE, "--json")

    assert done.code == 2
    told = ". is a folder: name files, or follow it with `ombus watch .`"
    assert done.err.splitlines()[0] == f"ombus: {told}"
    assert done.json()["entries"] == 79


def test_an_unknown_format_is_misuse(cli: Cli) -> None:
    done = cli("import", SAMPLE, "--format", "word-perfect")

    assert done.code == 2
    assert "word-perfect" in done.err


def test_session_and_tenant_may_be_named(cli: Cli) -> None:
    found = cli("import", SAMPLE, "--session", "s1", "--tenant", "acme", "--json").json()

    assert found["session"] == "acme/s1"
    assert [each["session"] for each in cli("sessions", "--json").lines()] == ["acme/s1"]


def test_a_secret_named_in_the_settings_never_gets_onto_the_log(
    cli: Cli, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIER_TOKEN", "hunter2-hunter2")
    Path("ombus.toml").write_text('redact-env = ["PIER_TOKEN"]\n')
    path = written(
        tmp_path / "chat.jsonl", [{"role": "user", "content": "the token is hunter2-hunter2"}]
    )

    cli("import", path)

    assert "hunter2" not in cli("tail", "--json").out
    assert all(b"hunter2" not in each.read_bytes() for each in folder.rglob("*.db*"))


def test_memory_settings_of_the_files_stand_before_the_first_entry(low: Cli) -> None:
    low("import", SAMPLE)

    log = low("tail", "-s", low("sessions", "--json").json()["session"], "-n", 1_000, "--json")

    first, *rest = [each["entry"] for each in log.lines()]
    assert first["data"]["type"] == "om.settings.changed"
    assert first["data"]["settings"]["observation"]["messageTokens"] == 1_000
    assert not [each for each in rest if each.get("data", {}).get("type") == "om.settings.changed"]


def test_changed_settings_are_written_once_when_work_goes_on(low: Cli) -> None:
    low("import", SAMPLE)
    Path("ombus.toml").write_text("[observational-memory.observation]\nmessageTokens = 77\n")

    low("flush")
    low("flush")

    said = [
        each["entry"]["data"]["settings"]["observation"]["messageTokens"]
        for each in low("tail", "-n", 1_000, "--json").lines()
        if each["entry"].get("data", {}).get("type") == "om.settings.changed"
    ]
    assert said == [1_000, 77]


def test_workers_may_be_left_for_later(low: Cli) -> None:
    low("import", SAMPLE, "--no-work")

    first = low("sessions", "--json").json()
    low("import", SAMPLE)

    assert (first["observations"], first["entries"]) == (0, 80)
    assert low("sessions", "--json").json()["observations"] != 0
