"""Rows: the bytes a fold keeps between entries. Pure code sees only this face of a store.

``Overlay`` holds what a batch has changed over what is stored; engines write it in one
transaction. Its scans see the changes, so a fold never knows where a batch was cut.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, Protocol


class Rows(Protocol):
    """An ordered byte map."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(
        self, prefix: bytes, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows whose key begins with ``prefix``, in key order, or backwards.

        ``start`` (inclusive) is where to begin: the lowest key forwards, the highest backwards.
        """
        ...


class MemoryRows:
    """Rows in a dictionary: scratch folds and tests."""

    def __init__(self, rows: Mapping[bytes, bytes] | None = None) -> None:
        self._rows: dict[bytes, bytes] = dict(rows or {})
        self._keys = _SortedKeys(self._rows)

    @property
    def rows(self) -> Mapping[bytes, bytes]:
        """Every row there is, in no order."""
        return self._rows

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def scan(
        self, prefix: bytes, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows as ``Rows.scan``; a change made meanwhile shows if it lies ahead."""
        last: bytes | None = None
        while (key := self._keys.next(prefix, start, last, reverse)) is not None:
            last = key
            yield key, self._rows[key]

    def put(self, key: bytes, value: bytes) -> None:
        self._rows[key] = value

    def delete(self, key: bytes) -> None:
        if key in self._rows:
            self._keys.remove(key)
            del self._rows[key]

    def apply(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Write what an ``Overlay`` holds, as a store's commit does."""
        for key, value in changes.items():
            if value is None:
                self.delete(key)
            else:
                self.put(key, value)


class Overlay:
    """Changes over ``under``, which must not change while they are gathered."""

    def __init__(self, under: Rows) -> None:
        self.under = under
        self._changes: dict[bytes, bytes | None] = {}
        self._expected: dict[bytes, bytes | None] = {}
        self._keys = _SortedKeys(self._changes)

    @property
    def changes(self) -> Mapping[bytes, bytes | None]:
        """New bytes by key, ``None`` = deleted: what the commit of a batch writes."""
        return self._changes

    def get(self, key: bytes) -> bytes | None:
        if key in self._changes:
            return self._changes[key]
        if key in self._expected:
            return self._expected[key]
        return self.under.get(key)

    def expect(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Take rows as they are stored, ``None`` = absent, so that nobody reads them one by one.

        They are forgotten with the changes.
        """
        self._expected.update(rows)

    def put(self, key: bytes, value: bytes) -> None:
        self._changes[key] = value

    def delete(self, key: bytes) -> None:
        self._changes[key] = None

    def clear(self) -> None:
        """Forget the changes: they are stored now, or their batch has failed."""
        self._changes.clear()
        self._expected.clear()
        self._keys = _SortedKeys(self._changes)

    def scan(
        self, prefix: bytes, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows as ``Rows.scan``; a change made meanwhile shows if it lies ahead.

        Each step yields the next row there is by then, wherever it is kept: what a fold reads
        must not depend on which of its rows happen to be stored already.
        """
        changes = self._changes
        stored = self.under.scan(prefix, start, reverse)
        row = next(stored, None)
        last: bytes | None = None
        while row is not None and not changes:
            last = row[0]
            yield row
            row = next(stored, None)
        while True:
            key = self._keys.next(prefix, start, last, reverse) if changes else None
            if row is not None and (key is None or (row[0] > key if reverse else row[0] < key)):
                last = row[0]
                yield row
                row = next(stored, None)
                continue
            if key is None:
                return
            if row is not None and row[0] == key:
                row = next(stored, None)
            last = key
            value = changes[key]
            if value is not None:
                yield key, value


_FEW: Final = 8
"""Up to one new key per so many old ones is put in its place; more are sorted in together."""


class _SortedKeys:
    """The keys of ``rows`` in byte order; those added since the last look are put in their place by
    the next: a dictionary gives them last."""

    def __init__(self, rows: dict[bytes, bytes] | dict[bytes, bytes | None]) -> None:
        self._rows = rows
        self._sorted = sorted(rows)

    def remove(self, key: bytes) -> None:
        """Forget a key that is there, before it leaves ``rows``."""
        keys = self._settled()
        del keys[bisect_left(keys, key)]

    def next(
        self, prefix: bytes, start: bytes | None, last: bytes | None, reverse: bool
    ) -> bytes | None:
        """Return the key after ``last``, or the first one, of a scan with these bounds."""
        keys = self._settled()
        if reverse:
            if last is not None:
                at = bisect_left(keys, last)
            else:
                at = bisect_left(keys, after) if (after := after_prefix(prefix)) else len(keys)
                if start is not None:
                    at = min(at, bisect_right(keys, start))
            at -= 1
            found = keys[at] if at >= 0 else None
        else:
            if last is not None:
                at = bisect_right(keys, last)
            else:
                at = bisect_left(keys, prefix if start is None else max(prefix, start))
            found = keys[at] if at < len(keys) else None
        return found if found is not None and found.startswith(prefix) else None

    def _settled(self) -> list[bytes]:
        keys = self._sorted
        n_fresh = len(self._rows) - len(keys)
        if n_fresh:
            fresh = islice(reversed(self._rows), n_fresh)
            if n_fresh * _FEW > len(keys):
                keys.extend(fresh)
                keys.sort()
            else:
                for key in fresh:
                    insort(keys, key)
        return keys


def after_prefix(prefix: bytes) -> bytes | None:
    """Return the least key above all that begin with ``prefix``, ``None`` if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else None
