"""Benchmarks of the Kafka engine: every contender on the same bytes, in one run.

``make bench-kafka``. Each contender is a process of its own with an empty folder and a group of its
own; it is timed from the first record it is handed to the last one it has stored. Rates are medians
of at least three rounds, ratios are medians of the ratios of each round.

- *Transport*: one counting fold in all (``contenders/counting.py``): our transport and store;
  aiokafka as it is documented, with the same rows in RocksDB (the floor; ours may pass it, as it
  makes no record of aiokafka's); Quix Streams with state and its changelog; a stock Faust agent
  with a table, over fewer records.
- *Real*: our fold in the bare client, and in the worker as it ships, as observer and as projector;
  ``real_over_floor`` is the lower of both.
- ``fold_over_decode``: the fold with its rows in memory, over typed decoding of the same bytes.
- ``catchup_over_fold``: the projector's rate over that of its fold alone, records in memory and
  rows in RocksDB.
- ``recovery_over_write``: the projector from a wiped directory over consuming the same bytes and
  writing two rows an entry, its bytes and its id (``--recovery N`` entries); ``recovery_over_raw``:
  over writing one row, the bytes alone; ``checkpoint_over_write``: from a checkpoint at the end,
  hard links included; ``kept_seconds``: the same with its directory kept; ``rebuild_over_write``:
  folding all of it in one process a core, as ``ombus rebuild --kafka`` does.
- ``*_cpu_us``: processor time an entry, of all threads of a contender's process: what others do on
  the machine is not in it.
"""

import argparse
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec
import structlog
from ombus.dev import kafka as dev_kafka
from ombus.operator.following import left_by_partition
from ombus.operator.together import fold_together
from ombus_schemas.codec import encode, key_of
from ombus_schemas.entries import Entry
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.partition import MAX_BATCH_BEHIND
from ombus_streams.engine.kafka.store import RocksState
from ombus_streams.runtime.ports import Draft, LogRecord
from ombus_streams.runtime.processor import Processor

from tests.bench.contenders.counting import Elapsed, Told
from tests.bench.embedded import message
from tests.kafka.world import PAGE, Place, make_place, records_of
from tests.support.engine import MemoryStore

ROOT: Final = Path(__file__).parents[2]
PARTITIONS: Final = 16
SESSIONS: Final = 2_000
FAST: Final = ("ours-counting", "bare-counting", "quix", "stock")
REAL: Final = ("ours-observer", "ours-projector", "bare-real")


class Bench:
    """The topics of one run and what it starts over them."""

    def __init__(self, bootstrap: str, folder: Path, quix: Path | None) -> None:
        self.bootstrap, self.folder, self._quix = bootstrap, folder, quix
        self._n_started = 0

    def filled(self, n_entries: int) -> Place:
        """Return a topic with that many entries of as many sessions as there are."""
        place = make_place(self.bootstrap, self.folder, PARTITIONS)
        log = KafkaLog(place.connection, place.topic)
        drafts: list[Draft] = []
        for entry in entries(n_entries):
            drafts.append(Draft(key=key_of(entry), value=encode(entry)))
            if len(drafts) == PAGE:
                log.append(drafts)
                drafts.clear()
        log.append(drafts)
        log.close()
        return place

    def run(self, name: str, place: Place, n_entries: int, folder: Path | None = None) -> Elapsed:
        """Run one contender over the topic; ``folder`` is kept if it is given."""
        self._n_started += 1
        where = folder or self.folder / f"run-{self._n_started}"
        told = Told(
            name=name,
            bootstrap=place.bootstrap,
            topic=place.topic,
            dead_letters=place.dead_letters,
            partitions=place.partitions,
            # Each partition opens with a record of its own.
            n_records=n_entries + place.partitions,
            group=f"{place.topic}-{self._n_started}",
            folder=str(where),
        )
        command = [sys.executable, "-m", "tests.bench.contenders"]
        environment = dict(os.environ)
        if name == "quix":
            command = [str(self._quix), "-m", "tests.bench.contenders.quix"]
            environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "schemas")])
        done = subprocess.run(
            [*command, msgspec.json.encode(told).decode()],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{name} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        if folder is None:
            shutil.rmtree(where, ignore_errors=True)
        return msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=Elapsed)


def entries(n_entries: int) -> Iterator[Entry]:
    """Yield the entries of all sessions in turn, each of about 570 bytes."""
    for number in range(n_entries):
        session, turn = number % SESSIONS, number // SESSIONS
        parent = f"e{number - SESSIONS}" if turn else None
        yield message(f"s{session}", number, parent)


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """What each contender did in each round."""

    per_s: dict[str, list[float]]
    cpu_us: dict[str, list[float]]
    """Processor time an entry."""


def rates(bench: Bench, rounds: int, n_entries: int, n_stock: int) -> Rates:
    """Let every contender run in every round."""
    places = {n: bench.filled(n) for n in {n_entries, n_stock}}
    found: dict[str, list[float]] = {name: [] for name in (*FAST, *REAL)}
    cpu_us: dict[str, list[float]] = {name: [] for name in found}
    for turn in range(rounds):
        # Another one first each time: none is always the one with the warm page cache.
        names = [*found]
        for name in (*names[turn % len(names) :], *names[: turn % len(names)]):
            n = n_stock if name == "stock" else n_entries
            took = bench.run(name, places[n], n)
            found[name].append(n / took.seconds)
            cpu_us[name].append(took.cpu_seconds / n * 1e6)
            print(
                f"{turn + 1}/{rounds} {name:<15} {found[name][-1]:>10,.0f}/s "
                f"{cpu_us[name][-1]:>8.1f} us",
                file=sys.stderr,
            )
    return Rates(per_s=found, cpu_us=cpu_us)


def fold_rates(bench: Bench, rounds: int, n_entries: int) -> dict[str, float]:
    """Return the rates of decoding, of the fold in memory and of the fold into RocksDB."""
    place = bench.filled(n_entries)
    log = KafkaLog(place.connection, place.topic)
    parts = [list(records_of(log, number)) for number in range(place.partitions)]
    decoder = msgspec.json.Decoder(Entry)
    decoding: list[float] = []
    in_memory: list[float] = []
    in_rocks: list[float] = []
    for turn in range(rounds):
        gc.collect()
        start = time.perf_counter()
        for records in parts:
            for record in records:
                decoder.decode(record.value or b"")
        decoding.append(time.perf_counter() - start)
        in_memory.append(
            _folding([Processor(MemoryStore(), log, n) for n in range(len(parts))], parts)
        )
        state = RocksState(bench.folder / f"fold-{turn}")
        in_rocks.append(
            _folding([Processor(state.store(n), log, n) for n in range(len(parts))], parts)
        )
        state.close()
    log.close()
    return {
        "decode_per_s": n_entries / statistics.median(decoding),
        "fold_per_s": n_entries / statistics.median(in_rocks),
        "fold_over_decode": statistics.median(
            fold / decode for fold, decode in zip(in_memory, decoding, strict=True)
        ),
    }


def _folding(processors: Sequence[Processor], parts: Sequence[Sequence[LogRecord]]) -> float:
    gc.collect()
    start = time.perf_counter()
    for processor, records in zip(processors, parts, strict=True):
        for at in range(0, len(records), MAX_BATCH_BEHIND):
            processor.fold(records[at : at + MAX_BATCH_BEHIND])
    return time.perf_counter() - start


def recovery(bench: Bench, n_entries: int) -> dict[str, float]:
    """Compare a projector that begins with nothing, and with its checkpoint, with plain writing."""
    place = bench.filled(n_entries)
    kept, restored = bench.folder / "kept", bench.folder / "restored"
    raw = bench.run("bare-raw", place, n_entries)
    write = bench.run("bare-writing", place, n_entries)
    wiped = bench.run("ours-projector", place, n_entries, folder=kept)
    log = KafkaLog(place.connection, place.topic)
    start = time.perf_counter()
    state = RocksState(kept)
    for number in range(place.partitions):
        state.checkpoint(number, restored / f"{number:05d}")
    state.close()
    _opened(restored, log)
    from_checkpoint = time.perf_counter() - start
    start = time.perf_counter()
    _opened(kept, log)
    kept_seconds = time.perf_counter() - start
    start = time.perf_counter()
    opens = partial(KafkaLog, place.connection, place.topic)
    n_processes = os.cpu_count() or 1
    left = left_by_partition(bench.folder / "rebuilt", log, range(place.partitions))
    fold_together(bench.folder / "rebuilt", opens, left, n_processes, note=print)
    rebuilt_seconds = time.perf_counter() - start
    log.close()
    return {
        "recovery_entries": n_entries,
        "recovery_over_write": write.seconds / wiped.seconds,
        "recovery_over_raw": raw.seconds / wiped.seconds,
        "recovery_cpu_us": wiped.cpu_seconds / n_entries * 1e6,
        "recovery_write_cpu_us": write.cpu_seconds / n_entries * 1e6,
        "recovery_raw_cpu_us": raw.cpu_seconds / n_entries * 1e6,
        "checkpoint_over_write": write.seconds / from_checkpoint,
        "kept_seconds": kept_seconds,
        "rebuild_over_write": write.seconds / rebuilt_seconds,
    }


def _opened(folder: Path, log: KafkaLog) -> None:
    """Open every partition and compare it with the log, as a worker does that is assigned them."""
    state = RocksState(folder)
    for number in range(log.partitions):
        processor = Processor(state.store(number), log, number, topic=log.topic)
        while processor.lag():
            processor.step(MAX_BATCH_BEHIND)
    state.close()


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def main() -> None:
    """Run all of it and print the table and the JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=200_000, help="entries of a round")
    parser.add_argument("--stock", type=int, default=10_000, help="entries of a stock agent")
    parser.add_argument("--recovery", type=int, default=1_000_000, help="entries recovered")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each, at least 3")
    parser.add_argument("--quix", type=Path, required=True, help="a Python that has Quix Streams")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    rounds = max(3, given.rounds)
    folder = Path(tempfile.mkdtemp(prefix="ombus-bench-"))
    cluster = dev_kafka.up(folder / "kafka")
    try:
        bench = Bench(cluster.bootstrap, folder, given.quix)
        of_rounds = rates(bench, rounds, given.entries, given.stock)
        found = of_rounds.per_s
        results = {f"{name}_per_s": statistics.median(each) for name, each in found.items()}
        results |= {
            f"{name}_cpu_us": statistics.median(each) for name, each in of_rounds.cpu_us.items()
        }
        floor = found["bare-counting"]
        results |= {
            "entry_bytes": statistics.mean(len(encode(each)) for each in entries(1_000)),
            "transport_over_floor": ratio(found["ours-counting"], floor),
            "transport_over_quix": ratio(found["ours-counting"], found["quix"]),
            "transport_over_stock": ratio(found["ours-counting"], found["stock"]),
            "real_over_floor": min(
                ratio(found[name], found["bare-real"]) for name in REAL if name != "bare-real"
            ),
        }
        results |= fold_rates(bench, rounds, given.entries)
        results["catchup_over_fold"] = results["ours-projector_per_s"] / results["fold_per_s"]
        if given.recovery:
            results |= recovery(bench, given.recovery)
    finally:
        dev_kafka.down(folder / "kafka", wipe=True)
        shutil.rmtree(folder, ignore_errors=True)
    names = ("aiokafka", "faust-streaming", "rocksdict", "msgspec")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    python = sys.version.split()[0]
    print(
        f"Apache Kafka {cluster.version} on loopback, {os.cpu_count()} cores, "
        f"{PARTITIONS} partitions, {SESSIONS:,} sessions; Python {python}, {versions}"
    )
    width = max(map(len, results))
    for name, value in results.items():
        print(f"{name:<{width}}  {value:>14,.3f}")
    print(json.dumps({name: round(value, 4) for name, value in results.items()}))


if __name__ == "__main__":
    main()
