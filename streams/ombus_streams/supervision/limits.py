"""Limits of a delegation: the defaults, what nobody may pass, and how they are only ever lowered.

Numbers and names are those of S23.2; times are milliseconds.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

Limits = Mapping[str, int]

DEFAULT: Final[Limits] = MappingProxyType(
    {
        "depth": 4,
        "activeChildren": 4,
        "inputBytes": 65_536,
        "steps": 8,
        "toolCalls": 32,
        "tokens": 20_000,
        "timeoutMs": 60_000,
        "queuedEvents": 128,
        "childEvents": 256,
        "childEventBytes": 32_768,
        "childEventsPerSecond": 10,
    }
)
HARD: Final[Limits] = MappingProxyType(
    {
        "depth": 16,
        "activeChildren": 32,
        "inputBytes": 1_048_576,
        "steps": 64,
        "toolCalls": 256,
        "tokens": 1_000_000,
        "timeoutMs": 1_800_000,
        "queuedEvents": 4_096,
        "childEvents": 4_096,
        "childEventBytes": 262_144,
        "childEventsPerSecond": 1_000,
    }
)
SHARED: Final = ("steps", "toolCalls", "tokens", "timeoutMs")
"""What a budget share divides."""


def host_limits(said: Limits) -> dict[str, int]:
    """Return what a host that says ``said`` grants: the defaults where it is silent.

    Raises:
        ValueError: an unknown name, a number below one, or one above the hard limit.
    """
    for name, limit in said.items():
        if name not in HARD:
            raise ValueError(f"{name} is no limit: there are {', '.join(HARD)}")
        if not 0 < limit <= HARD[name]:
            raise ValueError(f"{name} is {limit:,}: it must be 1 to {HARD[name]:,}")
    return {name: said.get(name, default) for name, default in DEFAULT.items()}


def lowered(limits: Limits, *others: Limits) -> dict[str, int]:
    """Return the element-wise minimum; what ``limits`` lacks, or is below one, is passed over."""
    return {
        name: min([limit, *(other[name] for other in others if other.get(name, 0) > 0)])
        for name, limit in limits.items()
    }


def shared(inherited: Limits, share: float | None) -> dict[str, int]:
    """Return the share of what was inherited, rounded down, at least one of each."""
    if share is None:
        return dict(inherited)
    return {
        name: max(1, math.floor(limit * share)) if name in SHARED else limit
        for name, limit in inherited.items()
    }
