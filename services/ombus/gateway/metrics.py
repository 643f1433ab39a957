"""What the process counts, at ``/metrics``; never a session, a tenant or a token as a label."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ombus_schemas.api import EntryResult
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from ombus.gateway.app import Gateway

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)


class Metrics:
    """The counters of one gateway, in a registry of their own."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "ombus_gateway_requests", "Requests answered.", ("route", "status"),
            registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "ombus_gateway_request_seconds", "From the request to its answer.", ("route",),
            buckets=BUCKETS, registry=self._registry,
        )  # fmt: skip
        self._entries = Counter(
            "ombus_gateway_entries", "Entries offered, by what became of them.", ("status",),
            registry=self._registry,
        )  # fmt: skip
        self._tails = Gauge("ombus_gateway_tails", "Tails open now.", registry=self._registry)
        self._lag = Gauge("ombus_lag_records", "Records not folded yet.", registry=self._registry)

    def answered(self, route: str, status: int, seconds: float) -> None:
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def appended(self, results: Sequence[EntryResult]) -> None:
        for each in results:
            self._entries.labels(each.status).inc()

    def text(self) -> bytes:
        """Return everything in the format Prometheus scrapes."""
        self._tails.set(self._gateway.hub.n_tails)
        self._lag.set(self._gateway.host.engine.lag())
        return generate_latest(self._registry)
