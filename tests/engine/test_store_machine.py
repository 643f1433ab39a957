"""Random histories of a store against a dictionary: batches, refusals, failures anywhere."""

import shutil
import tempfile
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from ombus_streams.engine.embedded.errors import StorageFailed
from ombus_streams.engine.embedded.store import StateFile
from ombus_streams.memory.rows import Overlay
from ombus_streams.runtime.errors import Closed, StalePosition
from ombus_streams.runtime.ports import PositionRow, StateStore

from tests.engine.contract.engines import State
from tests.engine.faults import Fuse, fused

KEYS = st.lists(st.sampled_from([b"a", b"b", b"\x00", b"\xff"]), max_size=3).map(b"".join)
VALUES = st.sampled_from([b"", b"1", b"2"])
CHANGES = st.dictionaries(KEYS, st.none() | VALUES, max_size=6)
EMISSIONS = st.lists(VALUES, max_size=3)


class StoreMachine(RuleBasedStateMachine):
    """One partition with an owner, a zombie that still holds a handle, and a reader."""

    failure: ClassVar[type[Exception]] = StorageFailed

    @staticmethod
    def open_state(folder: Path) -> State:
        return StateFile(folder)

    @staticmethod
    def faults() -> AbstractContextManager[Fuse]:
        return fused()

    @initialize()
    def create(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.resources = ExitStack()
        self.fuse = self.resources.enter_context(self.faults())
        self.rows: dict[bytes, bytes] = {}
        self.position: PositionRow | None = None
        self.outbox: list[bytes] = []
        self.operational: dict[bytes, bytes] = {}
        self.zombie: tuple[StateStore, PositionRow | None] | None = None
        self.offset = 0
        self.open()

    def open(self) -> None:
        self.file = self.open_state(self.folder)
        self.store = self.file.store(0)

    def crash(self) -> None:
        self.file.close()
        self.open()

    def next_position(self) -> PositionRow:
        self.offset += 1
        return PositionRow(
            incarnation="i", partition=0, next_offset=self.offset, fold_version=1, last_hash="h"
        )

    def committed(
        self, changes: dict[bytes, bytes | None], outbox: list[bytes], to: PositionRow
    ) -> None:
        for key, value in changes.items():
            self.rows.pop(key, None)
            if value is not None:
                self.rows[key] = value
        self.outbox += outbox
        self.position = to

    @rule(changes=CHANGES, outbox=EMISSIONS)
    def commit(self, changes: dict[bytes, bytes | None], outbox: list[bytes]) -> None:
        batch = Overlay(self.store)
        for key, value in changes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        seen, to = list(batch.scan(b"")), self.next_position()
        self.store.commit(batch.changes, self.position, to, outbox)
        self.committed(changes, outbox, to)
        assert seen == list(self.store.scan(b""))

    @rule(changes=CHANGES, outbox=EMISSIONS, left=st.integers(0, 12), crash=st.booleans())
    def commit_that_fails_on_the_way(
        self, changes: dict[bytes, bytes | None], outbox: list[bytes], left: int, crash: bool
    ) -> None:
        to = self.next_position()
        self.fuse.left = left
        try:
            self.store.commit(changes, self.position, to, outbox)
        except self.failure:
            pass
        else:
            self.committed(changes, outbox, to)
        self.fuse.left = None
        if crash:
            self.crash()

    @rule()
    def hand_over(self) -> None:
        """A new owner opens the folder; the old one does not know yet."""
        if self.zombie is None:
            self.zombie = (self.store, self.position)
            self.resources.callback(self.file.close)
            self.open()

    @precondition(lambda self: self.zombie is not None)
    @rule(changes=CHANGES)
    def old_owner_wakes_up(self, changes: dict[bytes, bytes | None]) -> None:
        assert self.zombie is not None
        store, begun_at = self.zombie
        to = self.next_position()
        if begun_at == self.position:
            store.commit(changes, begun_at, to, [b"zombie"])
            self.committed(changes, [b"zombie"], to)
        else:
            with pytest.raises(StalePosition):
                store.commit(changes, begun_at, to, [b"zombie"])
        store.close()
        with pytest.raises(Closed):
            store.commit(changes, self.position, to)
        self.zombie = None

    @rule(key=KEYS, value=st.none() | VALUES)
    def attempt(self, key: bytes, value: bytes | None) -> None:
        self.store.put_operational(key, value)
        self.operational.pop(key, None)
        if value is not None:
            self.operational[key] = value

    @rule(count=st.integers(1, 4))
    def send(self, count: int) -> None:
        sending = self.store.outbox(count)
        assert [value for _, value in sending] == self.outbox[:count]
        if sending:
            self.store.sent(sending[-1][0])
            del self.outbox[: len(sending)]

    @rule()
    def wipe(self) -> None:
        self.store.wipe()
        self.rows, self.position = {}, None

    @rule()
    def crash_between_batches(self) -> None:
        self.crash()

    @rule(changes=CHANGES)
    def read_while_a_batch_is_committed(self, changes: dict[bytes, bytes | None]) -> None:
        with self.file.snapshot(0) as then:
            before, position = sorted(self.rows.items()), self.position
            to = self.next_position()
            self.store.commit(changes, self.position, to)
            self.committed(changes, [], to)
            assert list(then.scan(b"")) == before
            assert then.position() == position

    @rule(prefix=KEYS, start=st.none() | KEYS, reverse=st.booleans())
    def scan(self, prefix: bytes, start: bytes | None, reverse: bool) -> None:
        keys = [
            key
            for key in sorted(self.rows, reverse=reverse)
            if key.startswith(prefix)
            and (start is None or (key <= start if reverse else key >= start))
        ]
        assert [key for key, _ in self.store.scan(prefix, start, reverse)] == keys

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        assert self.store.get(key) == self.rows.get(key)
        assert self.store.get_operational(key) == self.operational.get(key)

    @invariant()
    def is_like_the_model(self) -> None:
        if hasattr(self, "store"):
            assert dict(self.store.scan(b"")) == self.rows
            assert self.store.position() == self.position
            assert [value for _, value in self.store.outbox(1_000)] == self.outbox

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.file.close()
            self.resources.close()
            shutil.rmtree(self.folder)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
