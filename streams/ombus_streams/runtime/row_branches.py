"""Sessions whose rows are at hand, for shared reads: one snapshot a session, and no log."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from ombus_streams.memory.session import Session
from ombus_streams.memory.shared_rows import SharedBranch, shared_branch


class Lent(Protocol):
    """A session as of one instant."""

    @property
    def session(self) -> Session: ...


class RowBranches:
    """What ``reading`` lends, an engine's way to a session."""

    def __init__(self, reading: Callable[[bytes], AbstractContextManager[Lent]]) -> None:
        self._reading = reading

    def fetch(self, key: bytes, scope_id: str, memory_id: str | None) -> SharedBranch | None:
        with self._reading(key) as live:
            session = live.session
            if session.is_new or not session.head.default_segment:
                return None
            leaf = session.leaf(session.head.default_segment)
            return shared_branch(session, leaf, scope_id, memory_id)
