"""Findings 1 to 3 of pitfalls.md with a process that dies between any two steps of its writer.

A step is a statement of SQLite, or a put, a delete, a write of RocksDB. Whatever the disk holds at
that instant is what the next owner finds; its end must be the fold that nothing disturbed.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ombus_streams.runtime.errors import StalePosition

from tests.engine.contract.engines import STATES
from tests.engine.faults import Fuse
from tests.engine.faults import fused as sqlite_fused
from tests.engine.test_histories import World, cut

N_EXAMPLES: Final = 8
Sizes = Sequence[int]
SIZES: Final = st.lists(st.integers(1, 9), min_size=1, max_size=5)


class Stage(World):
    """A world in which nobody dies but an owner: who appends, or loses a disk, is somebody else."""

    fuse: Fuse

    @contextmanager
    def safe(self) -> Iterator[None]:
        left, self.fuse.left = self.fuse.left, None
        yield
        self.fuse.left = left

    def append(self, n_records: int, word: str = "m") -> None:
        with self.safe():
            super().append(n_records, word)

    def lose_the_directory(self) -> None:
        with self.safe():
            super().lose_the_directory()

    def replace(self, copy: Path) -> None:
        """Let the state be what was copied."""
        with self.safe():
            self.file.close()
            shutil.rmtree(self.folder / "state")
            shutil.move(copy, self.folder / "state")
            self.file = self.open_state(self.folder / "state")

    def cut(self, offset: int) -> None:
        with self.safe():
            cut(self, offset)


class Killed(BaseException):
    """The process is dead: nothing of it runs any more."""


def rocks_fused() -> AbstractContextManager[Fuse]:
    pytest.importorskip("rocksdict", reason="the Kafka engine's store needs the extra kafka")
    from tests.kafka.faults import fused

    return fused()


FUSED: Final[dict[str, Callable[[], AbstractContextManager[Fuse]]]] = {
    "embedded": sqlite_fused,
    "rocks": rocks_fused,
}


History = Callable[[Stage, Sizes], None]


def folded_in_batches(world: Stage, sizes: Sizes) -> None:
    """Finding 1: rows, head and position of a batch, and the deletes among them."""
    world.append(sum(sizes))
    owner = world.owner()
    for size in sizes:
        owner.commit(owner.fold_batch(size))


def handed_over(world: Stage, sizes: Sizes) -> None:
    """Finding 2: an old owner whose batch is written after another one has gone on."""
    world.append(sum(sizes) + 3)
    old = world.owner()
    old.commit(old.fold_batch(sizes[0]))
    queued = old.fold_batch(sizes[-1])
    new = world.owner()
    for size in sizes:
        new.commit(new.fold_batch(size))
    with suppress(StalePosition):
        old.commit(queued)
    new.commit(new.fold_batch(sizes[0]))


def started_from_an_older_copy(world: Stage, sizes: Sizes) -> None:
    """Finding 3: the state is behind what was folded once, or gone."""
    world.append(sum(sizes))
    owner = world.owner()
    owner.commit(owner.fold_batch(sizes[0]))
    copy = copied(world.folder / "state")
    owner.catch_up()
    world.append(sizes[-1])
    world.replace(copy)
    world.owner().catch_up()
    world.lose_the_directory()
    owner = world.owner()
    for size in sizes:
        owner.commit(owner.fold_batch(size))


def cut_and_grown_again(world: Stage, sizes: Sizes) -> None:
    """Finding 3: the log has lost its end and has another one; the state is wiped and refolded."""
    world.append(sum(sizes) + 5)
    world.owner().catch_up()
    world.cut(world.log.end(0) - min(sizes))
    world.append(sum(sizes) + 9, word="other")
    owner = world.owner()
    for size in sizes:
        owner.commit(owner.fold_batch(size))


HISTORIES: Final = (
    folded_in_batches,
    handed_over,
    started_from_an_older_copy,
    cut_and_grown_again,
)


def copied(folder: Path) -> Path:
    """Return a copy of a folder in use, as of one instant: again while a file came or went."""
    while True:
        copy = Path(tempfile.mkdtemp()) / "state"
        with suppress(shutil.Error):
            shutil.copytree(folder, copy)
            return copy
        shutil.rmtree(copy.parent)


def played(engine: str, history: History, sizes: Sizes, left: int) -> bool:
    """Play a history, dying after ``left`` steps; say whether it was over before."""
    with ExitStack() as opened:
        folder = Path(tempfile.mkdtemp())
        opened.callback(shutil.rmtree, folder)
        fuse = opened.enter_context(FUSED[engine]())
        world = Stage(folder, STATES[engine])
        world.fuse = fuse
        opened.callback(lambda: world.close())
        left_behind: list[Path] = []

        def die() -> None:
            left_behind.append(copied(world.folder / "state"))
            raise Killed

        fuse.blow, fuse.left = die, left
        with suppress(Killed):
            history(world, sizes)
        fuse.left = None
        if left_behind:
            world.replace(left_behind[0])
        world.owner().catch_up()
        assert world.rows() == world.undisturbed(), f"killed after {left} steps"
        return not left_behind


@pytest.mark.parametrize("engine", sorted(FUSED))
@pytest.mark.parametrize("history", HISTORIES, ids=lambda each: each.__name__)
@settings(max_examples=N_EXAMPLES, deadline=None)
@given(sizes=SIZES, left=st.integers(0, 120))
def test_whoever_dies_wherever_the_end_is_the_undisturbed_fold(
    engine: str, history: History, sizes: Sizes, left: int
) -> None:
    played(engine, history, sizes, left)


@pytest.mark.parametrize("engine", sorted(FUSED))
def test_no_step_of_two_batches_is_one_to_die_at(engine: str) -> None:
    """Every step there is, one after the other, until the history ends alive."""
    n_steps = 0
    while not played(engine, folded_in_batches, (3, 2), n_steps):
        n_steps += 1
    assert n_steps > 12
