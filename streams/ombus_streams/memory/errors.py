"""What the pure functions refuse, each with its evidence.

MemoryFault (RuntimeError)
├── UnknownLeaf       the leaf is not among the entries
├── MissingParent     an entry names a parent that is not among the entries
├── DuplicateEntry    two entries share an id
├── ParentCycle       following parents comes back to where it was
├── RowUnreadable     a stored row does not decode: the store is damaged, or of another fold
└── SizeExceeded      a text or a payload is larger than its cap, with nothing left to trim

An argument of a wrong type is a ``TypeError``, a number out of its range a ``ValueError``. None
of them can pass by waiting: the same call fails again.
"""


class MemoryFault(RuntimeError):
    """The call cannot be answered from these entries."""


class UnknownLeaf(MemoryFault):
    """Nothing among the entries has the id of the asked leaf."""

    def __init__(self, leaf_id: str) -> None:
        super().__init__(f"no entry {leaf_id!r} to be the leaf: ask for one that was appended")
        self.leaf_id = leaf_id


class MissingParent(MemoryFault):
    """The chain is broken above an entry."""

    def __init__(self, parent_id: str) -> None:
        super().__init__(f"parent {parent_id!r} is not among the entries: append it first")
        self.parent_id = parent_id


class DuplicateEntry(MemoryFault):
    """An id names two entries, so no chain is certain."""

    def __init__(self, entry_id: str) -> None:
        super().__init__(f"two entries have the id {entry_id!r}: ids are unique in a session")
        self.entry_id = entry_id


class ParentCycle(MemoryFault):
    """An entry is its own ancestor."""

    def __init__(self, entry_id: str) -> None:
        super().__init__(f"entry {entry_id!r} is its own ancestor: a chain ends at a root")
        self.entry_id = entry_id


class RowUnreadable(MemoryFault):
    """A stored row holds bytes no fold of this version writes."""

    def __init__(self, session: str, row: str) -> None:
        super().__init__(
            f"the {row} of session {session} cannot be read: `ombus verify` shows what differs, "
            "`ombus rebuild` folds it anew from the log"
        )
        self.session, self.row = session, row


class SizeExceeded(MemoryFault):
    """``label`` needs more than ``limit`` bytes."""

    def __init__(self, label: str, limit: float, actual: float) -> None:
        super().__init__(
            f"{label} exceeds {limit:,} bytes, it holds {actual:,}: send less or raise the cap"
        )
        self.label = label
        self.limit = limit
        self.actual = actual
