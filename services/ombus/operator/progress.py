"""How far a long operation is, told while it goes on."""

from collections.abc import Callable
from typing import TypeAlias

Tell: TypeAlias = Callable[[int, int], None]
"""Told how many of how many are done: records, rows or partitions."""


def untold(done: int, total: int) -> None:
    """Tell nobody."""
