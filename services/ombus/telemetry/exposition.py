"""Tallies and gauges in the format Prometheus scrapes."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from ombus_streams.runtime.metrics import METRICS, Metric, Sample, Tally
from prometheus_client import Metric as Family
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"


def exposition(tally: Tally, samples: Sequence[Sample]) -> bytes:
    """Return every metric that is declared; those without a series have their header alone."""
    return generate_latest(_Collected([_family(metric, tally, samples) for metric in METRICS]))


class _Collected:
    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def _family(metric: Metric, tally: Tally, samples: Sequence[Sample]) -> Family:
    match metric.kind:
        case "counter":
            counter = CounterMetricFamily(metric.name, metric.meaning, labels=metric.labels)
            for labels, value in sorted(tally.counted(metric).items()):
                counter.add_metric(labels, value)
            return counter
        case "histogram":
            histogram = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
            bounds = [*map(str, metric.buckets), "+Inf"]
            for labels, seen in sorted(tally.observed(metric).items()):
                buckets = [*zip(bounds, map(float, accumulate(seen.counts)), strict=True)]
                histogram.add_metric(labels, buckets, seen.total)
            return histogram
        case "gauge":
            gauge = GaugeMetricFamily(metric.name, metric.meaning, labels=metric.labels)
            for sample in samples:
                if sample.metric is metric:
                    gauge.add_metric(sample.labels, sample.value)
            return gauge
