"""The scope and shared-scope vectors have the same results through the HTTP API."""

import asyncio
from pathlib import Path

import pytest
from ombus_schemas.jsontext import JsonValue

from tests.conformance.cases import Case, failure_of
from tests.conformance.over_http import ADAPTERS, NOT_OVER_HTTP, cases_in, failures_of
from tests.conformance.runner import VECTORS

CASES = cases_in(VECTORS)


@pytest.mark.parametrize("area", ADAPTERS)
def test_every_case_of_an_area_has_the_result_of_the_reference_over_http(
    area: str, tmp_path: Path
) -> None:
    cases = [case for case in CASES if case.area == area]
    assert len(cases) >= 10
    failures = asyncio.run(failures_of(cases, tmp_path))
    assert not failures, "\n".join(failures)


def test_what_is_said_not_to_go_over_http_is_a_case() -> None:
    assert {case.title for case in CASES} >= NOT_OVER_HTTP.keys()


def test_a_controllers_grants_and_revocations_have_one_result_directly_and_over_http(
    tmp_path: Path,
) -> None:
    ok: JsonValue = {"ok": None}
    bad: JsonValue = {"error": {"name": "TypeError"}}
    refused: JsonValue = {"error": {"name": "Error"}}
    said: list[tuple[JsonValue, JsonValue]] = [
        (["open", {"id": "p"}], ok),
        (["grant", "p", ["me", "peer", "me"]], ok),
        (["grant", "p", ["me"]], ok),
        (["grant", "p", ["z", "peer"]], ok),
        (["grant", "p", []], bad),
        (["grant", "p", ["\u00a0x"]], bad),
        (["grant", "bad id", ["me"]], bad),
        (["grant", "session", ["me"]], refused),
        (["grant", "never opened", []], bad),
        (["grant", "never-opened", ["me"]], refused),
        (["revoke", "p", ["me", "nobody"]], ok),
        (["revoke", "p", ["nobody"]], ok),
        (["revoke", "p", "me"], bad),
        (["revoke", "never-opened", ["me"]], refused),
        (["grant", "p", ["me"]], ok),
        (["close", "p"], ok),
        (["grant", "p", ["x"]], refused),
        (["revoke", "p", ["z"]], refused),  # over HTTP it can (design.md section 12, row 8)
    ]
    appended: list[JsonValue] = [
        {"type": "om.scope.opened", "id": "p"},
        {"type": "om.scope.granted", "scopeId": "p", "principalIds": ["me", "peer"]},
        {"type": "om.scope.granted", "scopeId": "p", "principalIds": ["z"]},
        {"type": "om.scope.revoked", "scopeId": "p", "principalIds": ["me"]},
        {"type": "om.scope.granted", "scopeId": "p", "principalIds": ["me"]},
        {"type": "om.scope.closed", "scopeId": "p"},
    ]
    case = Case(
        "scope_controller",
        "grants",
        {"op": "controller", "entries": [], "calls": [call for call, _ in said]},
        {"results": [result for _, result in said], "appended": appended},
    )

    assert failure_of(case) is None
    assert asyncio.run(failures_of([case], tmp_path)) == []
