"""A new state from the log alone, built beside the live one, then put in its place.

The live state is caught up first, so that everything that belongs into the dead letters is there;
the new one emits nothing. What it lacks are attempts and next times: they cost attempts, no memory.
What runs have cost is carried over.
"""

import shutil
from typing import Final

import msgspec
from ombus_streams.runtime.errors import RuntimeFault
from ombus_streams.runtime.processor import Processor
from ombus_streams.runtime.usage import carry_over

from ombus.operator.errors import Busy
from ombus.operator.progress import Tell, untold
from ombus.settings import ProcessSettings
from ombus.wiring import (
    AlreadyOwned,
    Engine,
    Ownership,
    StateFile,
    open_engine,
    state_folder,
    switch_state,
)

BATCH: Final = 1_000
BESIDE: Final = ".rebuild"
DAMAGED: Final = ".damaged"
"""What could not be read is kept, for whoever wants to know why; nothing needs it."""


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of it."""

    records: int
    rows: int
    sessions: int
    n_differing: int | None
    """Rows that the old state had otherwise, or not; ``None``: it could not be read."""


def rebuild(settings: ProcessSettings, tell: Tell = untold) -> Rebuilt:
    """Fold the log from zero and let the result be the state, whatever the old one was.

    Raises:
        Busy: another process folds the folder.
    """
    try:
        can_read = _catch_up(settings)
        with Ownership(settings.folder):
            return _rebuild(settings, tell, can_read=can_read)
    except AlreadyOwned as error:
        raise Busy("a rebuild", settings.folder, error.owner) from error


def _catch_up(settings: ProcessSettings) -> bool:
    """Fold what the live state lacks; say whether it can be read at all."""
    engine = None
    try:
        engine = open_engine(settings, owns=True)
        while engine.fold():
            pass
    except AlreadyOwned:
        raise
    except (RuntimeFault, msgspec.DecodeError):
        return False
    finally:
        if engine is not None:
            engine.close()
    return True


def _rebuild(settings: ProcessSettings, tell: Tell, *, can_read: bool) -> Rebuilt:
    live = state_folder(settings.folder)
    beside = live.with_name(live.name + BESIDE)
    shutil.rmtree(beside, ignore_errors=True)
    if not can_read:
        # Beside the damaged file a fresh one is opened, so that the log can be.
        damaged = live.with_name(live.name + DAMAGED)
        shutil.rmtree(damaged, ignore_errors=True)
        if live.exists():
            live.rename(damaged)
    engine = open_engine(settings, owns=False)
    try:
        fresh = StateFile(beside)
        try:
            n_records = _fold(engine, fresh, tell)
            n_rows, n_sessions, n_differing = _compare(engine, fresh)
            _carry_accounts(engine, fresh)
        finally:
            fresh.close()
    finally:
        engine.close()
    switch_state(settings.folder, beside)
    return Rebuilt(
        records=n_records,
        rows=n_rows,
        sessions=n_sessions,
        n_differing=n_differing if can_read else None,
    )


def _fold(engine: Engine, fresh: StateFile, tell: Tell) -> int:
    log = engine.log
    total = sum(log.end(partition) for partition in range(log.partitions))
    done = 0
    for partition in range(log.partitions):
        processor = Processor(fresh.store(partition), log, partition, emits=False)
        while (batch := processor.step(BATCH)).n_records:
            done += batch.n_records
            tell(done, total)
    return done


def _carry_accounts(engine: Engine, fresh: StateFile) -> None:
    """Let what was spent stay spent: a budget does not begin anew with a new state."""
    for partition in range(engine.log.partitions):
        with engine.state.snapshot(partition) as live:
            carry_over(live, fresh.store(partition))


def _compare(engine: Engine, fresh: StateFile) -> tuple[int, int, int]:
    """Return the rows and sessions there are now, and how many rows were otherwise before."""
    n_rows = n_sessions = n_differing = 0
    for partition in range(engine.log.partitions):
        with engine.state.snapshot(partition) as live, fresh.snapshot(partition) as rebuilt:
            for key, value in rebuilt.scan(b""):
                n_rows += 1
                n_sessions += key.startswith(b"\x00s")
                n_differing += live.get(key) != value
            n_differing += sum(rebuilt.get(key) is None for key, _ in live.scan(b""))
    return n_rows, n_sessions, n_differing
