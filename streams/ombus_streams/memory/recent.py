"""The raw messages of one leaf, from its rows: what ``pending`` shows, found without its history.

Differs from S10 by rows 12 and 19 of design.md section 12.
"""

from collections.abc import Sequence
from typing import Final

from ombus_schemas.codec import decode
from ombus_schemas.entries import Entry

from ombus_streams.memory.coverage import is_eligible
from ombus_streams.memory.head import EntryRow, LeafHead
from ombus_streams.memory.pending import Window, select
from ombus_streams.memory.session import Session, chain, chain_backwards
from ombus_streams.memory.terms import settings_of
from ombus_streams.memory.window import MAX_BYTES

_MAX_READ_BYTES: Final = 2 * MAX_BYTES
"""A window cannot show more; what lies further back is counted, not read."""


def recent(
    session: Session,
    leaf: LeafHead,
    keep: int | None = None,
    max_tokens: float | None = None,
    secrets: Sequence[str] = (),
) -> Window:
    """Return the last ``keep`` messages (the setting's by default) and all uncovered sources.

    The newest message of the user is always in it, cut and marked if it alone is over the caps.
    """
    settings = settings_of(session, leaf).context
    wanted = settings.recent_messages if keep is None else max(0, keep)
    cap = settings.recent_message_max_tokens if max_tokens is None else max_tokens
    found, pending, reached = _candidates(session, leaf, wanted)
    newest = next((i for i, (at, _) in enumerate(found) if at == leaf.user_ordinal), None)
    n_older = leaf.n_pending - len(pending)
    return select(
        [entry for _, entry in found],
        range(len(found)),
        newest,
        pending,
        cap,
        session.invalid_from().keys(),
        "closed",
        secrets,
        _ends_of_older(session, leaf, reached) if n_older else (),
        n_older,
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


def _candidates(
    session: Session, leaf: LeafHead, keep: int
) -> tuple[list[tuple[int, Entry]], set[str], int]:
    """Return wanted messages oldest first, the pending ids among them, and how far it has read."""
    found: list[tuple[int, Entry]] = []
    pending: set[str] = set()
    n_messages, n_bytes, reached = 0, 0, leaf.tip_ordinal + 1
    for ordinal, row in chain_backwards(session, leaf.lineage):
        if ordinal <= leaf.coverage_ordinal and n_messages >= keep:
            break
        if n_bytes > _MAX_READ_BYTES:
            break
        reached = ordinal
        entry = _message(row)
        if entry is None:
            continue
        n_messages += 1
        is_pending = ordinal > leaf.coverage_ordinal and is_eligible(entry)
        if is_pending:
            pending.add(entry.id)
        if is_pending or n_messages <= keep:
            n_bytes += len(row.value)
            found.append((ordinal, entry))
    if 0 < leaf.user_ordinal < reached or (
        leaf.user_ordinal and all(ordinal != leaf.user_ordinal for ordinal, _ in found)
    ):
        for ordinal, row in chain_backwards(session, leaf.lineage, leaf.user_ordinal):
            entry = _message(row)
            if ordinal == leaf.user_ordinal and entry is not None:
                found.append((ordinal, entry))
                if ordinal > leaf.coverage_ordinal:
                    pending.add(entry.id)
            break
    found.sort(key=lambda item: item[0])
    return found, pending, reached


def _ends_of_older(session: Session, leaf: LeafHead, reached: int) -> tuple[str, ...]:
    """Return the first and the last pending source that lie before what was read."""
    first = last = ""
    for ordinal, row in chain(session, leaf.lineage, leaf.coverage_ordinal, reached - 1):
        entry = decode(row.value)
        if is_eligible(entry) and ordinal != leaf.user_ordinal:
            first = entry.id
            break
    for ordinal, row in chain_backwards(session, leaf.lineage, reached - 1):
        entry = decode(row.value)
        if is_eligible(entry) and ordinal != leaf.user_ordinal:
            last = entry.id
            break
    return (first,) if first == last else (first, last)


def _message(row: EntryRow) -> Entry | None:
    entry = decode(row.value)
    return entry if entry.kind == "message" and entry.message is not None else None
