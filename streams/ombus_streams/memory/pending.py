"""The messages shown raw: the recent ones, and all that no run has read (design.md section 8).

Every unread source is in the window, or named by an omission; so with what accepted records have
read, nothing is silently missing. The newest user message is always there.
"""

from collections.abc import Sequence, Set
from typing import Final, Literal

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, utf8_length, utf16_length

from ombus_streams.memory.coverage import eligible_sources
from ombus_streams.memory.ledger import fold
from ombus_streams.memory.pairing import shown
from ombus_streams.memory.redact import cut_utf16, redact_text
from ombus_streams.memory.tokens import entry_tokens
from ombus_streams.memory.window import KEEP_RECENT, MAX_BYTES, render_window, window_ids

PairRule = Literal["closed", "as_recorded"]
"""``closed``: no result without its call. ``as_recorded``: as the entries stand."""
Reason = Literal["over the budget", "withdrawn", "result without its call", "cut"]

NOTICE_BYTES: Final = 2_048
"""Room for the last lines, taken from a block's cap."""
CUT: Final = "[cut]"
NOT_SHOWN: Final = "[not shown"
"""How each line begins that names what is missing."""


class Omission(msgspec.Struct, kw_only=True, frozen=True):
    """Entries that ought to be in a window and are not, for one reason."""

    reason: Reason
    n_entries: int
    first_id: str
    last_id: str


class Window(msgspec.Struct, kw_only=True, frozen=True):
    """The messages shown raw, and what is missing among them."""

    entries: tuple[Entry, ...]
    omissions: tuple[Omission, ...] = ()


def notice(omission: Omission) -> str:
    """Return the line that says what is missing: why, how many, from where to where."""
    found = _span(omission.n_entries, omission.first_id, omission.last_id, "message")
    return f"{NOT_SHOWN}, {omission.reason}: {found}]"


def span(ids: Sequence[str], noun: str) -> str:
    """Return how many there are and the first and last id; never empty."""
    return _span(len(ids), ids[0], ids[-1], noun)


def pending_window(
    entries: Sequence[Entry],
    keep_recent: float | None = None,
    max_tokens: float | None = None,
    invalidated_ids: Set[str] = frozenset(),
    pairs: PairRule = "closed",
    secrets: Sequence[str] = (),
) -> Window:
    """Return the recent messages and all unread sources that fit ``max_tokens`` and the byte cap.

    The oldest go first; the newest user message stays, cut and marked if it must be. Every unread
    source that is not shown whole is in an omission.
    """
    keep = KEEP_RECENT if keep_recent is None else keep_recent
    pending = {
        entry.id for entry in eligible_sources(entries, fold(entries).observation_coverage_id)
    }
    wanted = pending.union(window_ids(entries, keep))
    newest = _newest_user(entries, invalidated_ids)
    places = [
        i
        for i, entry in enumerate(entries)
        if (entry.id in wanted and entry.message is not None and entry.kind == "message")
        or i == newest
    ]
    return select(entries, places, newest, pending, max_tokens, invalidated_ids, pairs, secrets)


def select(
    entries: Sequence[Entry],
    places: Sequence[int],
    newest: int | None,
    pending: Set[str],
    max_tokens: float | None = None,
    invalidated_ids: Set[str] = frozenset(),
    pairs: PairRule = "closed",
    secrets: Sequence[str] = (),
    left_before: Sequence[str] = (),
    n_left_before: int = 0,
) -> Window:
    """Return the window of the messages at ``places``, which are wanted, oldest first.

    ``newest`` is the place of the newest user message; ``pending`` the ids that must be named when
    they are not shown. Of ``n_left_before`` older ones only the first and last id are given.
    """
    withdrawn = [entries[i] for i in places if entries[i].id in invalidated_ids]
    places = [i for i in places if entries[i].id not in invalidated_ids]
    chosen, over = _fitting(entries, places, newest, max_tokens, secrets)
    kept, robbed = (
        shown(entries, chosen)
        if pairs == "closed"
        else ({i: entries[i] for i in sorted(chosen)}, ())
    )
    cut_ids: list[str] = []
    if newest is not None and newest in kept:
        whole = kept[newest]
        kept[newest] = _cut_message(whole, max_tokens, secrets)
        if kept[newest] is not whole:
            cut_ids.append(whole.id)
    over_ids = [*left_before, *(entries[i].id for i in over if entries[i].id in pending)]
    groups: tuple[tuple[Reason, list[str]], ...] = (
        ("over the budget", over_ids),
        ("withdrawn", [entry.id for entry in withdrawn]),
        ("result without its call", [entry.id for entry in robbed]),
        ("cut", cut_ids),
    )
    unnamed = max(0, n_left_before - len(left_before))
    return Window(
        entries=tuple(kept.values()),
        omissions=tuple(
            Omission(
                reason=reason,
                n_entries=len(ids) + (unnamed if ids is over_ids else 0),
                first_id=ids[0],
                last_id=ids[-1],
            )
            for reason, ids in groups
            if ids
        ),
    )


def _newest_user(entries: Sequence[Entry], invalidated_ids: Set[str]) -> int | None:
    for i in range(len(entries) - 1, -1, -1):
        entry = entries[i]
        if entry.message is None or entry.kind != "message" or entry.id in invalidated_ids:
            continue
        # Text the harness put into the user's mouth is not what the user said.
        if entry.message.role == "user" and entry.origin in (None, "human"):
            return i
    return None


def _fitting(
    entries: Sequence[Entry],
    places: Sequence[int],
    newest: int | None,
    max_tokens: float | None,
    secrets: Sequence[str],
) -> tuple[frozenset[int], list[int]]:
    tokens = {i: entry_tokens(entries[i]) for i in places}
    sizes = {i: utf8_length(render_window((entries[i],), secrets)) + 1 for i in places}
    n_tokens, n_bytes = sum(tokens.values()), sum(sizes.values())
    over: list[int] = []
    for i in places:
        fits = max_tokens is None or n_tokens <= max_tokens
        if fits and n_bytes <= MAX_BYTES - NOTICE_BYTES:
            break
        if i != newest:
            over.append(i)
            n_tokens -= tokens[i]
            n_bytes -= sizes[i]
    return frozenset(places).difference(over), over


def _cut_message(entry: Entry, max_tokens: float | None, secrets: Sequence[str]) -> Entry:
    """Return the message within the budget: the same object when it fits."""
    if entry.message is None:
        return entry
    room = MAX_BYTES - NOTICE_BYTES
    too_large = utf8_length(render_window((entry,), secrets)) > room
    if not too_large and (max_tokens is None or entry_tokens(entry) <= max_tokens):
        return entry
    # Redacted before it is cut, so that half a secret cannot be left over. A UTF-16 unit takes
    # at most three bytes.
    left = room // 4 if max_tokens is None else min(room // 4, max(0, int(max_tokens) * 4))
    content: list[JsonObject] = []
    for block in entry.message.content:
        text = block.get("text")
        if block.get("type") == "text" and isinstance(text, str):
            part = cut_utf16(redact_text(text, secrets), left)
            left -= utf16_length(part)
            if part:
                content.append({"type": "text", "text": part})
    content.append({"type": "text", "text": CUT})
    message = msgspec.structs.replace(entry.message, content=content)
    return msgspec.structs.replace(entry, message=message)


def _span(count: int, first_id: str, last_id: str, noun: str) -> str:
    return f"1 {noun}, {first_id}" if count == 1 else f"{count} {noun}s, {first_id} to {last_id}"
