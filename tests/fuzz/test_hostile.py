"""Five thousand hostile entries: no crash, and each one ends where it must.

``make fuzz-hostile`` runs a hundred thousand.
"""

from pathlib import Path

import pytest
from ombus_streams.memory.tree import fold

from tests.fuzz.hostile import MIN_VALID, Stream
from tests.fuzz.run import Mismatch, run


@pytest.mark.parametrize(("seed", "n_entries"), [(1, 3_000), (2, 1_000), (3, 1_000)])
def test_every_entry_is_dead_lettered_refused_or_folded_as_the_model_says(
    tmp_path: Path, seed: int, n_entries: int
) -> None:
    report = run(seed, n_entries, tmp_path)

    assert report.n_entries == sum(report.outcomes.values()) + report.n_refused
    assert report.n_valid >= MIN_VALID * n_entries
    assert report.outcomes["attached"] > report.n_entries / 3
    assert min(report.outcomes["dead"], report.n_refused, report.n_runs) > 0
    assert report.n_orphans > 0 or n_entries < 3_000


def test_the_same_seed_gives_the_same_stream() -> None:
    one, other = Stream(5), Stream(5)
    assert [one.next() for _ in range(300)] == [other.next() for _ in range(300)]


def test_a_fold_that_loses_an_entry_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lossy(*arguments: object) -> str:
        n_folded.append(1)
        return "attached" if len(n_folded) % 50 == 0 else fold(*arguments)  # type: ignore[arg-type]

    n_folded: list[int] = []
    monkeypatch.setattr("ombus_streams.runtime.processor.fold", lossy)
    with pytest.raises(Mismatch):
        run(1, 300, tmp_path)
