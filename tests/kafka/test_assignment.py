"""Partitions of a worker without a broker: opened, folded, taken away, given back, delayed."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from ombus_schemas.entries import Entry
from ombus_streams.engine.kafka import assignment
from ombus_streams.engine.kafka.assignment import Assignment
from ombus_streams.engine.kafka.partition import FoldOptions
from ombus_streams.engine.kafka.roles import ROLES
from ombus_streams.engine.kafka.status import Counts
from ombus_streams.engine.kafka.store import RocksState
from ombus_streams.engine.kafka.store_errors import StoreFailed
from ombus_streams.engine.kafka.threads import Threads
from ombus_streams.runtime.errors import Closed, LogContradicts, RetryableError
from ombus_streams.runtime.ports import Draft, LogRecord, Position, PositionRow, StateStore

from tests.kafka.rocks import small_memory
from tests.kafka.traffic import drafts_of, traffic
from tests.support.engine import ManualClock, MemoryLog

ENTRIES = traffic(60, n_sessions=1)


class Accounts:
    def __init__(self) -> None:
        self.held: set[int] = set()

    def adopt(self, partition: int, store: StateStore) -> None:
        self.held.add(partition)

    def release(self, partition: int) -> None:
        self.held.discard(partition)


class Reader:
    """Notes where it was told to read on."""

    def __init__(self) -> None:
        self.told: list[dict[int, int]] = []
        self.was_told = asyncio.Event()

    async def read_from(self, offsets: Mapping[int, int]) -> None:
        self.told.append(dict(offsets))
        self.was_told.set()


class Letters(MemoryLog):
    """A dead-letter topic that is away ``n_away`` times."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.n_away = 0
        self.grown = asyncio.Event()

    def append(self, drafts: Sequence[Draft]) -> tuple[Position, ...]:
        if self.n_away:
            self.n_away -= 1
            raise RetryableError("the broker is away")
        found = super().append(drafts)
        self.grown.set()
        return found


class Desk:
    """An assignment over a log in memory and RocksDB in a folder."""

    def __init__(self, folder: Path, role: str = "all", max_batch_behind: int = 7) -> None:
        self.clock = ManualClock()
        self.log, self.letters = MemoryLog(self.clock), Letters(self.clock)
        self.state = RocksState(folder, small_memory())
        self.accounts, self.reader, self.counts = Accounts(), Reader(), Counts()
        self.failures: list[Exception] = []
        self.n_woken = 0
        self.threads = Threads("test", 2)
        self.assignment = Assignment(
            "entries", "a", ROLES[role],
            FoldOptions(max_batch=7, max_batch_behind=max_batch_behind), self.log, self.letters,
            self.state, self.clock, (), self.accounts, self.threads, self.counts, self._wake,
            self.failures.append,
        )  # fmt: skip
        self.assignment.reader = self.reader

    def _wake(self) -> None:
        self.n_woken += 1

    def append(self, entries: Sequence[Entry]) -> None:
        self.log.append(drafts_of(entries))

    def records(self, start: int = 0, end: int | None = None) -> list[LogRecord]:
        return self.log.records[start:end]


@asynccontextmanager
async def desk(folder: Path, role: str = "all", max_batch_behind: int = 7) -> AsyncIterator[Desk]:
    made = Desk(folder, role, max_batch_behind)
    try:
        yield made
    finally:
        await made.assignment.close()
        await made.threads.close()
        made.state.close()


def run(test: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


def test_reading_begins_at_the_position_row_whatever_the_group_has_committed(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with desk(tmp_path) as here:
            here.append(ENTRIES)
            assert await here.assignment.assigned([0]) == {0: 0}
            assert await here.assignment.fold(0, here.records(0, 20)) == 20
            await here.assignment.revoked([0])
            assert await here.assignment.assigned([0]) == {0: 20}

    run(test())


def test_until_a_partition_has_caught_up_it_is_folded_in_larger_pieces(tmp_path: Path) -> None:
    async def test() -> None:
        async with desk(tmp_path, max_batch_behind=20) as here:
            here.append(ENTRIES[:20])
            await here.assignment.assigned([0])
            assert await here.assignment.fold(0, here.records()) == 20
            assert len(here.counts.lags_ms) == 1
            assert here.assignment.partitions[0].is_ready
            here.append(ENTRIES[20:34])
            assert await here.assignment.fold(0, here.records(20)) == 34
            assert len(here.counts.lags_ms) == 1 + 2

    run(test())


def test_nothing_is_decided_before_the_end_at_the_time_of_opening_is_folded(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with desk(tmp_path) as here:
            here.append(ENTRIES[:30])
            await here.assignment.assigned([0])
            here.append(ENTRIES[30:])
            opened = here.assignment.partitions[0]
            await here.assignment.fold(0, here.records(0, 29))
            assert not opened.is_ready
            await here.assignment.fold(0, here.records(29, 30))
            assert opened.is_ready
            assert opened.next_offset < len(here.log.records)

    run(test())


def test_an_empty_partition_is_ready_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with desk(tmp_path) as here:
            await here.assignment.assigned([0])
            assert here.assignment.partitions[0].is_ready
            assert here.n_woken > 0

    run(test())


def test_records_that_are_folded_already_are_passed_over(tmp_path: Path) -> None:
    async def test() -> None:
        async with desk(tmp_path) as here:
            here.append(ENTRIES)
            await here.assignment.assigned([0])
            await here.assignment.fold(0, here.records(0, 25))
            assert await here.assignment.fold(0, here.records(10, 40)) == 40
            assert await here.assignment.fold(0, here.records(0, 40)) == 40
            assert here.counts.n_records == 40
            assert not here.failures

    run(test())


def test_records_that_were_fetched_and_never_handed_over_are_read_again(tmp_path: Path) -> None:
    """A rebalance that was past its seek once dropped them, and the fold went on without them."""

    async def test() -> None:
        async with desk(tmp_path) as here:
            here.append(ENTRIES)
            await here.assignment.assigned([0])
            await here.assignment.fold(0, here.records(0, 20))
            assert await here.assignment.fold(0, here.records(28, 40)) is None
            assert here.reader.told == [{0: 20}]
            assert await here.assignment.fold(0, here.records(20)) == len(ENTRIES)
            assert here.counts.n_records == len(ENTRIES)
            assert not here.failures

    run(test())


def test_what_is_handed_over_after_a_revocation_is_not_folded(tmp_path: Path) -> None:
    async def test() -> None:
        async with desk(tmp_path) as here:
            here.append(ENTRIES)
            await here.assignment.assigned([0])
            opened = here.assignment.partitions[0]
            folding = asyncio.create_task(here.assignment.fold(0, here.records()))
            await asyncio.sleep(0)
            await here.assignment.revoked([0])
            assert await folding is None
            assert 0 < opened.next_offset < len(here.log.records)
            assert await here.assignment.fold(0, here.records()) is None
            with pytest.raises(Closed):
                opened.processor.store.get(b"any")
            assert here.accounts.held == set()

    run(test())


def test_a_database_stays_open_over_a_rebalance_and_is_closed_when_another_owns_it(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with desk(tmp_path) as here:
            await here.assignment.assigned([0])
            await here.assignment.revoked([0])
            assert here.state.opened() == {0}
            await here.assignment.assigned([])
            assert here.state.opened() == set()

    run(test())


def test_a_batch_begun_elsewhere_is_dropped_and_read_again_from_the_row(tmp_path: Path) -> None:
    async def test() -> None:
        async with desk(tmp_path) as here:
            here.append(ENTRIES)
            await here.assignment.assigned([0])
            await here.assignment.fold(0, here.records(0, 10))
            other = Desk(tmp_path / "other")
            # Somebody else moves the same rows on: an owner that was thought dead.
            other.assignment._state, other.log = here.state, here.log
            other.assignment._entries = here.log
            await other.assignment.assigned([0])
            await other.assignment.fold(0, here.records(10, 20))
            assert await here.assignment.fold(0, here.records(10, 30)) is None
            assert here.counts.n_stale_batches == 1
            assert here.reader.told == [{0: 20}]
            assert await here.assignment.fold(0, here.records(20, 30)) == 30
            await other.assignment.close()
            await other.threads.close()

    run(test())


def test_a_disk_that_says_no_delays_its_partition_and_nothing_else(tmp_path: Path) -> None:
    async def test() -> None:
        delays = (timedelta(milliseconds=1), timedelta(milliseconds=4))
        async with desk(tmp_path) as here:
            here.append(ENTRIES)
            await here.assignment.assigned([0])
            with (
                mock.patch.object(assignment, "REOPEN_DELAYS", delays),
                mock.patch("ombus_streams.engine.kafka.store.WriteBatch") as batch,
            ):
                batch.side_effect = OSError("IO error: No space left on device")
                assert await here.assignment.fold(0, here.records(0, 10)) is None
            assert 0 not in here.assignment.partitions
            await here.reader.was_told.wait()
            assert here.reader.told == [{0: 0}]
            assert await here.assignment.fold(0, here.records(0, 10)) == 10
            assert not here.failures

    run(test())


def test_a_partition_that_cannot_be_opened_now_is_left_out_and_opened_later(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        delays = (timedelta(milliseconds=1), timedelta(milliseconds=4))
        async with desk(tmp_path) as here:
            here.append(ENTRIES)
            broken = StoreFailed(tmp_path, "is away", "wait")
            open_store = here.state.store
            answers = iter([broken, broken])

            def store(partition: int) -> StateStore:
                for error in answers:
                    raise error
                return open_store(partition)

            with (
                mock.patch.object(assignment, "REOPEN_DELAYS", delays),
                mock.patch.object(here.state, "store", store),
            ):
                assert await here.assignment.assigned([0]) == {}
                await here.reader.was_told.wait()
            assert here.reader.told == [{0: 0}]
            assert await here.assignment.fold(0, here.records(0, 10)) == 10

    run(test())


def test_a_store_of_another_log_ends_the_worker(tmp_path: Path) -> None:
    async def test() -> None:
        async with desk(tmp_path) as here:
            here.append(ENTRIES)
            position = PositionRow(
                incarnation="another", partition=0, next_offset=3, fold_version=1
            )
            here.state.store(0).commit({}, None, position)
            assert await here.assignment.assigned([0]) == {}
            (failure,) = here.failures
            assert isinstance(failure, LogContradicts)

    run(test())


def test_offsets_without_records_are_passed_over_and_a_moved_start_is_refused(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with desk(tmp_path) as here:
            here.append(ENTRIES)
            await here.assignment.assigned([0])
            await here.assignment.fold(0, here.records(0, 10))
            # Where a marker lies, there is an offset and no record.
            with mock.patch.object(here.log, "read", return_value=here.records(12, 13)):
                assert await here.assignment.fold(0, here.records(12, 20)) == 20
            with mock.patch.object(here.log, "start", return_value=30):
                assert await here.assignment.fold(0, here.records(30, 40)) is None
            (failure,) = here.failures
            assert isinstance(failure, LogContradicts)
            assert "the log starts at 30, the store is at 20" in str(failure)

    run(test())


def test_dead_letters_wait_for_their_topic_and_leave_in_order(tmp_path: Path) -> None:
    async def test() -> None:
        async with desk(tmp_path) as here:
            for value in (b"no", b"entry", b"here"):
                here.log.put(b"acme/s0", value)
            here.letters.n_away = 1
            with mock.patch(
                "ombus_streams.engine.kafka.partition.FIRST_DELAY", timedelta(milliseconds=1)
            ):
                await here.assignment.assigned([0])
                await here.assignment.fold(0, here.records())
                await here.letters.grown.wait()
            assert [record.value for record in here.letters.records] == [b"no", b"entry", b"here"]
            assert here.counts.n_dead_letters == 3

    run(test())


def test_a_role_that_does_not_emit_writes_no_dead_letters(tmp_path: Path) -> None:
    async def test() -> None:
        async with desk(tmp_path, "observer") as here:
            here.log.put(b"acme/s0", b"no entry")
            await here.assignment.assigned([0])
            assert await here.assignment.fold(0, here.records()) == 1
            assert here.counts.n_dead_letters == 0
            assert here.letters.records == []

    run(test())
