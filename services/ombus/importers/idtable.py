"""A map from 64-bit hashes to row numbers in two arrays: 20 bytes a row, where a dict takes 170.

A transcript of a gigabyte has millions of rows, and every one of them has an id.
"""

from array import array
from typing import Final

_EMPTY: Final = -1
_SMALLEST: Final = 64


class IdTable:
    """Nothing is taken out; keys are hashes already, so their low bits spread them."""

    def __init__(self) -> None:
        self._keys = array("Q", bytes(8 * _SMALLEST))
        self._rows = array("i", [_EMPTY]) * _SMALLEST
        self._n_used = 0

    def __len__(self) -> int:
        return self._n_used

    def __contains__(self, key: int) -> bool:
        return self.get(key) >= 0

    def get(self, key: int) -> int:
        """Return the row of ``key``, or -1."""
        return self._rows[self._slot(key)]

    def add(self, key: int, row: int) -> bool:
        """Note ``row`` for ``key``; return False, changing nothing, if the key has one."""
        slot = self._slot(key)
        if self._rows[slot] != _EMPTY:
            return False
        self._keys[slot], self._rows[slot] = key, row
        self._n_used += 1
        if self._n_used * 3 > len(self._rows) * 2:
            self._grow()
        return True

    def put(self, key: int, row: int) -> None:
        """Note ``row`` for ``key``, whatever it had."""
        if not self.add(key, row):
            self._rows[self._slot(key)] = row

    def _slot(self, key: int) -> int:
        keys, rows = self._keys, self._rows
        mask = len(rows) - 1
        slot = key & mask
        while rows[slot] != _EMPTY and keys[slot] != key:
            slot = (slot + 1) & mask
        return slot

    def _grow(self) -> None:
        keys, rows = self._keys, self._rows
        self._keys = array("Q", bytes(16 * len(keys)))
        self._rows = array("i", [_EMPTY]) * (2 * len(rows))
        for key, row in zip(keys, rows, strict=True):
            if row != _EMPTY:
                slot = self._slot(key)
                self._keys[slot], self._rows[slot] = key, row
