"""What one caller may take of the gateway, and for how long; every bound has its name here."""

import time
from collections import OrderedDict
from typing import Final

import msgspec

from ombus.settings import ProcessSettings

BURST_SECONDS: Final = 2
"""Of a rate that was set and its burst was not: who was silent for so long may make it up."""
MAX_BUCKETS: Final = 10_000
"""Callers whose rate is remembered; whoever called longest ago is forgotten first."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one process."""

    max_body_bytes: int = 4_194_304
    """More than one entry may hold, so that the largest entry fits."""
    body_seconds: float = 30.0
    """A body that has not come by then is given up."""
    max_entries: int = 1_000
    """Entries of one append."""
    max_page: int = 500
    max_page_bytes: int = 8_388_608
    """A page of entries ends after so many bytes."""
    max_wait_seconds: float = 60.0
    """``atLeast``, flush and compact wait no longer, whatever the caller says."""
    requests_per_second: float = 500.0
    burst: int = 1_000
    tenant_requests_per_second: float = 2_000.0
    """Of all callers of a tenant together."""
    tenant_burst: int = 4_000
    max_requests: int = 512
    """Requests under way at once, tails not counted."""
    max_tails: int = 5_000
    tail_buffer_records: int = 256
    tail_buffer_bytes: int = 1_048_576
    """What is kept for one reader that does not keep up."""
    max_catch_up: int = 1_000
    """What a buffer had no room for is read again from the log; more than this is a gap."""
    heartbeat_seconds: float = 15.0
    """A comment line is sent so often, and the token of a tail is looked at again."""
    send_seconds: float = 60.0
    """A reader that takes nothing for so long is let go."""
    threads: int = 8
    """Reads and appends under way at once; the others wait their turn."""


def limits_of(settings: ProcessSettings) -> Limits:
    """Return the limits with what the settings say in place of the defaults."""
    rate, tenant_rate = settings.gateway_rate, settings.gateway_tenant_rate
    said = {
        "requests_per_second": rate,
        "burst": settings.gateway_burst or _burst(rate),
        "tenant_requests_per_second": tenant_rate,
        "tenant_burst": settings.gateway_tenant_burst or _burst(tenant_rate),
        "max_requests": settings.gateway_max_requests,
        "max_body_bytes": settings.gateway_max_body,
        "max_tails": settings.gateway_max_tails,
    }
    given = {name: value for name, value in said.items() if value is not None}
    return msgspec.structs.replace(Limits(), **given)


def _burst(per_second: float | None) -> int | None:
    return None if per_second is None else max(1, round(BURST_SECONDS * per_second))


class Rate:
    """Token buckets, one a caller."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second, self._burst = per_second, burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_of(self, caller: str, now: float | None = None) -> float:
        """Take one request; return 0, or the seconds until the next one may come."""
        now = time.monotonic() if now is None else now
        left, since = self._buckets.pop(caller, (float(self._burst), now))
        left = min(self._burst, left + (now - since) * self._per_second)
        allowed = left >= 1
        self._buckets[caller] = (left - 1 if allowed else left, now)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._per_second
