"""Faults of every kind against workers under load: ``python -m tests.kafka.chaos --rounds 40``.

Three brokers of its own; a topic, its traffic and its workers for each round. What a round came to
is in the state file, so a run that was stopped goes on after it. It prints as it goes, and a table
at the end; it ends with 1 if anything was lost, doubled, different, or not refused.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec
from ombus.dev import kafka

from tests.kafka.chaos_faults import FAULTS
from tests.kafka.chaos_round import Ground, Round, Tale

N_BROKERS: Final = 3
LEAST_OF_A_KIND: Final = 4


class State(msgspec.Struct):
    """The rounds there were."""

    broker: str = ""
    tales: list[Tale] = []


def fight(ground: Ground, number: int) -> Tale:
    """Fight one round; kinds take turns."""
    kind = [*FAULTS][number % len(FAULTS)]
    with Round(ground, number) as round:
        FAULTS[kind](round)
        tale = round.end(kind)
    if tale.is_good:
        shutil.rmtree(round.place.folder, ignore_errors=True)
    return tale


def line_of(tale: Tale) -> str:
    """Return what is printed after a round."""
    verdict = "equal" if not tale.differences else f"{tale.differences} DIFFERENCES"
    return (
        f"{tale.number + 1:>3} {tale.kind:<20} {tale.workers} workers, {tale.sent:,} sent, "
        f"{tale.folded:,} folded, {tale.lost} lost, {tale.doubled} doubled, {tale.repeated} runs "
        f"repeated, {tale.stale} stale refused, {tale.restarts} restarts, caught up in "
        f"{tale.caught_up_seconds:.1f} s, verify: {tale.rows:,} rows {verdict}"
        f"{'' if tale.forged else ', FORGED RESULTS NOT REFUSED'}"
        f"{f'; {tale.remark}' if tale.remark else ''}"
    )


def table(tales: Sequence[Tale]) -> list[str]:
    """Return the rounds by kind, as a table in Markdown."""
    head = ("fault", "rounds", "sent", "folded", "lost", "doubled", "runs repeated",
            "stale refused", "restarts", "caught up, s: median / most", "verify equal")  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    groups = [(kind, [each for each in tales if each.kind == kind]) for kind in FAULTS]
    for kind, group in [*groups, ("all", [*tales])]:
        if not group:
            continue
        seconds = sorted(each.caught_up_seconds for each in group)
        cells = (
            kind, len(group), f"{sum(each.sent for each in group):,}",
            f"{sum(each.folded for each in group):,}", sum(each.lost for each in group),
            sum(each.doubled for each in group), sum(each.repeated for each in group),
            sum(each.stale for each in group), sum(each.restarts for each in group),
            f"{seconds[len(seconds) // 2]:.1f} / {seconds[-1]:.1f}",
            f"{sum(not each.differences for each in group)} of {len(group)}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def main(arguments: Sequence[str]) -> int:
    # Whoever stops it wants the brokers and the workers to end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.chaos")
    parser.add_argument("--rounds", type=int, default=len(FAULTS) * LEAST_OF_A_KIND)
    parser.add_argument("--folder", type=Path, default=Path(".demo/chaos"))
    parser.add_argument("--outage", type=float, default=60.0, help="seconds")
    parser.add_argument("--only", choices=[*FAULTS], help="one kind, and no state is kept")
    said = parser.parse_args(arguments)
    folder: Path = said.folder.absolute()
    file = folder / "state.json"
    folder.mkdir(parents=True, exist_ok=True)
    state = State() if said.only or not file.exists() else _decoded(file)
    cluster = kafka.up(folder / "brokers", N_BROKERS)
    state.broker = f"Apache Kafka {cluster.version}, {N_BROKERS} brokers"
    ground = Ground(
        bootstrap=cluster.bootstrap,
        folder=folder / "rounds",
        cluster=cluster,
        outage_seconds=said.outage,
    )
    began = time.monotonic()
    try:
        if said.only:
            numbers = range([*FAULTS].index(said.only), said.rounds * len(FAULTS), len(FAULTS))
            todo = [*numbers][: said.rounds]
        else:
            todo = [*range(len(state.tales), said.rounds)]
        for number in todo:
            tale = fight(ground, number)
            print(line_of(tale), flush=True)
            state.tales.append(tale)
            if not said.only:
                file.write_bytes(msgspec.json.encode(state))
    finally:
        kafka.down(folder / "brokers", wipe=True)
    return _summary(state, time.monotonic() - began)


def _summary(state: State, seconds: float) -> int:
    versions = ", ".join(f"{name} {version(name)}" for name in ("aiokafka", "rocksdict"))
    faust = version("faust-streaming")
    print(f"\n{state.broker}, {versions}, faust-streaming {faust}, {os.cpu_count()} cores\n")
    print("\n".join(table(state.tales)))
    bad = [each.number + 1 for each in state.tales if not each.is_good]
    kinds = Counter(each.kind for each in state.tales)
    total = {
        "rounds": len(state.tales),
        "lost": sum(each.lost for each in state.tales),
        "doubled": sum(each.doubled for each in state.tales),
        "verify_equal": sum(not each.differences for each in state.tales),
        "least_of_a_kind": min((kinds[kind] for kind in FAULTS), default=0),
        "runs_repeated": sum(each.repeated for each in state.tales),
        "stale_refused": sum(each.stale for each in state.tales),
        "bad_rounds": bad,
        "seconds": round(seconds),
    }
    print(f"\n{msgspec.json.encode(total).decode()}")
    return 1 if bad else 0


def _decoded(file: Path) -> State:
    return msgspec.json.decode(file.read_bytes(), type=State)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
