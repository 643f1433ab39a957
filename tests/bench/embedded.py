"""Benchmarks of the embedded engine: ratios of one run, medians of several, a table, a JSON line.

``make bench``; for smaller ones ``python -m tests.bench.embedded --folded N --long N --cold N``.
Nothing here is a test: the numbers depend on the machine, the ratios less so.

- ``folded_over_floor``: the floor decodes the same bytes to the same type and writes them with
  ``executemany``, in transactions of as many records and with the same ``synchronous`` setting,
  one after the other; ``folded_over_keyed_floor``: where a session can find them again, by its key
  and their number. ``*_cpu``: in the process's own seconds, which a busy machine blurs less and
  which leave out waiting for the disk.
- ``*_speedup_100k``: the pure function that the conformance vectors pin, over entries that are
  decoded already, for the same question; ``*_over_ledger`` takes the bare ledger fold instead.
- ``*_growth``: a read of the long session over one of the short session with the same memory.
- ``compaction_over_encode``: from 10,000 observations to the bounded payload and its summary, over
  msgspec's encoding of them; ``compaction_from_rows_over_encode`` reads and decodes their rows too.
- ``cold_sessions_mb``: what the process has grown by after each session was folded and read once.
- ``fold_over_decode``: the engine's own fold, over rows in memory, over typed decoding.
"""

import argparse
import gc
import json
import os
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import structlog
from ombus_schemas.codec import encode, key_of
from ombus_schemas.entries import Entry, Message
from ombus_schemas.ids import observation_id, reflection_id
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import OBSERVATIONS_RECORDED, REFLECTIONS_RECORDED
from ombus_streams.engine.embedded.engine import MAX_BATCH, Engine
from ombus_streams.memory import compactor, context, ledger, payload, reading, recall, tree
from ombus_streams.memory.effects import RunCompactor
from ombus_streams.memory.items import ACTIVE, observations
from ombus_streams.memory.projection import folded_json
from ombus_streams.memory.render import render_memory
from ombus_streams.memory.rows import MemoryRows, Overlay
from ombus_streams.memory.session import Session
from ombus_streams.providers.extractive import Extractive

TENANT: Final = "bench"
N_ACTIVE: Final = 400
N_REFLECTIONS: Final = 60
OBSERVATIONS_PER_RECORD: Final = 20
WINDOW: Final = 8
SHORT: Final = 1_000
Times = tuple[float, float]
"""Seconds of the wall and of the process."""
TEXT: Final = (
    "The parser drops the last token when a line ends in a comment; see src/parse/lexer.py. "
)


class Clock:
    """The system's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def message(session: str, number: int, parent: str | None) -> Entry:
    text = f"{number} {TEXT * 5}"
    return Entry(
        id=f"e{number}",
        session_id=session,
        tenant_id=TENANT,
        parent_id=parent,
        timestamp="2026-01-01T00:00:00.000Z",
        kind="message",
        schema_version=1,
        message=Message(
            role="user" if number % 5 == 0 else "assistant",
            content=[{"type": "text", "text": text}],
        ),
    )


def side(session: str, entry_id: str, parent: str, data: JsonObject) -> Entry:
    return Entry(
        id=entry_id,
        session_id=session,
        tenant_id=TENANT,
        parent_id=parent,
        timestamp="2026-01-01T00:00:00.000Z",
        kind="custom",
        schema_version=1,
        data=data,
        origin="worker",
        side=True,
    )


def observed(
    session: str, number: int, covers: int, base: str | None, n_items: int, tokens: int = 20
) -> Entry:
    items: list[JsonValue] = []
    for item in range(n_items):
        content, sources = f"Fact {number}.{item}: {TEXT}"[:90], [f"e{covers - item % 10}"]
        items.append(
            {
                "id": observation_id(content, sources),
                "content": content,
                "timestamp": "2026-01-01T00:00:00.000Z",
                "relevance": ("low", "medium", "high", "critical")[item % 4],
                "sourceEntryIds": [*sources],
                "tokenCount": tokens,
            }
        )
    data: JsonObject = {
        "type": OBSERVATIONS_RECORDED,
        "observations": items,
        "coversUpToId": f"e{covers}",
        "base": base,
    }
    return side(session, f"om:observer:{number}", f"e{covers}", data)


def session_of(session: str, n_entries: int) -> Iterator[Entry]:
    """Yield a session with ``N_ACTIVE`` observations and ``N_REFLECTIONS`` reflections."""
    n_records = N_ACTIVE // OBSERVATIONS_PER_RECORD
    base, parent, ids = None, None, []
    settings: JsonObject = {
        "observation": {"messageTokens": 10**9},
        "reflection": {"observationTokens": 10**9},
        "context": {"compactAfterTokens": 10**9},
    }
    covered = [(n + 1) * (n_entries - 10) // n_records for n in range(n_records)]
    for number in range(n_entries):
        entry = message(session, number, parent)
        parent = entry.id
        yield entry
        if number == 0:
            said: JsonObject = {"type": "om.settings.changed", "settings": settings}
            yield side(session, "settings", parent, said)
        while covered and number == covered[0]:
            covered.pop(0)
            record = observed(session, len(covered), number, base, OBSERVATIONS_PER_RECORD)
            base = f"e{number}"
            assert isinstance(record.data, dict)
            items = record.data["observations"]
            assert isinstance(items, list)
            ids += [item["id"] for item in items if isinstance(item, dict)]
            yield record
    reflections: list[JsonValue] = []
    for number in range(N_REFLECTIONS):
        content, supports = f"Reflection {number}: {TEXT}", [str(ids[number])]
        reflections.append(
            {
                "id": reflection_id(content, supports),
                "content": content,
                "supportingObservationIds": list(supports),
                "tokenCount": 25,
            }
        )
    data: JsonObject = {
        "type": REFLECTIONS_RECORDED,
        "reflections": reflections,
        "base": None,
        "through": "om:observer:0",
    }
    yield side(session, "om:reflector:0", str(base), data)


def median(rounds: int, action: Callable[[], object], repeats: int = 1) -> float:
    """Return the median seconds of one call."""
    times: list[float] = []
    for _ in range(rounds):
        gc.collect()
        start = time.perf_counter()
        for _ in range(repeats):
            action()
        times.append((time.perf_counter() - start) / repeats)
    return statistics.median(times)


@contextmanager
def engine(partitions: int = 1, max_batch: int = MAX_BATCH) -> Iterator[Engine]:
    folder = Path(tempfile.mkdtemp(prefix="ombus-bench-"))
    provider = Extractive()
    made = Engine(
        folder,
        Clock(),
        {"observer": provider, "reflector": provider, "dropper": provider},
        partitions=partitions,
        max_batch=max_batch,
    )
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder)


def folding(rounds: int, n_entries: int = 20_000) -> dict[str, float]:
    """Compare folding with decoding and writing the same bytes, and the pure fold with decoding."""
    parents: dict[str, str] = {}
    entries: list[Entry] = []
    for number in range(n_entries):
        session = f"s{number % 50}"
        entries.append(message(session, number, parents.get(session)))
        parents[session] = f"e{number}"
    raw = [encode(entry) for entry in entries]
    decoder = msgspec.json.Decoder(Entry)
    ours: list[Times] = []
    floors: list[Times] = []
    keyed: list[Times] = []
    places = [number.to_bytes(8, "big") for number in range(n_entries)]
    own_places = [key_of(each) + place for each, place in zip(entries, places, strict=True)]
    for _ in range(rounds):
        with engine() as made:
            for start in range(0, n_entries, MAX_BATCH):
                made.append(entries[start : start + MAX_BATCH])
            gc.collect()
            begun = _times()
            while made.fold():
                pass
            ours.append(_since(begun))
            floors.append(_floor(made.folder / "floor.db", places, raw, decoder))
            keyed.append(_floor(made.folder / "keyed.db", own_places, raw, decoder))
    decode = median(rounds, lambda: [decoder.decode(value) for value in raw])
    pure = median(rounds, lambda: _fold_in_memory(entries, raw))
    return {
        "entry_bytes": sum(map(len, raw)) / n_entries,
        "folded_per_s": n_entries / statistics.median(wall for wall, _ in ours),
        "floor_per_s": n_entries / statistics.median(wall for wall, _ in floors),
        **_over("folded_over_floor", floors, ours),
        **_over("folded_over_keyed_floor", keyed, ours),
        "fold_over_decode": pure / decode,
        "engine_fold_over_decode": statistics.median(wall for wall, _ in ours) / decode,
    }


def _over(name: str, floors: list[Times], ours: list[Times]) -> dict[str, float]:
    pairs = list(zip(floors, ours, strict=True))
    return {
        name: statistics.median(floor[0] / our[0] for floor, our in pairs),
        f"{name}_cpu": statistics.median(floor[1] / our[1] for floor, our in pairs),
    }


def _times() -> Times:
    return time.perf_counter(), time.process_time()


def _since(start: Times) -> Times:
    wall_s, cpu_s = _times()
    return wall_s - start[0], cpu_s - start[1]


def _fold_in_memory(entries: list[Entry], raw: list[bytes]) -> None:
    sessions: dict[str, Session] = {}
    for entry, value in zip(entries, raw, strict=True):
        session = sessions.get(entry.session_id)
        if session is None:
            key = f"{TENANT}/{entry.session_id}".encode()
            session = sessions[entry.session_id] = Session(key, Overlay(MemoryRows()))
        tree.fold(session, entry, value, 1)


def _floor(
    path: Path, places: list[bytes], raw: list[bytes], decoder: msgspec.json.Decoder[Entry]
) -> Times:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("CREATE TABLE rows(key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
    gc.collect()
    begun = _times()
    for start in range(0, len(raw), MAX_BATCH):
        rows: list[tuple[bytes, bytes]] = []
        end = start + MAX_BATCH
        for place, value in zip(places[start:end], raw[start:end], strict=True):
            decoder.decode(value)
            rows.append((place, value))
        rows.sort()
        with connection:
            connection.executemany("INSERT INTO rows VALUES (?, ?)", rows)
    taken = _since(begun)
    connection.close()
    return taken


def reads(rounds: int, n_long: int = 100_000) -> dict[str, float]:
    """Compare context and recall with pure folds, and a long session with a short one."""
    sizes = (SHORT, n_long)
    times: dict[tuple[str, int], float] = {}
    with engine() as made:
        for size in sizes:
            key = f"{TENANT}/n{size}".encode()
            entries = list(session_of(f"n{size}", size))
            for start in range(0, len(entries), MAX_BATCH):
                made.append(entries[start : start + MAX_BATCH])
            while made.fold():
                pass
            with made.reading(key) as read:
                leaf = read.session.leaf(read.session.head.default_segment)
                shown = reading.visible(read.session, leaf)
                assert (len(shown.observations), len(shown.reflections)) == (400, 60)
                wanted = shown.observations[200].id

            def read_context() -> None:
                with made.reading(key) as read:  # noqa: B023
                    leaf = read.session.leaf(read.session.head.default_segment)
                    reading.context(read.session, leaf, WINDOW)

            def read_recall() -> None:
                with made.reading(key) as read:  # noqa: B023
                    leaf = read.session.leaf(read.session.head.default_segment)
                    reading.recall_at(read.session, leaf, wanted)  # noqa: B023

            times["context", size] = median(rounds, read_context, 20)
            times["recall", size] = median(rounds, read_recall, 100)
            if size == n_long:
                times["blocks", size] = median(rounds, lambda: context.blocks(entries, WINDOW))  # noqa: B023
                times["recalled", size] = median(rounds, lambda: recall.recall(entries, wanted))  # noqa: B023
                times["ledger", size] = median(rounds, lambda: ledger.fold(entries))  # noqa: B023
    small, large = sizes
    return {
        "context_ms": times["context", large] * 1e3,
        "recall_ms": times["recall", large] * 1e3,
        "pure_context_ms": times["blocks", large] * 1e3,
        "pure_recall_ms": times["recalled", large] * 1e3,
        "pure_ledger_ms": times["ledger", large] * 1e3,
        "context_speedup_100k": times["blocks", large] / times["context", large],
        "recall_speedup_100k": times["recalled", large] / times["recall", large],
        "context_over_ledger": times["ledger", large] / times["context", large],
        "recall_over_ledger": times["ledger", large] / times["recall", large],
        "context_growth": times["context", large] / times["context", small],
        "recall_growth": times["recall", large] / times["recall", small],
    }


def compaction(rounds: int, n_observations: int = 10_000) -> dict[str, float]:
    """Compare a compaction with encoding the observations it is made from."""
    with engine() as made:
        entries = [
            message("c", number, f"e{number - 1}" if number else None) for number in range(60)
        ]
        per_record = 500
        base = None
        for number in range(n_observations // per_record):
            entries.append(observed("c", number, 10 + number, base, per_record, tokens=1))
            base = f"e{10 + number}"
        made.append(entries)
        while made.fold():
            pass
        with made.reading(f"{TENANT}/c".encode()) as read:
            session = read.session
            leaf = session.leaf(session.head.default_segment)
            run = RunCompactor(
                run_id="0" * 24, tenant_id=TENANT, session_id="c", segment=leaf.segment,
                base=None, seen=None, cause="bench", anchor_id=leaf.tip_id,
                through_id=f"e{10 + number}", trigger="manual",
            )  # fmt: skip
            assert leaf.n_active == n_observations
            items = [item for entry in entries for item in _items(entry)]
            pool = tuple(row.item for row in observations(session, leaf, *ACTIVE))

            def compact() -> None:
                bounded = payload.bound(pool, (), (), payload.POOL_MAX_TOKENS, payload.MAX_BYTES)
                folded_json(bounded.full_fold, bounded.observations, (), ())
                render_memory(bounded.observations, ())

            pure = median(rounds, compact)
            whole = median(rounds, lambda: compactor.compact(session, leaf, run))
            floor = median(rounds, lambda: msgspec.json.encode(items))
    return {
        "compaction_ms": whole * 1e3,
        "compaction_over_encode": pure / floor,
        "compaction_from_rows_over_encode": whole / floor,
    }


def _items(entry: Entry) -> list[object]:
    found = entry.data.get("observations") if isinstance(entry.data, dict) else None
    return list(found) if isinstance(found, list) else []


def cold_sessions(n_sessions: int) -> dict[str, float]:
    """Measure how much memory sessions cost that were read once and are idle."""
    with engine(partitions=8) as made:
        for start in range(0, n_sessions, 100):
            entries: list[Entry] = []
            for number in range(start, min(start + 100, n_sessions)):
                session, parent = f"cold{number}", None
                for each in range(20):
                    entries.append(message(session, each, parent))
                    parent = f"e{each}"
                entries.append(observed(session, 0, 19, None, 2))
            made.append(entries)
            while made.fold():
                pass
            if start == 0:
                before = _memory_mb()
            for number in range(start, min(start + 100, n_sessions)):
                with made.reading(f"{TENANT}/cold{number}".encode()) as read:
                    leaf = read.session.leaf(read.session.head.default_segment)
                    reading.context(read.session, leaf)
            if start % 10_000 == 0:
                print(f"  {start:,} of {n_sessions:,} cold sessions", file=sys.stderr)
        return {"cold_sessions": float(n_sessions), "cold_sessions_mb": _memory_mb() - before}


def _memory_mb() -> float:
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def help_time(rounds: int) -> dict[str, float]:
    """Measure a whole process that prints the help, compiled before as an installed one is."""
    command = [sys.executable, "-m", "ombus.cli", "--help"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}

    def help_printed() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)

    help_printed()
    return {"help_s": median(rounds, help_printed)}


def main() -> None:
    """Run all of it and print the table and the JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folded", type=int, default=20_000, help="entries folded in a round")
    parser.add_argument("--long", type=int, default=100_000, help="entries of the long session")
    parser.add_argument("--cold", type=int, default=100_000, help="cold sessions")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measure, at least 3")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    rounds = max(3, given.rounds)
    results: dict[str, float] = {}
    measures: tuple[tuple[str, Callable[[], dict[str, float]]], ...] = (
        ("folding", lambda: folding(rounds, given.folded)),
        ("reads", lambda: reads(rounds, given.long)),
        ("compaction", lambda: compaction(rounds)),
        ("cold sessions", lambda: cold_sessions(given.cold)),
        ("help", lambda: help_time(rounds)),
    )
    for name, measure in measures:
        print(f"{name} …", file=sys.stderr)
        results |= measure()
    width = max(map(len, results))
    for name, value in results.items():
        print(f"{name:<{width}}  {value:>14,.3f}")
    print(json.dumps({name: round(value, 4) for name, value in results.items()}))


if __name__ == "__main__":
    main()
