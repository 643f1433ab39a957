"""Rows: the bytes a fold keeps between entries. Pure code sees only this face of a store.

``Overlay`` holds what a batch has changed over what is stored; engines write it in one
transaction. Its scans see the changes, so a fold never knows where a batch was cut.
"""

from collections.abc import Iterator
from heapq import merge
from typing import Protocol


class Rows(Protocol):
    """An ordered byte map."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(
        self, prefix: bytes, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]: ...


class MemoryRows:
    """Rows in a dictionary: scratch folds and tests."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def scan(
        self, prefix: bytes, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        keys = sorted((key for key in self.rows if key.startswith(prefix)), reverse=reverse)
        for key in keys:
            if start is not None and (key > start if reverse else key < start):
                continue
            yield key, self.rows[key]


class Overlay:
    """Changes over ``under``; ``changes`` maps a key to its new bytes, ``None`` = deleted."""

    def __init__(self, under: Rows) -> None:
        self.under = under
        self.changes: dict[bytes, bytes | None] = {}

    def get(self, key: bytes) -> bytes | None:
        if key in self.changes:
            return self.changes[key]
        return self.under.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self.changes[key] = value

    def delete(self, key: bytes) -> None:
        self.changes[key] = None

    def scan(
        self, prefix: bytes, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        changed = sorted(
            (
                key
                for key in self.changes
                if key.startswith(prefix)
                and (start is None or (key <= start if reverse else key >= start))
            ),
            reverse=reverse,
        )
        stored = (
            (key, value)
            for key, value in self.under.scan(prefix, start, reverse)
            if key not in self.changes
        )
        fresh = ((key, value) for key in changed if (value := self.changes[key]) is not None)
        yield from merge(stored, fresh, key=lambda row: row[0], reverse=reverse)
