"""The embedded engine, stepped by hand: it may be closed and opened between any two steps."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from ombus_schemas.entries import Entry
from ombus_streams.engine.embedded.engine import Engine
from ombus_streams.memory.rows import MemoryRows
from ombus_streams.runtime.ports import LogRecord
from ombus_streams.runtime.verify import verify

from tests.support.engine import (
    Driver,
    ManualClock,
    MemoryLog,
    MemoryStore,
    digest,
    refolded,
    worker,
)
from tests.support.sessions import chat, fact, settings

SESSIONS = ("s", "u")


def opened(folder: Path, clock: ManualClock, **options: int) -> Engine:
    provider = worker()
    providers = {name: provider for name in ("observer", "reflector", "dropper")}
    return Engine(folder, clock, providers, partitions=1, **options)  # type: ignore[arg-type]


def story() -> list[Entry]:
    """Return two sessions, entry by entry: a fork, a late parent, requests, a revocation."""
    each: list[Entry] = [settings("settings", None, observe=30, reflect=8, target=4, compact=60)]
    each += [chat(f"m{n}", f"m{n - 1}" if n else None, tokens=15) for n in range(6)]
    each += [
        chat("late", "early", tokens=15),
        chat("fork", "m3", tokens=15),
        fact("flush", "m5", "flush.requested"),
        fact("revoke", "fork", "sources.invalidated", ids=["m2"]),
        chat("early", "m5", tokens=15),
        fact("compact", "late", "compact.requested"),
    ]
    return [msgspec.structs.replace(entry, session_id=name) for entry in each for name in SESSIONS]


def stepped(
    folder: Path, *, always_replay: bool, max_batch: int, max_sessions: int
) -> tuple[list[str], list[LogRecord]]:
    """Play the story step by step; return the digest of each partition, and the log's records."""
    clock = ManualClock()
    options = {"max_batch": max_batch, "max_sessions": max_sessions}
    engine = opened(folder, clock, **options)

    def replayed() -> Engine:
        if not always_replay:
            return engine
        engine.close()
        return opened(folder, clock, **options)

    entries = story()
    for start in range(0, len(entries), 4):
        clock.at_ms += 1
        engine.append(entries[start : start + 4])
        while engine.fold():
            engine = replayed()
        while tasks := engine.due(1):
            engine_task = tasks[0]
            clock.at_ms += 1
            asyncio.run(engine.perform(engine_task))
            engine = replayed()
            while engine.fold():
                engine = replayed()
    digests: list[str] = []
    records: list[LogRecord] = []
    for partition, processor in engine.processors.items():
        scratch = MemoryStore()
        position = processor.store.position()
        done = verify(processor.store, position, engine.log, partition, scratch)
        assert done.is_equal, done.differences
        digests.append(digest(MemoryRows(dict(processor.store.scan(b"")))))
        log = engine.log.read(partition, 0, 10_000)
        records += [record for record in log if record.key != b"_system/log"]
    assert not engine.settle(), "what has settled asks for nothing more"
    engine.close()
    return digests, records


def test_the_engine_may_be_closed_and_opened_between_any_two_steps(tmp_path: Path) -> None:
    plain, log = stepped(
        tmp_path / "plain", always_replay=False, max_batch=1_000, max_sessions=1_000
    )
    replayed, same_log = stepped(
        tmp_path / "replayed", always_replay=True, max_batch=1_000, max_sessions=1_000
    )

    assert [record.value for record in log] == [record.value for record in same_log]
    assert plain == replayed


@pytest.mark.parametrize(("max_batch", "max_sessions"), [(1, 1), (2, 1_000), (7, 1)])
def test_batch_cuts_and_cache_sizes_leave_no_trace_in_the_rows(
    tmp_path: Path, max_batch: int, max_sessions: int
) -> None:
    plain, _ = stepped(tmp_path / "plain", always_replay=False, max_batch=1_000, max_sessions=1_000)

    cut, _ = stepped(
        tmp_path / "cut", always_replay=False, max_batch=max_batch, max_sessions=max_sessions
    )

    assert cut == plain


CHILD = """
import sys
from tests.runtime.test_engine_replay import digest_of
print(digest_of(sys.argv[1]))
"""


def digest_of(path: str) -> str:
    """Return the digest of the rows a log folds to; ``path`` holds its records."""
    records = msgspec.msgpack.decode(Path(path).read_bytes(), type=list[tuple[bytes, bytes, int]])
    log = MemoryLog(ManualClock())
    for key, value, at_ms in records:
        log.put(key, value, at_ms)
    return digest(refolded(log, 5))


def test_another_hash_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    driver = Driver()
    driver.tell(*story())
    stories = [(each.key, each.value, each.at_ms) for each in driver.log.records]
    path = tmp_path / "records"
    path.write_bytes(msgspec.msgpack.encode(stories))

    digests = {
        subprocess.run(
            [sys.executable, "-c", CHILD, str(path)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.splitlines()[-1]
        for seed in ("1", "2")
    }

    assert digests == {driver.digest()}
