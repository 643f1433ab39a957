"""A partition at one instant, for whole answers while batches go on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rocksdict import RdictIter

from ombus_streams.engine.kafka.areas import OPERATIONAL, POSITION, ROWS, bounds, position_of
from ombus_streams.engine.kafka.rocks import Memory
from ombus_streams.engine.kafka.store_errors import store_error
from ombus_streams.runtime.ports import PositionRow

_FIRST_PAGE: Final = 32
_LARGEST_PAGE: Final = 2_048


class Snapshot:
    """Rows and position row of one partition at one instant.

    A ``Snapshot`` of rocksdict 0.3.29 iterates over what is stored *now*; an iterator stays at the
    instant it was made, so one iterator answers everything here, moved anew for each page.
    """

    def __init__(self, view: RdictIter, path: Path) -> None:
        self._view, self._path = view, path

    def get(self, key: bytes) -> bytes | None:
        return self._get(ROWS + key)

    def scan(
        self, prefix: bytes, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        low, begin = bounds(prefix, start, reverse)
        size, last = _FIRST_PAGE, b""
        while True:
            page = self._page(low, last or begin, reverse, size, last)
            for key, value in page:
                yield key[1:], value
            if len(page) < size:
                return
            last, size = page[-1][0], min(2 * size, _LARGEST_PAGE)

    def position(self) -> PositionRow | None:
        return position_of(self._get(POSITION))

    def get_operational(self, key: bytes) -> bytes | None:
        return self._get(OPERATIONAL + key)

    def _get(self, key: bytes) -> bytes | None:
        view = self._view
        view.seek(key)
        self._check()
        return bytes(view.value()) if view.valid() and view.key() == key else None

    def _page(
        self, low: bytes, begin: bytes, reverse: bool, size: int, last: bytes
    ) -> list[tuple[bytes, bytes]]:
        view, found = self._view, list[tuple[bytes, bytes]]()
        step = view.prev if reverse else view.next
        if reverse:
            view.seek_for_prev(begin)
        else:
            view.seek(begin)
        # The first key may be the last one of the page before, or the one after the prefix.
        if view.valid() and (view.key() == last or (reverse and not view.key().startswith(low))):
            step()
        while len(found) < size and view.valid() and view.key().startswith(low):
            found.append((view.key(), view.value()))
            step()
        self._check()
        return found

    def _check(self) -> None:
        """Raise if the view stands nowhere because a block is damaged, not because of the end."""
        if not self._view.valid():
            try:
                self._view.status()
            except Exception as error:
                raise store_error(self._path, error) from error


@contextmanager
def reading(path: Path, memory: Memory | None = None) -> Iterator[Snapshot]:
    """Lend a partition's database as it stands now to a process that does not fold it.

    Raises:
        StoreError: there is none at ``path``, or it cannot be read.
    """
    rows = (memory or Memory()).open_to_read(path)
    try:
        yield Snapshot(rows.iter(), path)
    finally:
        rows.close()
