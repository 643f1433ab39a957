"""Sessions of the same data folder, for shared reads."""

from ombus_streams.engine.embedded.engine import Engine
from ombus_streams.memory.shared_rows import SharedBranch, shared_branch


class EngineBranches:
    """Reads rows, whoever folds them: one snapshot a session, no log."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def fetch(self, key: bytes, scope_id: str, memory_id: str | None) -> SharedBranch | None:
        with self._engine.reading(key) as live:
            session = live.session
            if session.is_new or not session.head.default_segment:
                return None
            leaf = session.leaf(session.head.default_segment)
            return shared_branch(session, leaf, scope_id, memory_id)
