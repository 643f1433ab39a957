"""What ``ombus doctor`` looks at: the files, versions, disk, clock, settings and what waits."""

import platform
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from importlib.metadata import version
from typing import Final, Literal

import msgspec
from ombus_streams.memory.duties import WORKERS
from ombus_streams.memory.head import FOLD_VERSION
from ombus_streams.runtime.scheduler import attempts_in

from ombus.operator.databases import open_to_read
from ombus.operator.desk import Desk
from ombus.operator.letters import letters

MIN_FREE_BYTES: Final = 1 << 30
MIN_FREE_SHARE: Final = 0.05
MAX_CLOCK_SKEW: Final = timedelta(seconds=60)
"""The log may be ahead of this machine's clock by so much before that is a finding."""

Verdict = Literal["ok", "note", "finding"]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    fact: str
    way_out: str | None = None


def diagnose(desk: Desk) -> list[Check]:
    """Return every check, in a fixed order; none of them changes anything."""
    checks: list[Callable[[Desk], Check]] = [
        _versions, _files, _disk, _clock, _settings, _folding, _parked, _dead_letters,
    ]  # fmt: skip
    return [check(desk) for check in checks]


def _versions(desk: Desk) -> Check:
    fact = (
        f"ombus {version('ombus')}, fold {FOLD_VERSION}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, msgspec {version('msgspec')}"
    )
    return Check(name="versions", verdict="ok", fact=fact)


def _files(desk: Desk) -> Check:
    engine = desk.engine
    for path in (engine.log.path, engine.dead_letters.path, engine.state.path):
        try:
            with closing(open_to_read(path)) as database:
                (said,) = database.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.Error as error:
            said = str(error)
        if said != "ok":
            way_out = "restore a backup; the state alone comes back with `ombus rebuild`"
            return Check(name="files", verdict="finding", fact=f"{path}: {said}", way_out=way_out)
    log = engine.log
    total = sum(log.end(partition) for partition in range(log.partitions))
    fact = f"log {log.incarnation}: {log.partitions} partitions, {total:,} records; files are sound"
    return Check(name="files", verdict="ok", fact=fact)


def _disk(desk: Desk) -> Check:
    usage = shutil.disk_usage(desk.settings.folder)
    fact = f"{usage.free / 2**30:,.1f} GiB of {usage.total / 2**30:,.1f} free"
    if usage.free < min(MIN_FREE_BYTES, MIN_FREE_SHARE * usage.total):
        way_out = "free some space: appends fail when the disk is full, and nothing else is lost"
        return Check(name="disk", verdict="finding", fact=fact, way_out=way_out)
    return Check(name="disk", verdict="ok", fact=fact)


def _clock(desk: Desk) -> Check:
    log = desk.engine.log
    last_ms = 0
    for partition in range(log.partitions):
        for record in log.read(partition, log.end(partition) - 1, 1):
            last_ms = max(last_ms, record.at_ms)
    ahead = timedelta(milliseconds=last_ms - desk.clock.now().timestamp() * 1000)
    if ahead > MAX_CLOCK_SKEW:
        fact = f"the newest record was appended {ahead.total_seconds():,.0f} s in the future"
        way_out = "set this machine's clock; order is the log's, so nothing is out of order"
        return Check(name="clock", verdict="finding", fact=fact, way_out=way_out)
    return Check(name="clock", verdict="ok", fact="no record lies in the future")


def _settings(desk: Desk) -> Check:
    secrets = len(desk.settings.secrets)
    kept = f"{secrets} forms of known secrets are kept out" if secrets else "no secrets are known"
    fact = f"data {desk.settings.folder}, tenant {desk.settings.tenant}; {kept}"
    return Check(name="settings", verdict="ok", fact=fact)


def _folding(desk: Desk) -> Check:
    lag = desk.engine.lag()
    if not lag:
        return Check(name="folding", verdict="ok", fact="everything on the log is folded")
    return Check(
        name="folding",
        verdict="note",
        fact=f"{lag:,} records are not folded yet",
        way_out="`ombus up` folds them, and so does the next command that reads",
    )


def _parked(desk: Desk) -> Check:
    found: list[str] = []
    for key in desk.engine.sessions():
        partition = desk.engine.log.partition_of(key)
        with desk.engine.reading(key) as live, desk.engine.state.snapshot(partition) as rows:
            for segment in live.session.segments():
                for worker in WORKERS:
                    attempts = attempts_in(rows, (key, segment, worker))
                    if attempts.is_parked:
                        found.append(f"{key.decode()}: {worker}: {attempts.reason}")
    if not found:
        return Check(name="workers", verdict="ok", fact="no leaf is parked for a worker")
    return Check(
        name="workers",
        verdict="finding",
        fact=f"{len(found):,} parked: " + "; ".join(found[:3]),
        way_out="mend what the reason says; a parked leaf is tried again by itself",
    )


def _dead_letters(desk: Desk) -> Check:
    found = [each for each in letters(desk.engine.dead_letters) if each.state == "open"]
    if not found:
        return Check(name="dead letters", verdict="ok", fact="none is open")
    return Check(
        name="dead letters",
        verdict="finding",
        fact=f"{len(found):,} open, the first {found[0].id}: {found[0].reason}",
        way_out="`ombus dlq list` shows them; retry or discard each",
    )
