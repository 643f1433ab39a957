"""Memory: a row at a time, whatever the file's size and whatever the row's."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ombus.importers import lines
from ombus_schemas.jsontext import JsonObject

from tests.importers.big import LONG_MB, PEAK_KIB, run
from tests.importers.conftest import Written
from tests.importers.reading import assert_accounted, imported

_MEASURE = f"""
import sys
from ombus.importers import open_transcript
{PEAK_KIB}
before = peak_kib()
n = 0
for item in open_transcript(sys.argv[1], tenant="acme"):
    n += 1
print(n, peak_kib() - before)
"""


def _user(entry_id: str, parent: str | None, text: str) -> JsonObject:
    body: JsonObject = {"role": "user", "content": text}
    return {"type": "message", "id": entry_id, "parentId": parent, "message": body}


def _read(path: Path) -> tuple[int, int]:
    """Return how many items the file gives and the memory it took, in MiB."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(path)], capture_output=True, check=True, text=True
    )
    n_items, kibibytes = map(int, done.stdout.split())
    return n_items, kibibytes // 1024


def test_a_file_of_64_mb_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    n, words = 8_000, "word " * 1_600
    with path.open("w") as file:
        file.write('{"type":"session","version":3,"id":"large"}\n')
        for at in range(n):
            parent = f"e{at - 1}" if at else None
            file.write(json.dumps(_user(f"e{at}", parent, words)) + "\n")

    n_items, mebibytes = _read(path)

    assert path.stat().st_size > 64_000_000
    assert n_items == n + 1
    assert mebibytes < 24


def test_a_document_of_64_mb_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    n, words = 8_000, "word " * 1_600
    with path.open("w") as file:
        file.write('{"model":"m","messages":[')
        for at in range(n):
            file.write("," if at else "")
            file.write(json.dumps({"role": "user", "content": f"{at} {words}"}))
        file.write("]}")

    n_items, mebibytes = _read(path)

    assert path.stat().st_size > 64_000_000
    assert n_items == n
    assert mebibytes < 24


def test_a_line_of_50_mb_takes_a_few_times_its_size(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    with path.open("w") as file:
        file.write(json.dumps(_user("a", None, "x" * 50_000_000)) + "\n")
        file.write(json.dumps(_user("b", "a", "after it")) + "\n")

    n_items, mebibytes = _read(path)

    assert n_items == 2
    assert mebibytes < 4 * 50


def test_a_line_over_the_cap_is_reported(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines.rows_of, "__defaults__", (1_000,))
    path = written(
        {"type": "session", "version": 3, "id": "s"},
        _user("a", None, "x" * 2_000),
        _user("b", "a", "short"),
    )

    transcript, entries, skipped = imported(path)

    assert [entry.id for entry in entries] == ["b"]
    assert [(item.line, item.reason) for item in skipped if item.cause == "bad"] == [
        (2, "longer than 67108864 bytes")
    ]
    assert_accounted(transcript)


def test_a_whole_import_of_64_mb_stays_under_its_cap(tmp_path: Path) -> None:
    result = run(tmp_path, 64, 0, "--no-work")

    print(f"64 MB: {result.entries:,} entries in {result.seconds:.0f} s, {result.peak_mb} MiB")
    assert result.entries > 7_000
    assert result.peak_mb < 256


def test_a_whole_import_of_a_line_of_50_mb_stays_under_its_cap(tmp_path: Path) -> None:
    result = run(tmp_path, 52, LONG_MB, "--no-work")

    print(f"a line of 50 MB: {result.seconds:.0f} s, {result.peak_mb} MiB")
    assert result.n_skipped == 1  # It is over the wire's cap for an entry, and named.
    assert result.peak_mb < 512
