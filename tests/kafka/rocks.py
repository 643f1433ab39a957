"""Stores for the contract suite, which opens the same place twice to have an old owner; a damage.

In one process a RocksDB is open once: handles of one folder share the state, and the last one to
close it closes the databases.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

from ombus_streams.engine.kafka.areas import ROWS
from ombus_streams.engine.kafka.rocks import Bounds, Memory
from ombus_streams.engine.kafka.store import RocksState, RocksStore

SMALL: Final = Bounds(cache_bytes=4 << 20, buffers_bytes=2 << 20, buffer_bytes=1 << 20)
_states: Final[dict[Path, tuple[RocksState, list["_Shared"]]]] = {}


def small_memory() -> Memory:
    return Memory(SMALL)


def open_state(folder: Path) -> RocksState:
    return RocksState(folder, small_memory())


def open_store(folder: Path, partition: int) -> RocksStore:
    """Return a handle that closes the folder with the last handle on it."""
    state, handles = _states.setdefault(folder, (RocksState(folder, small_memory()), []))
    store = _Shared(state, folder, partition)
    handles.append(store)
    return store


def flip_a_byte(database: Path) -> bytes:
    """Change the last byte of a session's row; return its key."""
    rows = Memory().open(database)
    found = cast("Iterator[tuple[bytes, bytes]]", rows.items(from_key=ROWS + b"acme/"))
    key, value = next(each for each in found if b"\x00" in each[0])
    rows[key] = value[:-1] + bytes([value[-1] ^ 1])
    rows.close()
    return key[1:]


class _Shared(RocksStore):
    def __init__(self, state: RocksState, folder: Path, partition: int) -> None:
        super().__init__(state.store(partition)._on)
        self._folder = folder

    def close(self) -> None:
        super().close()
        state, handles = _states.get(self._folder, (None, []))
        if self in handles:
            handles.remove(self)
        if state is not None and not handles:
            state.close()
            del _states[self._folder]
