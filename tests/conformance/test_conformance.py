"""The recorded behaviour of the reference, area by area, through our public functions."""

import re
from pathlib import Path

import pytest

from tests.conformance.cases import load
from tests.conformance.runner import VECTORS, judge, superseded_cases

ROOT = Path(__file__).parents[2]
NAMED_BY_THE_SEMANTICS = {"flush/second_flush_covers_own_record"}
"""Cases that S1 to S25 name and our copy of the vectors does not hold."""
AREAS = sorted(VECTORS.rglob("*.json"))


@pytest.mark.parametrize("path", AREAS, ids=[path.stem for path in AREAS])
def test_every_case_of_an_area_has_the_result_of_the_reference(path: Path) -> None:
    superseded = superseded_cases()

    verdicts = [judge(case, superseded) for case in load(path)]

    failures = [f"{v.case.name}: {v.failure}" for v in verdicts if v.failure is not None]
    assert verdicts
    assert not failures, "\n".join(failures)


def test_a_superseded_case_exists_and_names_the_test_of_the_new_rule() -> None:
    titles = {case.title for path in AREAS for case in load(path)}

    for title, case in superseded_cases().items():
        assert title in titles or title in NAMED_BY_THE_SEMANTICS
        assert 1 <= case.row <= 22
        file, _, function = case.test.partition("::")
        assert re.search(rf"def {re.escape(function)}\(", (ROOT / file).read_text()), case.test
