"""What is scraped: every declared name, as Prometheus reads it, and gauges that are true."""

from pathlib import Path

from ombus.telemetry.exposition import exposition
from ombus_streams.runtime import metrics
from ombus_streams.runtime.metrics import METRICS, Sample, Tally
from ombus_streams.runtime.telemetry import Telemetry
from prometheus_client.parser import text_string_to_metric_families

from tests.support.sessions import chat, settings
from tests.telemetry.spans import engine_in


def test_every_declared_metric_is_scraped_under_its_name() -> None:
    text = exposition(Tally(), []).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for metric in METRICS:
        family = families[metric.name.removesuffix("_total")]
        assert family.type == metric.kind
        assert family.documentation == metric.meaning
    assert len(families) == len(METRICS)


def test_names_are_said_once_and_a_counter_s_ends_in_total() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert all(metric.name.endswith("_total") == (metric.kind == "counter") for metric in METRICS)
    declared = [each for each in vars(metrics).values() if isinstance(each, metrics.Metric)]
    assert declared == list(METRICS)


def test_a_tally_is_what_it_was_told() -> None:
    tally = Tally()
    tally.add(metrics.RUNS, "observer", "failed")
    tally.add(metrics.RUNS, "observer", "failed", amount=2)
    tally.add(metrics.GRANT_DENIALS, "revoked")
    for seconds in (0.001, 0.3, 99.0):
        tally.observe(metrics.RUN_SECONDS, seconds, "observer")
    lag = Sample(metrics.LAG, 7, ("all", "3"))

    text = exposition(tally, [lag]).decode()

    assert 'ombus_runs_total{outcome="failed",worker="observer"} 3.0' in text
    assert 'ombus_grant_denials_total{reason="revoked"} 1.0' in text
    assert 'ombus_run_seconds_bucket{le="0.01",worker="observer"} 1.0' in text
    assert 'ombus_run_seconds_bucket{le="0.5",worker="observer"} 2.0' in text
    assert 'ombus_run_seconds_bucket{le="+Inf",worker="observer"} 3.0' in text
    assert 'ombus_run_seconds_sum{worker="observer"} 99.301' in text
    assert 'ombus_lag_records{partition="3",role="all"} 7.0' in text


def test_ages_are_those_of_what_waits(tmp_path: Path) -> None:
    engine = engine_in(tmp_path, Telemetry())
    clock = engine.clock
    assert hasattr(clock, "at_ms")
    engine.settle()
    engine.append([settings("set", None, observe=30), chat("m1", None, tokens=40)])
    clock.at_ms += 5_000

    def shown(metric: metrics.Metric) -> float:
        return max(each.value for each in engine.samples() if each.metric is metric)

    assert (shown(metrics.UNFOLDED_AGE), shown(metrics.MEMORY_AGE)) == (5, 0)
    engine.fold()
    clock.at_ms += 2_000
    assert (shown(metrics.UNFOLDED_AGE), shown(metrics.MEMORY_AGE)) == (0, 7)
    engine.settle()
    assert (shown(metrics.UNFOLDED_AGE), shown(metrics.MEMORY_AGE)) == (0, 0)
    assert shown(metrics.READY) == 1
    engine.close()
