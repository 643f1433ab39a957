"""Branches of a plain list of entries, and the messages a compaction leaves of one (S1).

The strict helper of the reference: a broken chain raises. Engines, where entries arrive late and
twice, follow the session's tree instead (design.md section 12, row 21).
"""

from collections.abc import Sequence

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.records import Compaction, compaction_of

from ombus_streams.memory.errors import DuplicateEntry, MissingParent, ParentCycle, UnknownLeaf


class Branch(msgspec.Struct, frozen=True):
    """A leaf and its chain, root first."""

    leaf_id: str
    entries: tuple[Entry, ...]


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is given again of a branch."""

    leaf_id: str | None
    """Absent only where there is no entry."""
    branch: tuple[Entry, ...]
    """The raw chain, always whole."""
    messages: tuple[Entry, ...]
    summaries: tuple[str, ...]


def branch(entries: Sequence[Entry], leaf_id: str | None = None) -> tuple[Entry, ...]:
    """Return the chain of ``leaf_id``, root first; of the last entry in the list without one.

    An empty leaf id names no entry and has no chain. Raises ``DuplicateEntry``, ``UnknownLeaf``,
    ``MissingParent`` or ``ParentCycle``.
    """
    by_id = _by_id(entries)
    if leaf_id is None:
        leaf_id = entries[-1].id if entries else ""
    if not leaf_id:
        return ()
    if leaf_id not in by_id:
        raise UnknownLeaf(leaf_id)
    return _chain(by_id, by_id[leaf_id])


def branches(entries: Sequence[Entry]) -> tuple[Branch, ...]:
    """Return the branch of each entry that is nobody's parent, in list order."""
    by_id = _by_id(entries)
    parents = frozenset(entry.parent for entry in entries)
    leaves = (entry for entry in entries if entry.id not in parents)
    return tuple(Branch(leaf.id, _chain(by_id, leaf)) for leaf in leaves)


def rebuild(entries: Sequence[Entry], leaf_id: str | None = None) -> Rebuilt:
    """Return what the latest compaction on the branch leaves: messages, and summaries.

    The messages after ``throughEntryId``, or all without one, and those it keeps by id, in branch
    order; its summary, then the summary entries after it. A ``throughEntryId`` that names nothing
    on the branch leaves only what is kept. Without a compaction: everything.
    """
    chain = branch(entries, leaf_id)
    compaction, text = _latest_compaction(chain)
    start = _start(chain, compaction)
    kept = frozenset(compaction.keep_entry_ids) if compaction else frozenset[str]()
    return Rebuilt(
        leaf_id=chain[-1].id if chain else None,
        branch=chain,
        messages=tuple(
            entry
            for place, entry in enumerate(chain)
            if entry.kind == "message"
            and entry.message is not None
            and (place >= start or entry.id in kept)
        ),
        summaries=(
            *((text,) if text else ()),
            *(
                entry.summary
                for entry in chain[start:]
                if entry.kind == "summary" and entry.summary is not None
            ),
        ),
    )


def _by_id(entries: Sequence[Entry]) -> dict[str, Entry]:
    by_id: dict[str, Entry] = {}
    for entry in entries:
        if by_id.setdefault(entry.id, entry) is not entry:
            raise DuplicateEntry(entry.id)
    return by_id


def _chain(by_id: dict[str, Entry], leaf: Entry) -> tuple[Entry, ...]:
    chain = [leaf]
    while (parent_id := chain[-1].parent) is not None:
        parent = by_id.get(parent_id)
        if parent is None:
            raise MissingParent(parent_id)
        if len(chain) >= len(by_id):
            raise ParentCycle(parent_id)
        chain.append(parent)
    return tuple(reversed(chain))


def _latest_compaction(chain: Sequence[Entry]) -> tuple[Compaction | None, str]:
    for entry in reversed(chain):
        compaction = compaction_of(entry) if isinstance(entry.data, dict) else None
        if compaction is not None:
            return compaction, entry.summary or ""
    return None, ""


def _start(chain: Sequence[Entry], compaction: Compaction | None) -> int:
    """Return the place of the first entry the compaction has not summarised."""
    if compaction is None or not compaction.through_entry_id:
        return 0
    for place, entry in enumerate(chain):
        if entry.id == compaction.through_entry_id:
            return place + 1
    return len(chain)
