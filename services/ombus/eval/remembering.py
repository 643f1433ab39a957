"""A memory run over entries as it runs in production: appended, folded, observed, flushed, read.

The engine is the embedded one in a folder that is thrown away, the provider ``extractive``. What is
measured is what ``context`` renders, within a budget of tokens for lines and window together.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import structlog
from ombus_schemas.codec import decode, encode
from ombus_schemas.entries import SCHEMA_VERSION, Entry
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.records import (
    Observation,
    ObservationsRecorded,
    ReflectionsRecorded,
    record_of,
)
from ombus_schemas.settings import HARD_WORKER_LIMITS, DropperPolicy
from ombus_streams.memory import reading
from ombus_streams.memory.context import MEMORY_TITLE
from ombus_streams.memory.head import ItemState
from ombus_streams.memory.items import ACTIVE, observations
from ombus_streams.memory.recent import recent
from ombus_streams.memory.terms import settings_of
from ombus_streams.memory.tokens import branch_tokens, item_tokens, text_tokens
from ombus_streams.providers.extractive import Extractive
from ombus_streams.providers.tuning import DEFAULT, Tuning

from ombus.wiring import Engine

PROVIDER: Final = Extractive.model
"""What is measured; numbers of another version are other numbers."""
TENANT: Final = "eval"
SESSION: Final = "s"
KEY: Final = f"{TENANT}/{SESSION}".encode()
KEEP_RECENT: Final = 2
"""A window repeats what lines say shorter: it is kept small, and its tokens are counted."""
OBSERVE_AFTER_TOKENS: Final = 10_000
_NO_LIMIT: Final = 10**9
_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the rendered memory."""

    memory_id: str
    content: str
    source_ids: tuple[str, ...]
    is_reflection: bool


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What the context shows at the end, and what it took to get there."""

    lines: tuple[Shown, ...]
    window_ids: tuple[str, ...]
    text: str
    """Both blocks as they are rendered."""
    n_runs: int
    """Worker results appended, empty ones included."""
    log_bytes: int
    """Of every entry of the session, those of the workers included."""
    worker_bytes: int
    memory_tokens: int
    """Of the lines' content."""
    written_tokens: int
    """Of every observation and reflection that was recorded."""
    observed_tokens: int
    """Of the observations among them."""
    read_tokens: int
    """What the observer read, the sources, each once; what others read is what was written."""
    seconds: float

    @property
    def overhead_tokens(self) -> int:
        """Ids, relevance and titles of the memory block, beside what its lines say."""
        block = self.text.partition("\n## ")[2]
        return max(0, text_tokens(block) - self.memory_tokens) if self.lines else 0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How a budget is divided."""

    line_tokens: float
    """What all lines may weigh together."""
    share: float | None = None
    """What is observed, of the sources' tokens; ``None``: what ``line_tokens`` come to."""
    keep_recent: int = KEEP_RECENT
    over: float = 1.0
    """How much more than ``line_tokens`` is observed; the rest is dropped again."""
    reflects: bool = False
    """Whether reflections are written although the pool fits."""
    tuning: Tuning = DEFAULT
    drop_to: float = 1.0
    """What of ``line_tokens`` the observations may weigh when reflections carry the rest."""
    policy: DropperPolicy = "model"
    """``model`` is the provider's choice; ``lowest-relevance`` the reference's rule."""


UNCHANGED: Final = Plan(line_tokens=0)
"""The plan that is measured; its budget is set where it is known."""


class _Still:
    """A clock that stands, so that the same input gives the same bytes."""

    def now(self) -> datetime:
        return _AT


def remember(entries: Sequence[Entry], plan: Plan) -> Remembered:
    """Return what the context holds after ``entries`` were appended and flushed."""
    with _quiet(), tempfile.TemporaryDirectory(prefix="ombus-eval-") as folder:
        started = time.perf_counter()
        share = plan.share
        if share is None:
            share = plan.over * plan.line_tokens / max(1, branch_tokens(entries))
        provider = Extractive(share, 0 if plan.reflects else _NO_LIMIT, plan.tuning)
        engine = Engine(
            Path(folder),
            _Still(),
            {"observer": provider, "reflector": provider, "dropper": provider},
            partitions=1,
            limits=HARD_WORKER_LIMITS,
        )
        try:
            return _run(engine, entries, plan, started)
        finally:
            engine.close()


def _run(engine: Engine, entries: Sequence[Entry], plan: Plan, started: float) -> Remembered:
    engine.append([_control("settings", None, _settings(plan)), *entries])
    n_runs = engine.settle()
    tip = entries[-1].id
    engine.append([_control("flush", tip, {"type": "om.flush.requested"})])
    n_runs += engine.settle()
    if _shown_tokens(engine) > plan.line_tokens:
        # What the payload's cap leaves out is what a compaction leaves out.
        engine.append([_control("compact", tip, {"type": "om.compact.requested"})])
        n_runs += engine.settle()
    seconds = time.perf_counter() - started
    with engine.reading(KEY) as found:
        session = found.session
        leaf = session.leaf(session.head.default_segment)
        assert settings_of(session, leaf).context.recent_messages == plan.keep_recent
        memory = reading.visible(session, leaf)
        blocks = reading.context(session, leaf)
        window = recent(session, leaf)
        states: tuple[ItemState, ...] = (*ACTIVE, "dropped")
        known = {row.item.id: row.item for row in observations(session, leaf, *states)}
    lines = tuple(_lines(memory, known))
    rendered = {block.title: block.content for block in blocks}
    shown = tuple(line for line in lines if f"- [{line.memory_id}] " in rendered[MEMORY_TITLE])
    written = [record.value or b"" for record in engine.log.of_key(KEY)]
    n_observed, n_reflected = _recorded_tokens(written)
    own = sum(len(encode(entry)) for entry in entries)
    return Remembered(
        lines=shown,
        window_ids=tuple(entry.id for entry in window.entries),
        text="\n\n".join(block.content for block in blocks),
        n_runs=n_runs,
        log_bytes=sum(map(len, written)),
        worker_bytes=sum(map(len, written)) - own,
        memory_tokens=sum(text_tokens(line.content) for line in shown),
        written_tokens=n_observed + n_reflected,
        observed_tokens=n_observed,
        read_tokens=branch_tokens(entries),
        seconds=seconds,
    )


def _lines(memory: reading.Memory, known: Mapping[str, Observation]) -> Iterator[Shown]:
    for one in memory.reflections:
        supports = (known[ref] for ref in one.supporting_observation_ids if ref in known)
        sources = [source for item in supports for source in item.source_entry_ids]
        yield Shown(
            memory_id=one.id,
            content=one.content,
            source_ids=tuple(dict.fromkeys(sources)),
            is_reflection=True,
        )
    for item in memory.observations:
        yield Shown(
            memory_id=item.id,
            content=item.content,
            source_ids=item.source_entry_ids,
            is_reflection=False,
        )


def _recorded_tokens(values: Sequence[bytes]) -> tuple[int, int]:
    """Return what the recorded observations weigh, and the reflections."""
    n_observed = n_reflected = 0
    for value in values:
        match record_of(decode(value)):
            case ObservationsRecorded(observations=items):
                n_observed += int(item_tokens(items))
            case ReflectionsRecorded(reflections=themes):
                n_reflected += int(item_tokens(themes))
    return n_observed, n_reflected


def _shown_tokens(engine: Engine) -> int:
    with engine.reading(KEY) as found:
        leaf = found.session.leaf(found.session.head.default_segment)
        return sum(
            text_tokens(line.content) for line in _lines(reading.visible(found.session, leaf), {})
        )


def _settings(plan: Plan) -> JsonObject:
    target = max(1, plan.drop_to * plan.line_tokens)
    return {
        "type": "om.settings.changed",
        "settings": {
            "observation": {"messageTokens": OBSERVE_AFTER_TOKENS},
            "reflection": {"observationTokens": 20_000},
            "dropper": {"targetTokens": target, "policy": plan.policy},
            "context": {
                "recentMessages": plan.keep_recent,
                "compactAfterTokens": _NO_LIMIT,
                "observationsPoolMaxTokens": target,
                "observationsPoolTargetTokens": target,
            },
            "agentMaxTurns": 64,
        },
    }


def _control(name: str, parent_id: str | None, body: Mapping[str, object]) -> Entry:
    return msgspec.convert(
        {
            "id": f"{name}:eval",
            "sessionId": SESSION,
            "tenantId": TENANT,
            "parentId": parent_id,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "kind": "custom",
            "schemaVersion": SCHEMA_VERSION,
            "side": True,
            "data": dict(body),
        },
        Entry,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the engine's canonical lines out of a report."""
    with structlog.testing.capture_logs():
        yield
