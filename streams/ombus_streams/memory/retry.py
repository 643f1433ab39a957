"""Whether a failed model call is tried again, and when (S23.1).

Only a turn that has emitted nothing may be retried; that is for the caller to know. Randomness is
an argument, so the same failure asks for the same delay.
"""

import math
import re
from typing import Final

import msgspec

TRANSIENT_CODES: Final[frozenset[str | int]] = frozenset(
    {
        "ETIMEDOUT",
        "ECONNRESET",
        "ECONNREFUSED",
        "EAI_AGAIN",
        "ENOTFOUND",
        "timeout",
        "rate_limit",
        "overloaded",
        "temporarily_unavailable",
        408,
        409,
        425,
        429,
        500,
        502,
        503,
        504,
    }
)
"""A status is a number: the text ``429`` is none of these."""
_TRANSIENT: Final = re.compile(r"timeout|temporar|rate.?limit|overload|unavailable", re.I | re.A)
_ABORT: Final = re.compile("abort", re.I | re.A)
NO_JITTER: Final = 0.5


class RetryPolicy(msgspec.Struct, kw_only=True, frozen=True):
    """How patient a caller is."""

    max_attempts: int | float = 3
    base_ms: int | float = 100
    max_ms: int | float = 1_000
    """Raised to ``base_ms`` when it is below."""
    jitter: float = 0.25
    """The part of the delay that randomness may add or take."""
    transient_codes: frozenset[str | int] = frozenset()
    """More codes that pass, beside ``TRANSIENT_CODES``."""


class Failure(msgspec.Struct, kw_only=True, frozen=True):
    """What is known of a failed call."""

    message: str = ""
    name: str = ""
    code: str | int | float | None = None
    retry_after_ms: int | float | None = None
    """The other side's hint, if it gave one."""


def retry_delay_ms(
    failure: Failure,
    attempt: int | float,
    policy: RetryPolicy | None = None,
    random_value: float = NO_JITTER,
    is_aborted: bool = False,
) -> int | None:
    """Return how long to wait before the attempt after ``attempt``, or ``None`` to give up.

    Attempts count from 1. ``random_value`` lies in 0..1; one half means no jitter.
    """
    policy = policy or RetryPolicy()
    if is_aborted or attempt >= policy.max_attempts or not is_transient(failure, policy):
        return None
    hint = failure.retry_after_ms
    if hint is None or not math.isfinite(hint) or hint < 0:
        hint = policy.base_ms * 2 ** min(max(0, attempt - 1), 64)
    delay = min(hint, max(policy.max_ms, policy.base_ms))
    delay *= 1 + (2 * random_value - 1) * policy.jitter
    return math.floor(delay + 0.5)


def is_transient(failure: Failure, policy: RetryPolicy | None = None) -> bool:
    """Say whether the same call may work later; an abort never does."""
    if failure.name == "AbortError" or _ABORT.search(failure.message):
        return False
    code = failure.code
    extra = policy.transient_codes if policy else frozenset[str | int]()
    # True equals 1 in Python and is no status.
    if code is not None and not isinstance(code, bool) and code in TRANSIENT_CODES | extra:
        return True
    return _TRANSIENT.search(failure.message) is not None
