"""What a gateway counts, and how all of its process is shown at ``/metrics``."""

from collections.abc import Sequence

from ombus_schemas.api import EntryResult
from ombus_streams.runtime.metrics import ENTRIES, REQUEST_SECONDS, REQUESTS, TAILS, Gauges, Sample
from ombus_streams.runtime.telemetry import Telemetry

from ombus.telemetry.exposition import exposition


class Metrics:
    """Of one gateway. ``gauges``: how far its engine is, asked from any thread."""

    def __init__(self, telemetry: Telemetry, gauges: Gauges) -> None:
        self._tally, self._gauges = telemetry.tally, gauges

    def answered(self, route: str, status: int, seconds: float) -> None:
        self._tally.add(REQUESTS, route, str(status))
        self._tally.observe(REQUEST_SECONDS, seconds, route)

    def appended(self, results: Sequence[EntryResult]) -> None:
        for each in results:
            self._tally.add(ENTRIES, each.status)

    def text(self, n_tails: int) -> bytes:
        """Return everything in the format Prometheus scrapes."""
        return exposition(self._tally, [Sample(TAILS, n_tails), *self._gauges()])
