"""A copied file is proved: its pages by SQLite, its tables by the rows their source had."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from ombus.operator.backups import faults_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute('CREATE TABLE "a ""b" (k INTEGER PRIMARY KEY, v TEXT)')
        database.execute("CREATE TABLE empty (k)")
        rows = [(n, "x" * 200) for n in range(200)]
        database.executemany('INSERT INTO "a ""b" VALUES (?, ?)', rows)
        database.commit()
    return path


def test_a_whole_file_with_all_its_rows_has_no_fault(file: Path) -> None:
    assert faults_of(file, {'a "b': 200, "empty": 0}) == ()


def test_a_table_that_lacks_rows_or_is_not_there_is_a_fault(file: Path) -> None:
    assert faults_of(file, {'a "b': 201, "empty": 0, "gone": 3}) == (
        'table a "b has 200 rows, its source had 201',
        "table gone has 0 rows, its source had 3",
    )


def test_pages_that_are_damaged_are_a_fault_whatever_is_counted(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2 : len(raw) // 2 + 64] = b"\xff" * 64
    file.write_bytes(raw)

    assert faults_of(file, {'a "b': 200, "empty": 0})


def test_what_is_no_database_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "some.db").write_bytes(b"no database" * 1_000)

    assert faults_of(tmp_path / "some.db", {}) == ("file is not a database",)
