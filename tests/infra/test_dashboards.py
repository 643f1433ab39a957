"""Dashboard and alert rules name metrics that exist, and show every one that does."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ombus_streams.runtime.metrics import METRICS, Metric

from tests.infra.promql import Expression, Unreadable, parse

INFRA = Path(__file__).parents[2] / "infra"
DASHBOARD = INFRA / "grafana" / "dashboard.json"
ALERTS = INFRA / "prometheus" / "alerts.yml"
OF_THE_SCRAPE = {"instance", "job"}
"""Labels that Prometheus adds."""


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def shown() -> dict[str, str]:
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in panels()
        for target in panel["targets"]
    }


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def alerted() -> dict[str, str]:
    return {rule["alert"]: rule["expr"] for rule in rules()}


def series() -> dict[str, Metric]:
    """Return what may be asked for; a histogram is three series."""
    found: dict[str, Metric] = {}
    for metric in METRICS:
        parts = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        found |= {metric.name + part: metric for part in parts}
    return found


def labels_of(name: str) -> set[str]:
    return {*series()[name].labels, *OF_THE_SCRAPE, *({"le"} if name.endswith("_bucket") else ())}


EXPRESSIONS = {**shown(), **alerted()}


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS.keys())
def test_an_expression_asks_for_what_exists_as_it_must_be_asked(expression: str) -> None:
    found = parse(expression)
    assert found.selectors
    for each in found.selectors:
        assert each.name in series(), each.name
        assert set(each.labels) <= labels_of(each.name)
        is_counted = series()[each.name].kind != "gauge"
        # A counter alone says nothing, and what is no counter has no rate.
        assert (each.function in ("rate", "increase")) == is_counted == each.has_range, each.name
    assert set(found.grouped_by) <= _common(found)


def _common(found: Expression) -> set[str]:
    return set.intersection(*(labels_of(each.name) for each in found.selectors))


def test_every_declared_metric_is_on_the_dashboard() -> None:
    named = {each.name for text in shown().values() for each in parse(text).selectors}
    used = {series()[name].name for name in named}
    assert used == {metric.name for metric in METRICS}


def test_every_panel_has_a_place_of_its_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not taken & cells, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    ids = [panel["id"] for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]]
    assert len(set(ids)) == len(ids)


def test_what_a_legend_or_an_alert_says_is_a_label_that_is_left() -> None:
    for panel in panels():
        for target in panel["targets"]:
            said = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert said <= set(parse(target["expr"]).grouped_by), panel["title"]
    for rule in rules():
        assert set(rule) >= {"alert", "expr", "labels", "annotations"}
        text = "".join(rule["annotations"].values())
        said = set(re.findall(r"\$labels\.(\w+)", text))
        assert said <= set(parse(rule["expr"]).grouped_by), rule["alert"]


def test_prometheus_itself_can_read_the_rules() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(["promtool", "check", "rules", str(ALERTS)], capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "text",
    ["sum(rate(a[5m])", "sum by (x) a", "rate(a[5])", 'a{b="c"', "a{b}", "a ? b", "sum(a))"],
)
def test_what_cannot_be_read_is_noticed(text: str) -> None:
    with pytest.raises(Unreadable):
        parse(text)


def test_names_and_labels_of_an_expression_are_found() -> None:
    found = parse('sum by (le, role) (rate(a_bucket{role=~"x|y", b!="c"}[5m])) / max(d) > 0.5')
    assert [each.name for each in found.selectors] == ["a_bucket", "d"]
    assert found.selectors[0].labels == ("role", "b")
    assert (found.selectors[0].function, found.selectors[1].function) == ("rate", "max")
    assert found.grouped_by == ("le", "role")
