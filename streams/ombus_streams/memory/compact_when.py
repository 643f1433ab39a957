"""When a session is compacted: a token gate, or the trigger a host gave instead of it (S21).

The two numbers a trigger may read are asked for lazily and at most once. Nothing here waits by
itself: whoever calls ``decide`` brings the loop, if a host's callback needs one.
"""

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal

import msgspec

from ombus_streams.memory.errors import MemoryFault

COMPACT_AFTER_TOKENS: Final = 81_000
_MAX_SAFE_INTEGER: Final = 2**53 - 1


class CapUnknown(MemoryFault):
    """A ratio of the context window is asked for and nobody knows the window."""


class Measures:
    """What a trigger may look at; each number is measured on first use and kept."""

    def __init__(
        self,
        n_entries: int,
        estimate: Callable[[], int | float],
        cap: Callable[[], int | float],
        session_id: str = "",
    ) -> None:
        self.session_id = session_id
        self.n_entries = n_entries
        self._estimate, self._cap = estimate, cap
        self._tokens: int | float | None = None
        self._cap_tokens: int | float | None = None

    def tokens(self) -> int | float:
        """Return the estimate of the branch."""
        if self._tokens is None:
            self._tokens = self._estimate()
        return self._tokens

    def cap_tokens(self) -> int | float:
        """Return the model's input cap; raises ``CapUnknown`` where it cannot be resolved."""
        if self._cap_tokens is None:
            self._cap_tokens = self._cap()
        return self._cap_tokens


Answer = object
"""What a host's callback returns: only a literal true, awaited or not, fires."""


class ThresholdEntries(msgspec.Struct, kw_only=True, frozen=True):
    """Fires above a number of entries."""

    entries: int
    type: Literal["threshold_entries"] = "threshold_entries"


class InputRatio(msgspec.Struct, kw_only=True, frozen=True):
    """Fires at a part of the context window."""

    ratio: float
    type: Literal["input_ratio"] = "input_ratio"


class Custom(msgspec.Struct, kw_only=True, frozen=True):
    """Asks the host."""

    should_compact: Callable[[Measures], Answer]
    type: Literal["custom"] = "custom"


class TokenGate(msgspec.Struct, kw_only=True, frozen=True):
    """Fires at a number of tokens; what holds when no trigger is given."""

    tokens: int | float = COMPACT_AFTER_TOKENS


Trigger = ThresholdEntries | InputRatio | Custom | TokenGate


def trigger_of(value: object) -> Trigger:
    """Return the trigger a host configured; raises ``TypeError`` for one that makes no sense."""
    if isinstance(value, ThresholdEntries | InputRatio | Custom | TokenGate):
        return value
    said = value if isinstance(value, dict) else {}
    match said.get("type"):
        case "threshold_entries":
            return ThresholdEntries(entries=_entries(said.get("entries")))
        case "input_ratio":
            return InputRatio(ratio=_ratio(said.get("ratio")))
        case "custom":
            return custom_of(said.get("shouldCompact"))
        case _:
            raise TypeError(
                "a compaction trigger is an object of type threshold_entries, input_ratio or "
                f"custom, not {value!r}"
            )


def custom_of(callback: object) -> Custom:
    """Return the trigger that asks ``callback``; raises ``TypeError`` if it cannot be called."""
    if not callable(callback):
        raise TypeError("shouldCompact of a custom trigger is a function")
    return Custom(should_compact=callback)


async def decide(
    trigger: Trigger, measures: Measures, on_error: Callable[[Exception], None] | None = None
) -> bool:
    """Say whether to compact now.

    A failing host callback decides no and is handed to ``on_error``; a ratio without a known cap
    raises, because it was configured and cannot be judged.
    """
    if not isinstance(trigger, Custom):
        return is_reached(trigger, measures)
    try:
        answer = trigger.should_compact(measures)
        if inspect.isawaitable(answer):
            answer = await _resolved(answer)
    except Exception as error:  # a host's callback may raise anything: that means "not now"
        if on_error is not None:
            on_error(error)
        return False
    return answer is True


def is_reached(trigger: ThresholdEntries | InputRatio | TokenGate, measures: Measures) -> bool:
    """Say whether a trigger that needs no host has fired."""
    match trigger:
        case ThresholdEntries(entries=entries):
            return measures.n_entries > entries
        case InputRatio(ratio=ratio):
            return measures.tokens() >= ratio * measures.cap_tokens()
        case TokenGate(tokens=tokens):
            return measures.tokens() >= tokens


def trigger_of_options(options: Mapping[str, object]) -> Trigger:
    """Return the trigger among ``options``.

    ``trigger`` beats ``shouldCompact``, which beats ``thresholdEntries``; without any of them the
    token gate holds.
    """
    if "trigger" in options:
        return trigger_of(options["trigger"])
    if "shouldCompact" in options:
        return custom_of(options["shouldCompact"])
    if options.get("thresholdEntries") is not None:
        return ThresholdEntries(entries=_entries(options["thresholdEntries"]))
    gate = options.get("compactAfterTokens")
    if isinstance(gate, int | float) and not isinstance(gate, bool):
        return TokenGate(tokens=gate)
    return TokenGate()


async def _resolved(answer: Awaitable[object]) -> object:
    return await answer


def _entries(value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"entries of a threshold is a whole number from 1, not {value!r}")
    if not 1 <= value <= _MAX_SAFE_INTEGER:
        raise TypeError(f"entries of a threshold is a whole number from 1, not {value!r}")
    return value


def _ratio(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a ratio is a number between 0 and 1, not {value!r}")
    if not math.isfinite(value) or not 0 < value < 1:
        raise TypeError(f"a ratio lies between 0 and 1, both excluded, not at {value!r}")
    return float(value)
