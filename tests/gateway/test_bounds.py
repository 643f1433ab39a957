"""Bounds and traces are settings: where they come from, and what is refused by its path."""

from pathlib import Path

import pytest
from ombus.gateway.limits import Limits, limits_of
from ombus.settings import BadSetting, load_settings
from ombus.wiring import telemetry_of
from ombus_streams.runtime.tracing import UNTRACED

from tests.gateway.serving import running


def test_what_is_not_set_is_the_default() -> None:
    assert limits_of(load_settings({}, {}, [])) == Limits()


def test_flags_go_before_the_environment_and_that_before_files(tmp_path: Path) -> None:
    file = tmp_path / "ombus.toml"
    file.write_text("gateway-rate = 5\ngateway-max-body = 2048\ngateway-tenant-rate = 9\n")
    environ = {"OMBUS_GATEWAY_RATE": "6.5", "OMBUS_GATEWAY_MAX_TAILS": "7"}

    found = limits_of(load_settings({"gateway-max-tails": 3}, environ, [file]))

    assert (found.requests_per_second, found.burst) == (6.5, 13)
    assert (found.tenant_requests_per_second, found.tenant_burst) == (9, 18)
    assert (found.max_body_bytes, found.max_tails) == (2_048, 3)
    assert found.max_requests == Limits().max_requests


def test_a_burst_that_is_set_is_no_multiple_of_the_rate() -> None:
    environ = {"OMBUS_GATEWAY_RATE": "1", "OMBUS_GATEWAY_BURST": "40"}
    assert limits_of(load_settings({}, environ, [])).burst == 40


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gateway-rate", "0"),
        ("gateway-burst", "-1"),
        ("gateway-max-body", "1000"),
        ("gateway-max-tails", "many"),
        ("traces", "everywhere"),
    ],
)
def test_what_bounds_nothing_is_refused_by_its_path(key: str, value: str) -> None:
    name = "OMBUS_" + key.upper().replace("-", "_")
    with pytest.raises(BadSetting, match=name):
        load_settings({}, {name: value}, [])


def test_a_rate_of_the_settings_holds(tmp_path: Path) -> None:
    settings = load_settings({}, {"OMBUS_GATEWAY_RATE": "1", "OMBUS_GATEWAY_BURST": "2"}, [])
    with running(tmp_path, limits_of(settings)) as served:
        answers = [served.http.get("/v1/sessions").status_code for _ in range(4)]
    assert answers == [200, 200, 429, 429]


def test_traces_are_off_until_they_are_wanted() -> None:
    assert telemetry_of(load_settings({}, {}, [])).tracer is UNTRACED
    wanted = telemetry_of(load_settings({}, {"OMBUS_TRACES": "global"}, []))
    assert wanted.tracer.is_on
