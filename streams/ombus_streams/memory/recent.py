"""The recent messages of one leaf: the last few, and every source no worker has scanned yet.

Differs from S10 by rows 12 and 19 of design.md section 12: eligible messages past the coverage are
in the window, under its caps, and a result never stands without its call. What cannot be shown is
named in a line at the end, so that no source is in no place at all.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from ombus_schemas.codec import decode
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import utf8_length

from ombus_streams.memory.coverage import is_eligible
from ombus_streams.memory.head import EntryRow, LeafHead
from ombus_streams.memory.leaf import settings_of
from ombus_streams.memory.pairing import pair
from ombus_streams.memory.redact import cut_utf8, redact_rendered
from ombus_streams.memory.session import Session, chain, chain_backwards
from ombus_streams.memory.window import MAX_BYTES, block_text

OPEN_CALL: Final = "(no result yet)"
CUT: Final = "… [cut: the rest of this message is in the log]"
NOT_SHOWN: Final = "[not shown]"
_OMISSION_BYTES: Final = 1_024
"""Kept free for the lines that say what is not shown."""


class Recent(msgspec.Struct, frozen=True, kw_only=True):
    """The window of a leaf."""

    entries: tuple[Entry, ...]
    """Shown, in chain order."""
    text: str
    first_ordinal: int
    """Of the oldest entry shown; 0 for an empty window."""


class Candidate(msgspec.Struct, frozen=True):
    """A message that may be in the window."""

    ordinal: int
    tokens: int
    entry: Entry
    is_uncovered: bool


def recent(
    session: Session,
    leaf: LeafHead,
    keep: int | None = None,
    max_tokens: float | None = None,
    secrets: Sequence[str] = (),
) -> Recent:
    """Return the window: ``keep`` messages (the setting's by default) and all uncovered sources.

    The newest message of the user is always in it, cut and marked if it alone is over the caps.
    """
    settings = settings_of(session, leaf).context
    wanted = settings.recent_messages if keep is None else max(0, keep)
    cap = settings.recent_message_max_tokens if max_tokens is None else max_tokens
    candidates, reached = _candidates(session, leaf, wanted)
    shown = _within_tokens(candidates, leaf.user_ordinal, cap)
    lines, shown = _within_bytes(shown, leaf.user_ordinal, cap, secrets)
    lines += _omissions(session, leaf, candidates, shown, reached)
    return Recent(
        entries=tuple(item.entry for item in shown),
        text=cut_utf8("\n".join(lines), MAX_BYTES),
        first_ordinal=shown[0].ordinal if shown else 0,
    )


def window_start(session: Session, leaf: LeafHead, keep: int) -> int:
    """Return the ordinal of the oldest of the last ``keep`` messages; past the tip for none."""
    start, found = leaf.tip_ordinal + 1, 0
    if keep <= 0:
        return start
    for ordinal, row in chain_backwards(session, leaf.lineage):
        if _message(row) is not None:
            start, found = ordinal, found + 1
            if found == keep:
                break
    return start


def _candidates(session: Session, leaf: LeafHead, keep: int) -> tuple[list[Candidate], int]:
    """Return messages oldest first, and the ordinal the walk back has reached."""
    invalid = session.invalid_from()
    found: list[Candidate] = []
    n_messages, n_bytes, reached = 0, 0, leaf.tip_ordinal + 1
    for ordinal, row in chain_backwards(session, leaf.lineage):
        if ordinal <= leaf.coverage_ordinal and n_messages >= keep:
            break
        if n_bytes > 2 * MAX_BYTES:
            break
        reached = ordinal
        entry = _message(row)
        if entry is None:
            continue
        n_messages += 1
        uncovered = ordinal > leaf.coverage_ordinal and is_eligible(entry)
        if entry.id in invalid or not (n_messages <= keep or uncovered):
            continue
        n_bytes += len(row.value)
        found.append(Candidate(ordinal, row.tokens, entry, uncovered))
    if leaf.user_ordinal and leaf.user_ordinal < reached:
        for ordinal, row in chain_backwards(session, leaf.lineage, leaf.user_ordinal):
            entry = _message(row)
            if ordinal == leaf.user_ordinal and entry is not None and entry.id not in invalid:
                uncovered = ordinal > leaf.coverage_ordinal
                found.append(Candidate(ordinal, row.tokens, entry, uncovered))
            break
    return found[::-1], reached


def _message(row: EntryRow) -> Entry | None:
    entry = decode(row.value)
    return entry if entry.kind == "message" and entry.message is not None else None


def _within_tokens(
    candidates: list[Candidate], user_ordinal: int, cap: float | None
) -> list[Candidate]:
    if cap is None:
        return candidates
    total = sum(item.tokens for item in candidates)
    shown: list[Candidate] = []
    for item in candidates:
        if total > cap and item.ordinal != user_ordinal:
            total -= item.tokens
        else:
            shown.append(item)
    return shown


def _within_bytes(
    shown: list[Candidate], user_ordinal: int, cap: float | None, secrets: Sequence[str]
) -> tuple[list[str], list[Candidate]]:
    """Render what pairs, then leave out from the front until it fits."""
    room = MAX_BYTES - _OMISSION_BYTES
    most = room if cap is None else min(room, max(64, int(cap * 4)))
    while True:
        rendered = _lines(shown, secrets)
        if user_ordinal in rendered and utf8_length(rendered[user_ordinal]) > most:
            text = cut_utf8(rendered[user_ordinal], most - utf8_length(CUT))
            rendered[user_ordinal] = text + CUT
        total = sum(utf8_length(line) + 1 for line in rendered.values())
        kept = [item for item in shown if item.ordinal in rendered]
        if total <= room or len(kept) <= 1:
            return list(rendered.values()), kept
        over = total - room
        shown = []
        for item in kept:
            if over > 0 and item.ordinal != user_ordinal:
                over -= utf8_length(rendered[item.ordinal]) + 1
            else:
                shown.append(item)


def _lines(shown: list[Candidate], secrets: Sequence[str]) -> dict[int, str]:
    """Return the line of each entry that has something to show, by ordinal."""
    pairing = pair([item.entry for item in shown])
    lines: dict[int, str] = {}
    for index, item in enumerate(shown):
        message = item.entry.message
        assert message is not None
        parts: list[str] = []
        n_orphans = 0
        for number, block in enumerate(message.content):
            if (index, number) in pairing.orphans:
                n_orphans += 1
                continue
            text = block_text(block, secrets)
            if (index, number) in pairing.open_calls:
                text = f"{text} {OPEN_CALL}"
            if text:
                parts.append(text)
        if parts or not n_orphans:
            line = f"[{item.entry.id}] {message.role}: {' '.join(parts)}"
            lines[item.ordinal] = redact_rendered(line, secrets)
    return lines


def _omissions(
    session: Session,
    leaf: LeafHead,
    candidates: list[Candidate],
    shown: list[Candidate],
    reached: int,
) -> list[str]:
    """Return the line that names the uncovered sources which are not shown, if there are any."""
    if not leaf.n_pending:
        return []
    shown_ordinals = {item.ordinal for item in shown}
    n_left = leaf.n_pending - sum(item.is_uncovered for item in shown)
    if n_left <= 0:
        return []
    left = [item for item in candidates if item.is_uncovered and item.ordinal not in shown_ordinals]
    first_id = last_id = left[-1].entry.id if left else ""
    for ordinal, row in chain(session, leaf.lineage, leaf.coverage_ordinal):
        entry = decode(row.value)
        if is_eligible(entry) and ordinal not in shown_ordinals:
            first_id = entry.id
            break
    if not left:
        for ordinal, row in chain_backwards(session, leaf.lineage):
            entry = decode(row.value)
            if is_eligible(entry) and ordinal not in shown_ordinals:
                last_id = entry.id
                break
    noun = "message" if n_left == 1 else "messages"
    return [
        f"{NOT_SHOWN} {n_left} {noun} from {first_id} to {last_id}: not yet observed, and over the "
        "window's cap, withdrawn, or a result whose call is not shown"
    ]
