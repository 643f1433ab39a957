"""Is what an agent will name again still in its context? The measure ``eval reuse``.

At each compaction point: of the identifiers used in the following 50 entries and first seen before
the point, the share that the context holds; beside the default compaction and a recency window, all
at the same token budget. Source: issue D.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import utf16_length
from ombus_streams.memory.branches import branch
from ombus_streams.memory.coverage import is_eligible
from ombus_streams.memory.redact import cut_utf16
from ombus_streams.memory.summary import summarise
from ombus_streams.memory.tokens import entry_tokens, text_tokens
from ombus_streams.memory.window import render_window, window_entries

from ombus.eval.identifiers import EXPRESSIONS, identifiers_of, texts_of
from ombus.eval.remembering import SESSION, TENANT, UNCHANGED, Plan, remember
from ombus.importers import Imported, open_transcripts

MEASURE: Final = "reuse/1"
BUDGET: Final = 0.1
"""Of the tokens before the point."""
EVERY_TOKENS: Final = 20_000
"""A compaction point is wherever the branch has grown by so much."""
FOLLOWING: Final = 50
MIN_POINT_ENTRIES: Final = 8
WINDOW_PART: Final = 0.3
"""Of the budget goes to raw messages, in our context and in the default compaction's."""
MAX_WINDOW_PART: Final = 0.7
"""Where not even the last message fits into that part."""
KEEP_RECENT: Final = 8


class Reuse(msgspec.Struct, frozen=True, kw_only=True):
    """One transcript."""

    transcript: str
    entries: int
    tokens: int
    points: int
    identifiers: int
    """Reused ones, over all points."""
    memory: float
    default: float
    window: float
    ratio: float
    """Tokens of our context over the tokens before the point, over all points."""
    budget: float
    by_kind: dict[str, tuple[int, float, float, float]]
    """Of each expression: how many, and the shares of memory, default and window."""
    seconds: float
    measure: str = MEASURE


class _Point(msgspec.Struct, frozen=True):
    wanted: Mapping[str, str]
    memory: str
    default: str
    window: str
    n_tokens: int
    n_before: int
    seconds: float


def measured(
    path: Path, budget: float = BUDGET, every: int = EVERY_TOKENS, variant: Plan = UNCHANGED
) -> Reuse:
    """Return what is held at the compaction points of a transcript."""
    entries = entries_of(path)
    points = [_point(entries, at, budget, variant) for at in compaction_points(entries, every)]
    wanted = [(name, kind, one) for one in points for name, kind in one.wanted.items()]

    def shares(names: Sequence[tuple[str, str, _Point]]) -> tuple[float, float, float]:
        n = max(1, len(names))
        return (
            round(sum(name in one.memory for name, _, one in names) / n, 4),
            round(sum(name in one.default for name, _, one in names) / n, 4),
            round(sum(name in one.window for name, _, one in names) / n, 4),
        )

    memory, default, window = shares(wanted)
    by_kind = {}
    for kind in EXPRESSIONS:
        found = [item for item in wanted if item[1] == kind]
        if found:
            by_kind[kind] = (len(found), *shares(found))
    n_before = sum(one.n_before for one in points)
    return Reuse(
        transcript=path.name,
        entries=len(entries),
        tokens=sum(map(entry_tokens, entries)),
        points=len(points),
        identifiers=len(wanted),
        memory=memory,
        default=default,
        window=window,
        ratio=round(sum(one.n_tokens for one in points) / max(1, n_before), 4),
        budget=budget,
        by_kind=by_kind,
        seconds=round(sum(one.seconds for one in points), 3),
    )


def entries_of(path: Path) -> list[Entry]:
    """Return the messages of the branch that the transcript ends on, oldest first.

    Of several sessions in a file the longest.
    """
    sessions = [
        [item.entry for item in transcript if isinstance(item, Imported) and not item.entry.side]
        for transcript in open_transcripts(path, tenant=TENANT, session=SESSION)
    ]
    chain = branch(max(sessions, key=len))
    found: list[Entry] = []
    for entry in chain:
        if is_eligible(entry):
            parent = found[-1].id if found else None
            own = msgspec.structs.replace(entry, parent_id=parent, session_id=SESSION)
            found.append(own)
    return found


def compaction_points(entries: Sequence[Entry], every: int) -> list[int]:
    """Return after how many entries the branch has grown by ``every`` tokens again.

    A short one has a single point, in its middle.
    """
    points: list[int] = []
    grown = 0
    for number, entry in enumerate(entries, start=1):
        grown += entry_tokens(entry)
        if grown >= every and number >= MIN_POINT_ENTRIES and number < len(entries):
            points.append(number)
            grown = 0
    if not points and len(entries) >= 2 * MIN_POINT_ENTRIES:
        points = [len(entries) // 2]
    return points


def _point(entries: Sequence[Entry], at: int, budget: float, variant: Plan) -> _Point:
    before, after = entries[:at], entries[at : at + FOLLOWING]
    known = {name for entry in before for text in texts_of(entry) for name in identifiers_of(text)}
    wanted = {
        name: kind
        for entry in after
        for text in texts_of(entry)
        for name, kind in identifiers_of(text).items()
        if name in known
    }
    n_before = sum(map(entry_tokens, before))
    most = int(budget * n_before)
    messages = _last_messages(before, int(most * WINDOW_PART))
    if not messages:
        messages = _last_messages(before, int(most * MAX_WINDOW_PART))
    shown = cut_tail(render_window(messages), most)
    window_tokens = text_tokens(shown)
    plan = msgspec.structs.replace(
        variant, line_tokens=most - window_tokens, keep_recent=len(messages)
    )
    found = remember(before, plan)
    lines = "\n".join(line.content for line in found.lines)
    memory = f"{lines}\n{shown}"
    default = _default(before, messages, shown, most)
    return _Point(
        wanted=wanted,
        memory=memory,
        default=default,
        window=cut_tail(render_window(before[-200:]), most),
        n_tokens=found.memory_tokens + window_tokens,
        n_before=n_before,
        seconds=found.seconds,
    )


def _last_messages(entries: Sequence[Entry], most: int) -> tuple[Entry, ...]:
    found = window_entries(entries, KEEP_RECENT)
    while found and text_tokens(render_window(found)) > most:
        found = found[1:]
    return found


def _default(entries: Sequence[Entry], messages: Sequence[Entry], shown: str, most: int) -> str:
    room = 4 * (most - text_tokens(shown))
    summary = summarise(entries, len(messages) or 0, max_units=max(1, room)).summary
    return f"{summary}\n{shown}"


def cut_tail(text: str, most: int) -> str:
    """Return the end of ``text`` that weighs ``most`` tokens at most."""
    if text_tokens(text) <= most:
        return text
    tail = text[-4 * most :] if most > 0 else ""
    while utf16_length(tail) > 4 * most:
        tail = tail[1 + (utf16_length(tail) - 4 * most) // 2 :]
    return cut_utf16(tail, 4 * most)
