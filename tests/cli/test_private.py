"""Folders made here are their owner's alone, whatever the umask says of others."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from ombus_streams.runtime.folders import make_private

from tests.cli.conftest import Cli


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(folder: Path) -> int:
    return folder.stat().st_mode & 0o777


def test_what_is_missing_above_a_folder_is_private_as_it_is(tmp_path: Path) -> None:
    make_private(tmp_path / "a" / "b" / "c")

    made = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]
    assert [mode(each) for each in made] == [0o700] * 3


def test_a_folder_that_exists_keeps_its_mode(cli: Cli, folder: Path) -> None:
    folder.mkdir(0o755)

    cli("append", "s1", stdin='{"role":"user","content":"x"}')

    assert mode(folder) == 0o755


def test_a_file_where_a_folder_should_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").touch()

    with pytest.raises(FileExistsError):
        make_private(tmp_path / "a")


def test_data_backups_and_archives_are_private(cli: Cli, folder: Path, tmp_path: Path) -> None:
    cli("append", "s1", stdin='{"role":"user","content":"x"}')

    assert cli("backup", tmp_path / "copies" / "today").code == 0
    assert cli("archive", tmp_path / "archive").code == 0

    made = (folder, tmp_path / "copies", tmp_path / "copies" / "today", tmp_path / "archive")
    assert [mode(each) for each in made] == [0o700] * 4


def test_rows_folded_from_kafka_are_private(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict", reason="the Kafka engine needs the extra kafka")
    from ombus_streams.engine.kafka.store import RocksState

    with closing(RocksState(tmp_path / "data" / "kafka" / "all")):
        assert mode(tmp_path / "data") == mode(tmp_path / "data" / "kafka" / "all") == 0o700
