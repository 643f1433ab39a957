"""What a memory costs: tokens read and written, tokens saved, runs, bytes of log, time per entry.

With the defaults of a session, not with a budget: the shares and thresholds that hold when nobody
sets any. Time is that of one process that appends, folds and observes, start to end.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.settings import ContextSettings
from ombus_streams.memory.tokens import branch_tokens, text_tokens
from ombus_streams.providers.extractive import SHARE

from ombus.eval.remembering import Plan, remember

MEASURE: Final = "cost/1"
_CONTEXT: Final = ContextSettings()


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """One session."""

    session: str
    entries: int
    tokens: int
    """Of the messages."""
    read: int
    """By workers: the sources once, the observations once more to reflect on them."""
    written: int
    """By workers, in observations and reflections."""
    context: int
    """What an agent reads instead of everything: memory and recent messages, as rendered."""
    saved: int
    """Tokens less context, each time the agent is asked after this point."""
    runs: int
    log_bytes: int
    worker_bytes: int
    seconds: float
    ms_per_entry: float
    measure: str = MEASURE


def measured(session: str, entries: Sequence[Entry]) -> Cost:
    """Return what the memory of ``entries`` costs with the default settings."""
    plan = Plan(
        line_tokens=_CONTEXT.observations_pool_max_tokens,
        share=SHARE,
        keep_recent=_CONTEXT.recent_messages,
        reflects=True,
        drop_to=_CONTEXT.observations_pool_target_tokens / _CONTEXT.observations_pool_max_tokens,
    )
    found = remember(entries, plan)
    tokens = branch_tokens(entries)
    context = text_tokens(found.text)
    return Cost(
        session=session,
        entries=len(entries),
        tokens=tokens,
        read=found.read_tokens + found.observed_tokens,
        written=found.written_tokens,
        context=context,
        saved=tokens - context,
        runs=found.n_runs,
        log_bytes=found.log_bytes,
        worker_bytes=found.worker_bytes,
        seconds=round(found.seconds, 3),
        ms_per_entry=round(1_000 * found.seconds / max(1, len(entries)), 3),
    )
