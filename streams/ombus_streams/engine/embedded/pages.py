"""Walking a range of keys in pages, so that no statement stays open between two rows.

An open statement holds a read transaction, and with it every page the WAL would like to forget.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from ombus_streams.memory.rows import after_prefix

Row: TypeAlias = tuple[Any, ...]
"""A row as the driver hands it over; it gets its types where it is taken apart."""
Fetch: TypeAlias = Callable[..., list[Row]]
"""Runs a query with its values and returns all it finds."""

_FIRST_PAGE: Final = 32
_LARGEST_PAGE: Final = 2_048
"""Pages double from the first size to this one: most scans stop after a row."""


def scan_pages(
    fetch: Fetch, partition: int, prefix: bytes, start: bytes | None, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of the partition's rows that ``StateStore.scan`` speaks of."""
    low, low_sign = prefix, ">="
    high, high_sign = after_prefix(prefix), "<"
    if start is not None and not reverse and start > low:
        low = start
    if start is not None and reverse and (high is None or start < high):
        high, high_sign = start, "<="
    order = "DESC" if reverse else "ASC"
    page = _FIRST_PAGE
    while True:
        values: tuple[object, ...] = (partition, low)
        query = f"SELECT key, value FROM stored WHERE partition = ? AND key {low_sign} ?"
        if high is not None:
            query += f" AND key {high_sign} ?"
            values += (high,)
        found = fetch(f"{query} ORDER BY key {order} LIMIT ?", *values, page)
        yield from found
        if len(found) < page:
            return
        page = min(2 * page, _LARGEST_PAGE)
        if reverse:
            high, high_sign = found[-1][0], "<"
        else:
            low, low_sign = found[-1][0], ">"
