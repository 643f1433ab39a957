"""A hostile log against the embedded engine: ``python -m tests.fuzz.run --entries 100000``.

Each entry ends in the dead letters, in a typed refusal, or folded as the model says; a second fold
in other batches gives the same bytes, and ``verify`` finds no difference.
"""

import argparse
import asyncio
import logging
import random
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import structlog
from ombus_schemas.admission import Policy, admit
from ombus_schemas.codec import encode, key_of
from ombus_schemas.errors import Rejected
from ombus_streams.engine.embedded.engine import Engine
from ombus_streams.engine.embedded.store import StateFile
from ombus_streams.memory.items import ACTIVE, observations, reflections
from ombus_streams.memory.session import Session, chain
from ombus_streams.providers.extractive import Extractive
from ombus_streams.runtime.ports import Draft, StateStore
from ombus_streams.runtime.processor import Processor
from ombus_streams.runtime.provider import ModelProvider, WorkerName
from ombus_streams.runtime.verify import verify

from tests.fuzz.hostile import MIN_VALID, Stream
from tests.fuzz.model import Model, Outcome, SessionModel
from tests.support.engine import ManualClock

PARTITIONS = 2
BATCH = 64


Record = tuple[bytes | None, bytes | None]


class Report(msgspec.Struct, kw_only=True):
    """What became of the entries of a run."""

    n_entries: int
    n_valid: int
    n_refused: int
    outcomes: Counter[Outcome]
    n_leaves: int
    n_orphans: int
    """Entries whose parent was given up."""
    n_runs: int
    seconds: float


class Mismatch(AssertionError):
    """Engine and model, or two folds, disagree."""


def run(
    seed: int,
    n_entries: int,
    folder: Path,
    max_runs: int = 40,
    progress: Callable[[int], None] = lambda _: None,
) -> Report:
    """Return what became of ``n_entries`` hostile entries of a seed.

    Raises:
        Mismatch: something that must hold does not.
    """
    started = time.monotonic()
    stream, model, chance = Stream(seed), Model(), random.Random(seed)
    outcomes: Counter[Outcome] = Counter()
    n_valid = n_refused = 0
    engine = _open(folder)
    records: list[Record] = []
    try:
        for n in range(1, n_entries + 1):
            offer = stream.next()
            n_valid += offer.is_valid
            key, value = offer.key, offer.value
            if offer.way == "admission":
                try:
                    entry = admit(offer.tree, Policy())
                except Rejected:
                    n_refused += 1
                    continue
                key, value = key_of(entry), encode(entry)
            outcome = model.take(key, value)
            outcomes[outcome] += 1
            if outcome not in _ALLOWED[offer.meant]:
                raise Mismatch(f"entry {n}, {offer.name}: {outcome}, meant: {offer.meant}")
            tip = model.tip(key) if outcome == "attached" else None
            if tip is not None and key is not None:
                stream.follow(key, tip)
            records.append((key, value))
            if len(records) >= BATCH:
                _append(engine, records)
                records = []
                engine.max_batch = chance.randint(1, 200)
                engine.fold()
                if chance.random() < 0.05:
                    engine.close()
                    engine = _open(folder)
                progress(n)
        _append(engine, records)
        while engine.fold():
            pass
        n_leaves = _compare(engine, model, outcomes["dead"])
        _refold(engine, folder / "other-batches", 37)
        n_runs = _work(engine, max_runs)
        _verify(engine, folder / "verify")
    finally:
        engine.close()
    return Report(
        n_entries=n_entries,
        n_valid=n_valid,
        n_refused=n_refused,
        outcomes=outcomes,
        n_leaves=n_leaves,
        n_orphans=sum(each.n_orphans for each in model.sessions.values()),
        n_runs=n_runs,
        seconds=time.monotonic() - started,
    )


_ALLOWED: dict[str, tuple[Outcome, ...]] = {
    "folds": ("attached", "parked", "duplicate"),
    "dead": ("dead",),
    "any": ("attached", "parked", "duplicate", "repeated", "dead"),
}


def _open(folder: Path) -> Engine:
    provider = Extractive()
    workers: tuple[WorkerName, ...] = ("observer", "reflector", "dropper")
    providers: dict[WorkerName, ModelProvider] = dict.fromkeys(workers, provider)
    return Engine(folder / "data", ManualClock(), providers, partitions=PARTITIONS, max_sessions=2)


def _append(engine: Engine, records: Sequence[Record]) -> None:
    """Put records on the log as a broker would take them, those without a key or value too."""
    drafts = [Draft(key=key or b"", value=value or b"") for key, value in records]
    positions = engine.log.append(drafts)
    connection = sqlite3.connect(engine.folder / "log.db", timeout=10)
    with connection:
        for (key, value), place in zip(records, positions, strict=True):
            if key is None or value is None:
                row = (key, value, place.partition, place.offset)
                connection.execute(_PUT_NULLS, row)
    connection.close()


_PUT_NULLS = "UPDATE records SET key = ?, value = ? WHERE partition = ? AND offset = ?"


def _compare(engine: Engine, model: Model, n_dead: int) -> int:
    letters = engine.dead_letters
    n_letters = sum(letters.end(each) - letters.start(each) - 1 for each in range(4))
    _same("dead letters", n_letters, n_dead)
    _same("sessions", set(engine.sessions()), set(model.sessions))
    n_leaves = 0
    for key, expected in model.sessions.items():
        with engine.reading(key) as lent:
            n_leaves += _compare_session(lent.session, expected)
    return n_leaves


def _compare_session(session: Session, expected: SessionModel) -> int:
    name, head = session.key.decode(), session.head
    counts = {
        "duplicates": (head.n_duplicates, expected.n_duplicates),
        "repeated runs": (head.n_repeated_runs, expected.n_repeated),
        "refused": (head.n_refused, expected.n_refused),
        "parked": (head.n_parked, len(expected.parked)),
        "orphans": (head.n_orphans, expected.n_orphans),
        "left out": (head.n_left_out, expected.n_left_out),
        "conflicts": (head.n_conflicts, expected.n_conflicts),
    }
    for what, (found, meant) in counts.items():
        _same(f"{name} {what}", found, meant)
    chains = expected.leaves()
    leaves = {
        leaf.tip_id: leaf for leaf in map(session.leaf, session.segments()) if not leaf.conflict
    }
    _same(f"{name} leaves", set(leaves), set(chains))
    if expected.default is not None:
        default = session.leaf(head.default_segment).tip_id
        _same(f"{name} default leaf", default, expected.default.entry.id)
    for tip, leaf in leaves.items():
        where = f"{name} leaf {tip}"
        places = [ordinal for ordinal, _ in chain(session, leaf.lineage)]
        _same(f"{where} chain", places, [node.ordinal for node in chains[tip]])
        memory = expected.memory(chains[tip])
        active = [row.item.id for row in observations(session, leaf, *ACTIVE)]
        _same(f"{where} observations", active, [item.id for item in memory.observations])
        seen = [row.item.id for row in reflections(session, leaf, "visible")]
        _same(f"{where} reflections", seen, [item.id for item in memory.reflections])
    return len(leaves)


def _refold(engine: Engine, folder: Path, batch: int) -> None:
    scratch = StateFile(folder)
    try:
        for partition, processor in engine.processors.items():
            fresh = Processor(scratch.store(partition), engine.log, partition, emits=False)
            while fresh.step(batch).n_records:
                pass
            _same(f"rows of {partition}", _rows(processor.store), _rows(fresh.store))
    finally:
        scratch.close()


def _work(engine: Engine, max_runs: int) -> int:
    """Let the workers loose on what is there; whatever they do must fold and verify."""
    n_runs = 0
    while n_runs < max_runs and (tasks := engine.due(4)):
        for task in tasks:
            n_runs += asyncio.run(engine.perform(task)) or 1
        while engine.fold():
            pass
    return n_runs


def _verify(engine: Engine, folder: Path) -> None:
    scratch = StateFile(folder)
    try:
        for partition, processor in engine.processors.items():
            with engine.state.snapshot(partition) as rows:
                found = verify(
                    rows, rows.position(), engine.log, partition, scratch.store(partition)
                )
            _same(f"verify {partition}", found.differences, ())
            _same(f"position {partition}", found.position, processor.position)
    finally:
        scratch.close()


def _rows(store: StateStore) -> dict[bytes, bytes]:
    return dict(store.scan(b""))


def _same(what: str, found: object, meant: object) -> None:
    if found != meant:
        raise Mismatch(f"{what}: found {_cut(found)}, meant {_cut(meant)}")


def _cut(value: object) -> str:
    return repr(value)[:600]


def main() -> int:
    """Run from the command line; return 1 if something does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run")
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    def tell(n: int) -> None:
        if n % 5_000 < BATCH:
            print(f"{n:,} entries", file=sys.stderr)

    silent = structlog.make_filtering_bound_logger(logging.ERROR)
    structlog.configure(wrapper_class=silent)
    with tempfile.TemporaryDirectory() as folder:
        report = run(options.seed, options.entries, Path(folder), progress=tell)
    print(msgspec.json.encode(report).decode())
    return 0 if report.n_valid >= MIN_VALID * report.n_entries else 1


if __name__ == "__main__":
    sys.exit(main())
