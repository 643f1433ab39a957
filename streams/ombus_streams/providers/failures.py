"""What went wrong at a provider, in the words of S23.1: the status, the code, the hint to wait.

The SDKs raise many classes for few facts. Here a failure is a status, what the body calls it and
the headers; whether the same turn may be sent again follows from the code it is given.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from ombus_streams.runtime.provider import TurnFailed

MAX_RETRY_AFTER_MS: Final = 3_600_000
"""A hint beyond an hour is taken for an hour: the run is asked for again, not forgotten."""

_CODES: Final[Mapping[str, str]] = {
    "overloaded_error": "overloaded",
    "rate_limit_error": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "timeout_error": "timeout",
    "server_error": "temporarily_unavailable",
    "api_error": "temporarily_unavailable",
    "internal_server_error": "temporarily_unavailable",
    "engine_overloaded": "overloaded",
}
"""What bodies call a passing failure, as S23.1 calls it."""
_EXHAUSTED: Final = frozenset({"insufficient_quota", "billing_not_active", "billing_error"})
"""A 429 that no waiting cures: the account has no money left."""
_REFUSED: Final = frozenset(
    {
        "context_length_exceeded",
        "string_above_max_length",
        "content_filter",
        "content_policy_violation",
        "request_too_large",
        "exceed_context_size_error",
    }
)
_TOO_LONG: Final = re.compile(
    r"context (length|window|size)|prompt is too long|maximum context|too many (input )?tokens"
    r"|input is too long|content (filter|management) policy",
    re.I,
)
_STATUS_OVERLOADED: Final = 529


def failure(
    message: str,
    *,
    status: int | None = None,
    kind: str | int | None = None,
    headers: Mapping[str, str] | None = None,
    now: datetime | None = None,
    secret: str = "",
) -> TurnFailed:
    """Return what a refused or failed request means.

    ``kind`` is what the body calls it (``code`` or ``type``). An input the provider will never take
    (too long, filtered) is a refusal. ``secret`` is the credential, which some servers echo.
    """
    said = message.replace(secret, "[redacted]") if secret else message
    named = int(kind) if isinstance(kind, str) and kind.isdecimal() else kind
    if status is None and isinstance(named, int):
        status = named
    refused = status == 413 or (
        (status is None or status in (400, 422)) and (named in _REFUSED or _is_too_long(said))
    )
    return TurnFailed(
        message=said or f"the provider answered with status {status}",
        code=_code(status, named),
        retry_after_ms=retry_after_ms(headers or {}, now),
        is_refusal=refused,
    )


def retry_after_ms(headers: Mapping[str, str], now: datetime | None = None) -> int | None:
    """Return how long the other side asks to wait: ``retry-after-ms``, seconds, or a date."""
    found = {name.lower(): value for name, value in headers.items()}
    for name, unit in (("retry-after-ms", 1), ("retry-after", 1_000)):
        value = found.get(name, "").strip()
        try:
            waits = float(value) * unit
        except ValueError:
            continue
        if 0 <= waits < float("inf"):
            return min(round(waits), MAX_RETRY_AFTER_MS)
    try:
        at = parsedate_to_datetime(found.get("retry-after", ""))
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    waits = (at - (now or datetime.now(UTC))).total_seconds() * 1_000
    return min(max(0, round(waits)), MAX_RETRY_AFTER_MS)


def is_torn(error: Exception) -> bool:
    """Say whether an error that is none of the SDK's own means that the answer came broken."""
    transport = type(error).__module__.split(".")[0].startswith("httpx")
    return transport or isinstance(error, json.JSONDecodeError | UnicodeDecodeError)


def _code(status: int | None, named: str | int | None) -> str | int | None:
    if named in _EXHAUSTED:
        return named
    if isinstance(named, str) and named in _CODES:
        return _CODES[named]
    if status == _STATUS_OVERLOADED:
        return "overloaded"
    if status is not None and status >= 400:
        return status if status not in range(505, 600) else "temporarily_unavailable"
    return named


def _is_too_long(message: str) -> bool:
    return _TOO_LONG.search(message) is not None
