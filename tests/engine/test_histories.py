"""The histories of pitfalls.md, findings 1 to 3: what broke state that had a log of its own.

A fold that is easy to check stands for a processor: every record of a session leaves a row, opens
or closes a parked one (so a batch deletes too), and moves the session's head. Whatever happens on
the way, the end must be what an undisturbed fold of the whole log gives.
"""

import hashlib
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.memory.rows import MemoryRows, Overlay
from ombus_streams.runtime.errors import StalePosition
from ombus_streams.runtime.ports import Draft, LogRecord, PositionRow, StateStore

from tests.engine.contract.engines import STATES, ManualClock, State

SESSIONS = (b"t/a", b"t/b", b"t/c")


class RefusedToStart(Exception):
    """The state is of another log, or ahead of this one."""


def fold(rows: Overlay, record: LogRecord) -> None:
    key, at = record.key, b"%08d" % record.offset
    assert key is not None
    head = b"h/" + key
    n_folded, _, parked = (rows.get(head) or b"0,").partition(b",")
    if parked:
        opened = rows.get(b"p/" + key + parked)
        assert opened is not None, "the parked row never arrived"
        rows.put(b"r/" + key + at, b"joined " + opened)
        rows.delete(b"p/" + key + parked)
    else:
        rows.put(b"p/" + key + at, record.value or b"")
    rows.put(b"o/" + key + at, record.value or b"")
    rows.put(head, b"%d,%s" % (int(n_folded) + 1, b"" if parked else at))


class Owner:
    """Folds partition 0 from the position row of its store, and from nowhere else."""

    def __init__(self, log: SqliteLog, store: StateStore) -> None:
        self._log, self._store = log, store
        self._expected = self._start()
        self._next = self._expected.next_offset if self._expected else 0

    def fold_batch(self, size: int) -> "Batch":
        records = self._log.read(0, self._next, size)
        rows = Overlay(self._store)
        for record in records:
            if record.offset > 0:
                fold(rows, record)
        return Batch(rows, records)

    def commit(self, batch: "Batch") -> None:
        if not batch.records:
            return
        last = batch.records[-1]
        position = PositionRow(
            incarnation=self._log.incarnation,
            partition=0,
            next_offset=last.offset + 1,
            fold_version=1,
            last_hash=hash_of(last),
            last_at_ms=last.at_ms,
        )
        self._store.commit(batch.rows.changes, self._expected, position)
        self._expected, self._next = position, position.next_offset

    def catch_up(self) -> None:
        while (batch := self.fold_batch(5)).records:
            self.commit(batch)

    def _start(self) -> PositionRow | None:
        row = self._store.position()
        if row is None:
            return None
        if row.incarnation != self._log.incarnation or row.next_offset > self._log.end(0):
            raise RefusedToStart(str(row))
        (last,) = self._log.read(0, row.next_offset - 1, 1)
        if (hash_of(last), last.at_ms) != (row.last_hash, row.last_at_ms):
            self._store.wipe()
            return None
        return row


class Batch:
    def __init__(self, rows: Overlay, records: list[LogRecord]) -> None:
        self.rows, self.records = rows, records


class World:
    """A log with one partition, and the folder its state is kept in."""

    def __init__(self, folder: Path, open_state: Callable[[Path], State]) -> None:
        self.folder, self.open_state = folder, open_state
        self.log = SqliteLog(folder / "log", ManualClock(), partitions=1)
        self.file = open_state(folder / "state")

    def append(self, n_records: int, word: str = "m") -> None:
        end = self.log.end(0)
        self.log.append(
            [
                Draft(key=SESSIONS[number % 7 % 3], value=f"{word}{number}".encode())
                for number in range(end, end + n_records)
            ]
        )

    def owner(self) -> Owner:
        return Owner(self.log, self.file.store(0))

    def lose_the_directory(self) -> None:
        self.file.close()
        shutil.rmtree(self.folder / "state")
        self.file = self.open_state(self.folder / "state")

    def rows(self) -> dict[bytes, bytes]:
        with self.file.snapshot(0) as snapshot:
            return dict(snapshot.scan(b""))

    def undisturbed(self) -> dict[bytes, bytes]:
        rows = Overlay(MemoryRows())
        for record in self.log.read(0, 1, 1_000_000):
            fold(rows, record)
        return dict(rows.scan(b""))

    def close(self) -> None:
        self.log.close()
        self.file.close()


@pytest.fixture(params=sorted(STATES))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, STATES[request.param])
    yield made
    made.close()


def hash_of(record: LogRecord) -> str:
    return hashlib.sha256(record.value or b"").hexdigest()[:16]


def test_an_owner_killed_before_its_commit_has_written_nothing(world: World) -> None:
    world.append(40)
    owner = world.owner()
    owner.commit(owner.fold_batch(20))
    before = world.rows()
    owner.fold_batch(10)
    assert world.rows() == before
    world.owner().catch_up()
    assert world.rows() == world.undisturbed()


def test_an_owner_killed_after_its_commit_folds_nothing_twice(world: World) -> None:
    world.append(40)
    owner = world.owner()
    owner.commit(owner.fold_batch(23))
    world.owner().catch_up()
    assert world.rows() == world.undisturbed()


def test_an_old_owner_s_batches_are_refused_after_the_new_one_moved_on(world: World) -> None:
    world.append(60)
    old = world.owner()
    old.commit(old.fold_batch(20))
    queued = old.fold_batch(30)
    new = world.owner()
    new.catch_up()
    with pytest.raises(StalePosition):
        old.commit(queued)
    with pytest.raises(StalePosition):
        old.commit(queued)
    assert world.rows() == world.undisturbed()


def test_an_old_owner_that_commits_first_makes_the_new_one_read_again(world: World) -> None:
    world.append(60)
    old, new = world.owner(), world.owner()
    begun = new.fold_batch(10)
    old.commit(old.fold_batch(25))
    with pytest.raises(StalePosition) as refused:
        new.commit(begun)
    assert refused.value.expected is None
    world.owner().catch_up()
    assert world.rows() == world.undisturbed()


def test_a_lost_directory_is_folded_again_from_the_start(world: World) -> None:
    world.append(50)
    world.owner().catch_up()
    world.lose_the_directory()
    world.append(10)
    world.owner().catch_up()
    assert world.rows() == world.undisturbed()


def test_an_older_copy_of_the_directory_costs_the_tail_and_nothing_else(world: World) -> None:
    world.append(30)
    world.owner().catch_up()
    world.file.close()
    shutil.copytree(world.folder / "state", world.folder / "copy")
    world.file = world.open_state(world.folder / "state")
    world.append(30)
    world.owner().catch_up()
    world.lose_the_directory()
    world.file.close()
    shutil.rmtree(world.folder / "state")
    (world.folder / "copy").rename(world.folder / "state")
    world.file = world.open_state(world.folder / "state")
    world.owner().catch_up()
    assert world.rows() == world.undisturbed()


def test_state_of_another_log_is_not_taken_for_this_one_s(world: World) -> None:
    world.append(30)
    world.owner().catch_up()
    world.log.close()
    shutil.rmtree(world.folder / "log")
    world.log = SqliteLog(world.folder / "log", ManualClock(), partitions=1)
    world.append(50)
    with pytest.raises(RefusedToStart):
        world.owner()


def test_state_ahead_of_its_log_is_not_folded_on(world: World) -> None:
    world.append(30)
    world.owner().catch_up()
    cut(world, 20)
    with pytest.raises(RefusedToStart):
        world.owner()


def test_a_log_that_was_cut_and_went_on_differently_is_folded_afresh(world: World) -> None:
    world.append(30)
    world.owner().catch_up()
    cut(world, 20)
    world.append(30, word="other")
    world.owner().catch_up()
    assert world.rows() == world.undisturbed()
    assert any(value.startswith(b"other") for value in world.rows().values())


@pytest.mark.parametrize("seed", range(40))
def test_any_history_of_kills_zombies_and_losses_ends_in_the_undisturbed_fold(
    world: World, seed: int
) -> None:
    chance = random.Random(seed)
    zombies: list[tuple[Owner, Batch]] = []
    owner = world.owner()
    for _ in range(40):
        event = chance.random()
        if event < 0.25:
            world.append(chance.randrange(1, 6))
        elif event < 0.65:
            batch = owner.fold_batch(chance.randrange(1, 7))
            if chance.random() < 0.3:
                zombies.append((owner, batch))
                owner = world.owner()
            else:
                try:
                    owner.commit(batch)
                except StalePosition:
                    owner = world.owner()
        elif event < 0.8 and zombies:
            zombie, batch = zombies.pop(chance.randrange(len(zombies)))
            with suppress(StalePosition):
                zombie.commit(batch)
        elif event < 0.85:
            world.lose_the_directory()
            zombies.clear()  # their file is gone with them
            owner = world.owner()
    world.owner().catch_up()
    assert world.rows() == world.undisturbed()


def cut(world: World, offset: int) -> None:
    """Take the log's tail away, as an unclean election does; its identity stays."""
    world.log.close()
    connection = sqlite3.connect(world.folder / "log" / "log.db")
    connection.execute("DELETE FROM records WHERE offset >= ?", (offset,))
    connection.commit()
    connection.close()
    world.log = SqliteLog(world.folder / "log", ManualClock(), partitions=1)
