"""Real transcripts on a real log: each entry once, however often they are imported."""

from contextlib import closing
from pathlib import Path

from ombus.operator.verification import verify_folder

from tests.exporters.folders import Folder


def test_every_real_file_adds_nothing_the_second_time_and_the_store_is_equal(
    shared: Path, tmp_path: Path
) -> None:
    files = sorted(path for path in shared.rglob("*") if path.is_file() and path.suffix != ".md")
    assert len(files) >= 10
    with closing(Folder(tmp_path / "data")) as folder:
        first = folder.imports(*files)
        ends = [folder.desk.engine.log.end(each) for each in range(2)]

        second = folder.imports(*files)

        assert [folder.desk.engine.log.end(each) for each in range(2)] == ends
        assert sum(intake.entries for intake in first) > 1_000
        for before, after in zip(first, second, strict=True):
            assert before.n_conflicts == after.n_conflicts == 0, before.file
            assert after.entries == 0, before.file
            assert after.duplicates == before.entries + before.duplicates, before.file
            rows = before.entries + before.duplicates + before.n_skipped
            assert rows > 0, before.file
        assert verify_folder(folder.desk.engine).is_equal
