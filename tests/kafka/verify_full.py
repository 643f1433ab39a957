"""``ombus verify`` of a live system at full size: ``python -m tests.kafka.verify_full``.

A topic is filled, a worker in a process of its own folds it, and sessions go on writing while the
command, a process too, proves the worker's rows: equal. Then the worker ends, one byte of one row
is flipped, and the command must name that row and end with 1. Printed as it goes: how far the fold
is, and what the command took and said.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
import structlog
from ombus.dev import kafka as dev_kafka
from ombus_schemas.codec import encode, key_of
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.partition import MAX_BATCH
from ombus_streams.engine.kafka.rocks import Bounds
from ombus_streams.memory import keys
from ombus_streams.runtime.ports import Draft

from tests.bench.kafka import entries
from tests.kafka.child import Child, Told
from tests.kafka.rocks import flip_a_byte
from tests.kafka.traffic import Feed
from tests.kafka.world import PAGE, Place, make_place, state_folder

PARTITIONS: Final = 16
FED_PER_SECOND: Final = 50
TELL_SECONDS: Final = 10.0
FOLD_WITHIN_SECONDS: Final = 3_600
ROLE: Final = "projector"


class Proved(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is read of the command's answer."""

    class Difference(msgspec.Struct, frozen=True):
        session: str
        what: str
        fact: str

    equal: bool
    rows: int
    records: int
    sessions: int
    lag: int
    differences: tuple[Difference, ...]


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the command."""

    code: int
    seconds: float
    peak_mib: int
    """Of its resident memory."""
    proved: Proved


def fill(log: KafkaLog, n_entries: int) -> None:
    """Append the entries of the benchmark: 2,000 sessions in turn."""
    drafts: list[Draft] = []
    for number, entry in enumerate(entries(n_entries), start=1):
        drafts.append(Draft(key=key_of(entry), value=encode(entry)))
        if len(drafts) == PAGE or number == n_entries:
            log.append(drafts)
            drafts.clear()
        if number % 100_000 == 0 or number == n_entries:
            say(f"appended {number:,} of {n_entries:,}")


def fold(child: Child, n_entries: int) -> float:
    """Return after how many seconds the worker had folded that many records."""
    began = told = time.monotonic()
    while (n_folded := _folded(child)) < n_entries:
        if not child.is_running:
            raise SystemExit(f"the worker has ended:\n{child.said()}")
        now = time.monotonic()
        if now - began > FOLD_WITHIN_SECONDS:
            raise SystemExit(f"{n_folded:,} folded within {FOLD_WITHIN_SECONDS:,} s")
        if now - told > TELL_SECONDS:
            told = now
            say(f"folded {n_folded:,}")
        time.sleep(0.1)
    return time.monotonic() - began


def verify(place: Place) -> Verified:
    """Run the command, as an operator does, and show its progress."""
    command = [
        sys.executable, "-m", "ombus.cli", "--data", str(Path(place.folder).parent), "verify",
        "--kafka", "--json", "--role", ROLE, "--instance", "a", "--topic", place.topic,
        "--bootstrap-servers", place.bootstrap,
    ]  # fmt: skip
    began = time.monotonic()
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr)
    assert running.stdout is not None
    said = running.stdout.read()
    _, status, used = os.wait4(running.pid, 0)
    seconds = time.monotonic() - began
    return Verified(
        code=os.waitstatus_to_exitcode(status),
        seconds=seconds,
        peak_mib=used.ru_maxrss // 1024,
        proved=msgspec.json.decode(said, type=Proved),
    )


def say(text: str) -> None:
    print(text, flush=True)


def _folded(child: Child) -> int:
    return child.status.n_records if child.status else 0


def _run(bootstrap: str, folder: Path, n_entries: int) -> bool:
    place = make_place(bootstrap, folder / "kafka", PARTITIONS)
    with closing(KafkaLog(place.connection, place.topic)) as log:
        fill(log, n_entries)
        child = Child(Told(place=place, role=ROLE, max_batch=MAX_BATCH, bounds=Bounds()))
        feed = Feed(log, n_sessions=50, seed=3, per_second=FED_PER_SECOND)
        try:
            say(f"folded by a worker within {fold(child, n_entries):.1f} s")
            before = _folded(child)
            live = verify(place)
            n_meanwhile = _folded(child) - before
        finally:
            feed.end()
            ended = child.stop()
    proved = live.proved
    say(
        f"verify, live: {proved.rows:,} rows of {proved.sessions:,} sessions, {proved.records:,} "
        f"records folded afresh in {live.seconds:.1f} s, at most {live.peak_mib} MiB, meanwhile "
        f"{n_meanwhile:,} more folded by the worker: "
        f"{'equal' if proved.equal else 'DIFFERENT'}, exit code {live.code}"
    )
    key = flip_a_byte(state_folder(Path(place.folder), "a", ROLE) / "00000")
    session, row = keys.described(key)
    flipped = verify(place)
    named = [(each.session, each.what) for each in flipped.proved.differences]
    for each in flipped.proved.differences:
        say(f"verify, one byte flipped: {each.session}: {each.what}: {each.fact}")
    say(f"verify, one byte flipped: exit code {flipped.code} in {flipped.seconds:.1f} s")
    return (
        (ended, live.code, proved.equal) == (0, 0, True)
        and n_meanwhile > 0
        and flipped.code == 1
        and named == [(session, row)]
    )


def main() -> None:
    """Fill, fold, prove, spoil, prove again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=1_000_000)
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    folder = Path(tempfile.mkdtemp(prefix="ombus-verify-full-"))
    cluster = dev_kafka.up(folder / "broker")
    try:
        holds = _run(cluster.bootstrap, folder, given.entries)
    finally:
        dev_kafka.down(folder / "broker", wipe=True)
        shutil.rmtree(folder, ignore_errors=True)
    say("verify-full: holds" if holds else "verify-full: DOES NOT HOLD")
    raise SystemExit(0 if holds else 1)


if __name__ == "__main__":
    main()
