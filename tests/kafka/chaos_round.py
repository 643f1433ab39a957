"""One round: traffic, workers that are restarted as a service manager does, and what came of it."""

import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final, Self

import msgspec
from ombus.dev.kafka import Cluster
from ombus.operator.kafka_verification import verify_rows
from ombus.wiring_state import partitions_in
from ombus_schemas.codec import decode, encode
from ombus_schemas.entries import Entry
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.snapshot import reading
from ombus_streams.memory import keys
from ombus_streams.memory.head import EntryRow, ParkedRow, SessionHead
from ombus_streams.memory.rows import Overlay
from ombus_streams.memory.session import Session
from ombus_streams.runtime.ports import Draft, LogRecord

from tests.kafka.child import Child, Told
from tests.kafka.tcp_proxy import FaultProxy
from tests.kafka.traffic import Feed
from tests.kafka.world import Place, make_place, records_of, state_folder, until

ROLE: Final = "all"
SETTLED_WITHIN: Final = 180.0
ANSWERED_WITHIN: Final = 90.0
QUIET_SECONDS: Final = 1.0


class Tale(msgspec.Struct, frozen=True, kw_only=True):
    """What one round came to."""

    number: int
    kind: str
    workers: int
    """At once, at most."""
    sent: int
    """Entries that were acknowledged, repeats left out."""
    folded: int
    """Entries of hosts in the rows."""
    lost: int
    doubled: int
    repeated: int
    """Results on the log whose run had its result already; all of them are counted in the rows."""
    stale: int
    """Records of workers that a view has refused: their base, or what they read, was passed by."""
    restarts: int
    """Of workers that ended by themselves."""
    caught_up_seconds: float
    """From the end of the fault until all is folded and nothing runs."""
    rows: int
    differences: int
    """Of verify, over the rows of all instances."""
    forged: bool
    """A repeated result and a stale one were appended on purpose, refused and counted."""
    remark: str = ""

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.doubled or self.differences) and self.forged


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """Where rounds are fought."""

    bootstrap: str
    folder: Path
    cluster: Cluster | None = None
    outage_seconds: float = 60.0
    load_seconds: float = 5.0
    per_second: int = 120
    """Entries."""


class Round:
    """A topic, its traffic, and its workers by instance."""

    def __init__(self, ground: Ground, number: int) -> None:
        self.ground, self.number = ground, number
        self.chance = Random(number)
        folder = ground.folder / f"round-{number:03d}"
        # What an interrupted round left belongs to the log of that one.
        shutil.rmtree(folder, ignore_errors=True)
        self.place = make_place(ground.bootstrap, folder)
        self.log = KafkaLog(self.place.connection, self.place.topic)
        self.children: dict[str, Child] = {}
        self.most_workers = self.n_restarts = 0
        self.remark = ""
        self._opened = ExitStack()
        self._opened.callback(lambda: self.log.close())
        self.feed = self._feed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children.values():
            if child.is_running:
                child.kill()
        self.feed.end()
        self._opened.close()

    def start(
        self, instance: str = "a", place: Place | None = None, run_seconds: float = 0.3
    ) -> Child:
        """Start a worker, or one in the place of another."""
        told = Told(place=place or self.place, instance=instance, run_seconds=run_seconds)
        child = self.children[instance] = Child(told)
        running = sum(each.is_running for each in self.children.values())
        self.most_workers = max(self.most_workers, running)
        return child

    def rows(self, instance: str) -> Path:
        return state_folder(Path(self.place.folder), instance, ROLE)

    def folds(self, *instances: str) -> None:
        """Return once these workers have folded something."""
        for instance in instances:
            until(lambda: self._has_folded(instance), 90, f"{instance} folds")  # noqa: B023

    def owns(self, instance: str, n_partitions: int) -> None:
        """Return once a worker has so many partitions."""

        def holds() -> bool:
            self.revive()
            status = self.children[instance].status
            return status is not None and len(status.partitions) == n_partitions

        until(holds, 90, f"{instance} has {n_partitions} partitions")

    def wait(self, least: float, most: float) -> None:
        """Let things go on for a while that nobody can foresee."""
        deadline = time.monotonic() + self.chance.uniform(least, most)
        while time.monotonic() < deadline:
            self.revive()
            time.sleep(0.1)

    def revive(self) -> None:
        """Start what has ended by itself, as whoever runs a fleet does."""
        for child in [*self.children.values()]:
            if not child.is_running and child.told.instance in self.children:
                self.n_restarts += 1
                self.start(child.told.instance, child.told.place, child.told.run_seconds)

    def gone(self, instance: str) -> Child:
        """Take a worker out: it is not started again."""
        return self.children.pop(instance)

    def another_log(self, place: Place) -> None:
        """Go on with the log that is under the topic's name now."""
        self.feed.end()
        self.log.close()
        self.place, self.log = place, KafkaLog(place.connection, place.topic)
        self.feed = self._feed()

    def proxied(self) -> tuple[Place, FaultProxy]:
        """Return the place as seen through a proxy before every broker."""
        cluster = self.ground.cluster
        assert cluster is not None
        targets = {each.advertised_port: each.proxied_port for each in cluster.brokers}
        proxy = self._opened.enter_context(FaultProxy(targets))
        bootstrap = ",".join(f"127.0.0.1:{port}" for port in targets)
        return msgspec.structs.replace(self.place, bootstrap=bootstrap), proxy

    def end(self, kind: str) -> Tale:
        """Let a run answer and all settle, forge results, let it settle again, stop, and count."""
        until(self._has_answered, ANSWERED_WITHIN, f"round {self.number}: a run has answered")
        began = time.monotonic()
        drafts = self.feed.end()
        self._settle()
        caught_up = time.monotonic() - began
        n_forged = self._forge()
        self._settle()
        for instance in [*self.children]:
            self.gone(instance).stop()
        return self._tale(kind, drafts, caught_up, n_forged)

    def _feed(self) -> Feed:
        return Feed(self.log, n_sessions=24, seed=self.number, per_second=self.ground.per_second)

    def _has_folded(self, instance: str) -> bool:
        self.revive()
        status = self.children[instance].status
        return status is not None and status.n_records > 0

    def _has_answered(self) -> bool:
        """Say whether there is a result to forge; the traffic goes on until there is one."""
        self.revive()
        return any(_result(record) is not None for record in self._records())

    def _settle(self) -> None:
        until(self._is_settled, SETTLED_WITHIN, f"round {self.number}: all is folded")

    def _is_settled(self) -> bool:
        """Say whether, for a while, all is folded, nothing runs, and nothing new has come."""
        ends = self._ends()
        deadline = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < deadline:
            self.revive()
            folded: dict[int, int] = {}
            for child in self.children.values():
                status = child.status
                if status is None or not status.is_ready or status.n_runs_under_way:
                    return False
                folded |= {each.partition: each.next_offset for each in status.partitions}
            if folded != ends:
                return False
            time.sleep(0.1)
        return self._ends() == ends

    def _ends(self) -> dict[int, int]:
        return self.log.ends()

    def _forge(self) -> int:
        """Append another answer to a run that has its own, and one to a base that was passed by."""
        for record in self._records():
            entry = _result(record)
            if entry is not None and isinstance(entry.data, dict):
                data = {**entry.data, "observations": []}
                stale = f"om:observer:{self.chance.getrandbits(96):024x}"
                other = msgspec.structs.replace(entry, data=data)
                late = msgspec.structs.replace(entry, id=stale, data=data)
                assert record.key is not None
                self.log.append(
                    [Draft(key=record.key, value=encode(each)) for each in (other, late)]
                )
                return 1
        return 0

    def _records(self) -> Iterator[LogRecord]:
        for partition in range(self.log.partitions):
            yield from records_of(self.log, partition)

    def _tale(self, kind: str, drafts: Sequence[Draft], caught_up: float, n_forged: int) -> Tale:
        sent = {(draft.key, decode(draft.value).id) for draft in drafts}
        results = Counter(
            (record.key, entry.id) for record in self._records() if (entry := _result(record))
        )
        n_repeated = sum(count - 1 for count in results.values())
        found = _Found()
        instances = [each.name for each in Path(self.place.folder).iterdir() if each.is_dir()]
        for partition in range(self.log.partitions):
            found.add(self._furthest(instances, partition))
        n_rows = n_differences = 0
        for instance in instances:
            verified = verify_rows(self.rows(instance), self.log)
            n_rows += verified.rows
            n_differences += verified.n_differences
        hosts = {each for each in found.ids if not each[1].startswith("om:")}
        return Tale(
            number=self.number,
            kind=kind,
            workers=self.most_workers,
            sent=len(sent),
            folded=len(hosts),
            lost=len(sent - hosts),
            doubled=sum(count - 1 for count in found.ids.values()),
            repeated=n_repeated,
            stale=found.n_stale,
            restarts=self.n_restarts,
            caught_up_seconds=round(caught_up, 1),
            rows=n_rows,
            differences=n_differences,
            forged=n_forged > 0 and found.n_repeated_runs > 0 and found.n_stale_base > 0,
            remark=self.remark,
        )

    def _furthest(self, instances: Sequence[str], partition: int) -> Path:
        """Return the rows of whoever has folded most of a partition."""
        best, at = Path(), -1
        for instance in instances:
            if partition in partitions_in(self.rows(instance)):
                path = self.rows(instance) / f"{partition:05d}"
                with reading(path) as live:
                    position = live.position()
                if position is not None and position.next_offset > at:
                    best, at = path, position.next_offset
        return best


class _Found:
    """What the rows of all partitions hold."""

    def __init__(self) -> None:
        self.ids: Counter[tuple[bytes, str]] = Counter()
        self.n_stale = self.n_stale_base = self.n_repeated_runs = 0

    def add(self, rows: Path) -> None:
        prefix = keys.session_mark()
        with reading(rows) as live:
            for mark, _ in live.scan(prefix):
                self._add(Session(mark[len(prefix) :], Overlay(live)))

    def _add(self, session: Session) -> None:
        for family in (b"e", b"s"):
            for _, row in session.scan(session.prefix + family, EntryRow):
                self.ids[(session.key, decode(row.value).id)] += 1
        for family in (b"p", b"x"):
            for _, waiting in session.scan(session.prefix + family, ParkedRow):
                self.ids[(session.key, decode(waiting.value).id)] += 1
        head = session.read(keys.head(session.prefix), SessionHead)
        assert head is not None
        self.n_repeated_runs += head.n_repeated_runs
        for segment in session.segments():
            counts = session.leaf(segment).rejections
            self.n_stale_base += counts.stale_base
            self.n_stale += sum(
                value for value in msgspec.structs.asdict(counts).values() if isinstance(value, int)
            )


def _result(record: LogRecord) -> Entry | None:
    """Return the entry if it is an observer's result."""
    if record.value is None or b'"om:observer:' not in record.value:
        return None
    entry = decode(record.value)
    return entry if entry.id.startswith("om:observer:") else None
