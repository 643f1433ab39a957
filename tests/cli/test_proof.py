"""``verify``, ``rebuild`` and ``demo``: what is proved, and what damage is found."""

import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from ombus.settings import ProcessSettings
from ombus.wiring import Ownership, open_engine, state_folder
from ombus_streams.memory import keys

from tests.cli.conftest import SAMPLE, Cli

Row = tuple[int, bytes, bytes]

EXTRAS = "\n".join(
    [
        '{"id":"g1","kind":"custom","side":true,"data":{"type":"om.scope.opened","id":"s/a"}}',
        '{"id":"i1","kind":"custom","side":true,"data":{"type":"om.sources.invalidated",'
        '"ids":["SOURCE"],"reason":"revoked"}}',
        '{"id":"late","role":"user","content":"x","parentId":"not-there-yet"}',
    ]
)
"""A scope, an invalidation and an entry whose parent is missing: rows of every other family."""


@contextmanager
def changed(folder: Path, statement: str, *values: object) -> Iterator[None]:
    """Change the stored state behind everybody's back, and take it back afterwards."""
    path = state_folder(folder) / "state.db"
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute(statement, values).rowcount == 1
        database.commit()
    yield
    copy.replace(path)


def rows(folder: Path) -> list[Row]:
    with closing(sqlite3.connect(state_folder(folder) / "state.db")) as database:
        return database.execute("SELECT partition, key, value FROM stored ORDER BY 1, 2").fetchall()


def family_of(key: bytes) -> str:
    return "\0" if key.startswith(b"\0") else chr(key[key.index(b"\0") + 1])


def test_verify_says_what_it_compared_and_ends_with_the_verdict(remembered: Cli) -> None:
    done = remembered("verify")

    assert done.code == 0
    *_, what, verdict = done.out.splitlines()
    assert "78 sources" in what
    assert re.fullmatch(r"verify: \d+ rows of 1 sessions equal", verdict)
    assert remembered("verify", "--json").json()["equal"] is True


def test_a_flipped_byte_in_any_family_of_rows_is_found_and_named(
    remembered: Cli, folder: Path
) -> None:
    session = str(remembered("sessions", "--json").json()["session"])
    memory_id = str(re.findall(r"\[([a-f0-9]{12})\] \(medium\)", remembered("view").out)[0])
    sources = remembered("recall", memory_id, "--json").json()["sourceEntries"]
    remembered("compact")
    remembered("append", session, stdin=EXTRAS.replace("SOURCE", str(sources[0]["id"])))
    remembered("view")
    one_of = {family_of(key): (partition, key, value) for partition, key, value in rows(folder)}
    assert set("hiespwvlorkang\0") <= set(one_of)

    for family, (partition, key, value) in one_of.items():
        flipped = value[:-1] + bytes((value[-1] ^ 1,)) if value else b"\1"
        update = "UPDATE rows SET value = ? WHERE partition = ? AND key = ?"
        with changed(folder, update, flipped, partition, key):
            done = remembered("verify")
        assert done.code == 1
        named, what = keys.described(key)
        assert f"{named}: {what}: holds other bytes" in done.out, family
        assert done.out.splitlines()[-1].startswith("verify: ")
    assert remembered("verify").code == 0


def test_a_row_that_is_missing_or_too_much_is_found_and_named(
    remembered: Cli, folder: Path
) -> None:
    partition, key, value = rows(folder)[-1]
    _, what = keys.described(key)

    with changed(folder, "DELETE FROM rows WHERE partition = ? AND key = ?", partition, key):
        missing = remembered("verify")
    with changed(folder, "INSERT INTO rows VALUES (?, ?, ?)", partition, key + b"x", value):
        extra = remembered("verify")

    assert missing.code == extra.code == 1
    assert f"{what}: is missing" in missing.out
    assert "is stored, the log does not give it" in extra.out


def test_a_position_that_claims_more_than_the_log_has_is_found(
    remembered: Cli, folder: Path
) -> None:
    partition = rows(folder)[-1][0]
    update = "UPDATE position SET next_offset = next_offset + 5 WHERE partition = ?"

    with changed(folder, update, partition):
        done = remembered("verify")

    assert done.code == 1
    assert "position row" in done.out


def test_a_rebuild_is_byte_equal_and_leaves_nothing_beside_it(
    remembered: Cli, folder: Path
) -> None:
    before = rows(folder)

    done = remembered("rebuild")

    assert done.code == 0
    assert "byte-equal to the state before" in done.out
    assert rows(folder) == before
    assert [each.name for each in folder.glob("memory-*")] == [state_folder(folder).name]


def test_a_rebuild_mends_what_verify_finds(remembered: Cli, folder: Path) -> None:
    path = state_folder(folder) / "state.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM rows")
        database.commit()
    assert remembered("verify").code == 1

    done = remembered("rebuild", "--json").json()

    assert done["nDiffering"] == done["rows"]
    assert remembered("verify").code == 0


def test_a_rebuild_needs_no_state_that_can_be_read(remembered: Cli, folder: Path) -> None:
    (state_folder(folder) / "state.db").write_bytes(b"no database" * 1_000)
    assert remembered("view").code == 3

    done = remembered("rebuild")

    assert done.code == 0
    assert "could not be read" in done.out
    assert remembered("verify").code == 0


def test_a_rebuild_refuses_while_somebody_else_folds(remembered: Cli, folder: Path) -> None:
    with Ownership(folder):
        done = remembered("rebuild")

    assert done.code == 3
    assert "[busy]" in done.err


def test_a_switch_that_was_cut_short_is_finished_by_the_next_owner(
    remembered: Cli, folder: Path
) -> None:
    live = state_folder(folder)
    before = rows(folder)
    live.rename(live.with_name(live.name + ".ready"))
    live.mkdir()

    open_engine(ProcessSettings(data=str(folder)), owns=True).close()

    assert rows(folder) == before
    assert [each.name for each in folder.glob("memory-*")] == [live.name]


def test_the_demo_shows_the_whole_way_and_leaves_nothing_behind(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))

    done = cli("demo")

    assert done.code == 0
    assert re.fullmatch(r"verify: \d+ rows of 1 sessions equal", done.out.splitlines()[-1])
    assert "byte-equal to line 2 of the file" in done.out
    assert "with 0 model calls" in done.out
    assert "0 entries added, 79 duplicates" in done.out
    assert list((tmp_path / "scratch").iterdir()) == []


def test_the_demo_may_be_kept(cli: Cli, tmp_path: Path) -> None:
    assert cli("demo", "--keep", tmp_path / "kept").code == 0
    assert "Two rules" in cli("--data", tmp_path / "kept", "view").out
    assert cli("demo", "--keep", tmp_path / "kept").code == 2


def test_the_sample_names_nobody_and_no_machine() -> None:
    text = SAMPLE.read_text("utf-8")

    assert not re.search(r"/home/|/Users/|/work/|@\w+\.\w+", text)
