"""The scope vectors have the same results through the HTTP API."""

import asyncio
from pathlib import Path

from tests.conformance.over_http import NOT_OVER_HTTP, cases_in, failures_of
from tests.conformance.runner import VECTORS


def test_every_scope_case_has_the_result_of_the_reference_over_http(tmp_path: Path) -> None:
    cases = cases_in(VECTORS)
    assert len(cases) > 50
    failures = asyncio.run(failures_of(cases, tmp_path))
    assert not failures, "\n".join(failures)


def test_what_is_said_not_to_go_over_http_is_a_case() -> None:
    assert {case.title for case in cases_in(VECTORS)} >= NOT_OVER_HTTP.keys()
