"""The small form of ``make watch-chaos``."""

from pathlib import Path

from tests.watch.chaos import run


def test_every_complete_line_is_on_the_log_once_whatever_is_killed_rotated_or_cut(
    tmp_path: Path,
) -> None:
    result = run(tmp_path, rounds=10, seed=5)

    assert (result.lost, result.twice) == ([], [])
    assert result.lines > 60
    assert result.kills >= 3
    assert result.is_equal
