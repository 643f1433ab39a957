"""What operators do with rows folded from Kafka, while their workers go on."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from ombus.cli.app import app
from ombus.operator.checkpoints import Damaged, Occupied, newest, restore, save
from ombus.operator.depot import depot_at
from ombus.operator.errors import Busy
from ombus.operator.following import (
    BESIDE,
    CLOSE_ENOUGH,
    NotCaughtUp,
    follow,
    left_by_partition,
    rebuild,
    remove_old,
)
from ombus.operator.kafka_verification import NoRows, verify_rows
from ombus.operator.progress import Tell
from ombus.operator.together import BATCH as PAGE
from ombus.operator.together import WORTH_PROCESSES, fold_together, n_worth
from ombus.wiring import SystemClock
from ombus.wiring_state import StoreError, is_in_use, partitions_in, still_rows
from ombus.wiring_state import state_folder as wiring_folder
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.snapshot import reading
from ombus_streams.engine.kafka.store import RocksState
from ombus_streams.memory import keys
from ombus_streams.runtime.processor import Processor
from typer.testing import CliRunner

from tests.kafka import older_version
from tests.kafka.child import Child, Told, settled
from tests.kafka.ending_log import opens_ending_log
from tests.kafka.rocks import flip_a_byte
from tests.kafka.traffic import Feed, drafts_of, traffic
from tests.kafka.transactions import transact
from tests.kafka.world import Place, append_all, make_place, rows_in, state_folder, until
from tests.support.brokers import Service

N_ENTRIES: Final = 400
N_ROUNDS: Final = int(os.environ.get("OMBUS_TEST_KAFKA_ROUNDS", "3"))


@pytest.fixture
def place(kafka: Service, tmp_path: Path) -> Place:
    """Rows lie where `ombus --data` with the test's folder looks for them."""
    return make_place(kafka.address, tmp_path / "kafka", partitions=2)


@pytest.fixture
def log(place: Place) -> Iterator[KafkaLog]:
    with closing(KafkaLog(place.connection, place.topic)) as opened:
        yield opened


def run(place: Place, *words: str) -> tuple[int, str]:
    data = str(Path(place.folder).parent)
    shown = CliRunner().invoke(app, ["--data", data, *words])
    # What is answered, without what is told meanwhile; what went wrong is told.
    return shown.exit_code, shown.output if shown.exit_code > 1 else shown.stdout


def asked(place: Place, *words: str) -> tuple[str, ...]:
    return (*words, "--instance", "a", "--topic", place.topic, "--bootstrap-servers",
            place.bootstrap, "--json")  # fmt: skip


def folded(place: Place, log: KafkaLog, instance: str = "a") -> Path:
    """Fold what is on the log, as a worker would that has ended."""
    folder = state_folder(Path(place.folder), instance, "all")
    with closing(RocksState(folder)) as state:
        for partition in range(log.partitions):
            processor = Processor(state.store(partition), log, partition, emits=False)
            while processor.step(500).n_records:
                pass
    return folder


def rows_at(folder: Path, partition: int) -> dict[bytes, bytes]:
    with reading(folder / f"{partition:05d}") as live:
        return rows_in(live)


def test_a_live_system_is_proved_and_one_flipped_byte_is_named(place: Place, log: KafkaLog) -> None:
    folder = state_folder(Path(place.folder), "a", "all")
    feeding = Feed(log, n_sessions=8, seed=3, per_second=200)
    child = Child(Told(place=place))
    until(lambda: child.status is not None and child.status.n_records > 150, 60, "it folds")
    code, said = run(place, *asked(place, "verify", "--kafka"))
    assert code == 0, said
    found = json.loads(said)
    assert found["equal"]
    assert found["rows"] > 100
    feeding.end()
    until(lambda: settled(log, [child], 0.3), 60, "all is folded")
    assert child.stop() == 0

    key = flip_a_byte(folder / "00000")
    session, row = keys.described(key)
    code, said = run(place, *asked(place, "verify", "--kafka"))
    assert code == 1
    (difference,) = json.loads(said)["differences"]
    assert (difference["session"], difference["what"]) == (session, row)
    assert "other bytes" in difference["fact"]


def test_rows_are_saved_wiped_restored_and_equal(place: Place, log: KafkaLog) -> None:
    append_all(log, drafts_of(traffic(N_ENTRIES, n_sessions=8)))
    folder = folded(place, log)
    before = [rows_at(folder, partition) for partition in range(2)]
    depot = f"{folder.parent.parent.parent}/depot"
    code, said = run(place, "checkpoint", "save", depot, "--instance", "a", "--json")
    assert code == 0, said
    append_all(log, drafts_of(traffic(2 * N_ENTRIES, n_sessions=8))[N_ENTRIES:])
    shutil.rmtree(folder)
    code, said = run(place, *asked(place, "checkpoint", "restore", depot))
    assert code == 0, said
    assert [rows_at(folder, partition) for partition in range(2)] == before
    code, said = run(place, *asked(place, "verify", "--kafka"))
    assert (code, json.loads(said)["lag"]) == (0, N_ENTRIES)
    folded(place, log)
    found = verify_rows(folder, log)
    assert (found.is_equal, found.lag) == (True, 0)
    code, said = run(place, *asked(place, "checkpoint", "restore", depot))
    assert code == 2
    assert "holds rows already" in said


def test_a_checkpoint_is_whole_or_is_none(place: Place, log: KafkaLog, tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="object stores need the extra object-store")
    append_all(log, drafts_of(traffic(N_ENTRIES, n_sessions=8)))
    folder, depot, now = (
        folded(place, log),
        depot_at(f"memory://{place.topic}"),
        SystemClock().now(),
    )
    first = save(depot, folder, "all", place.topic, now)
    again = save(depot, folder, "all", place.topic, now)
    assert [each.checkpoint.position for each in again] == [
        each.checkpoint.position for each in first
    ]
    tables = [
        part.n_bytes
        for each in again
        for part in each.checkpoint.parts
        if part.name.endswith(".sst")
    ]
    assert sum(each.n_new_bytes for each in again) <= sum(
        each.checkpoint.n_bytes for each in again
    ) - sum(tables)
    found = newest(depot, log.incarnation, "all")
    assert sorted(found) == [0, 1]
    assert newest(depot, "another", "all") == {}
    restore(depot, found[0], tmp_path / "all-v9")
    assert rows_at(tmp_path / "all-v9", 0) == rows_at(folder, 0)
    with pytest.raises(Occupied, match="holds rows already"):
        restore(depot, found[0], tmp_path / "all-v9")
    broken = next(name for name in depot.names("") if "/00001/files/" in name)
    depot.write(broken, b"x" + depot.read(broken)[1:])
    with pytest.raises(Damaged, match="is not what was saved"):
        restore(depot, found[1], tmp_path / "all-v9")
    assert not (tmp_path / "all-v9" / "00001").exists()
    with pytest.raises(NoRows):
        verify_rows(tmp_path / "nothing", log)


def test_old_checkpoints_go_and_take_only_their_own_files(place: Place, log: KafkaLog) -> None:
    folder, now = state_folder(Path(place.folder), "a", "all"), SystemClock().now()
    depot = depot_at(f"{place.folder}/depot")
    entries = drafts_of(traffic(60, n_sessions=8))
    for start in range(0, 60, 20):
        append_all(log, entries[start : start + 20])
        folded(place, log)
        save(depot, folder, "all", place.topic, now, keep=2)
    names = depot.names(f"{log.incarnation}")
    assert len([name for name in names if name.endswith(".json")]) == 4
    kept = newest(depot, log.incarnation, "all")
    for partition, checkpoint in kept.items():
        restore(depot, checkpoint, Path(place.folder) / "b" / "all-v1")
        assert rows_at(folder, partition) == rows_at(Path(place.folder) / "b" / "all-v1", partition)


def test_rows_are_rebuilt_beside_their_worker_and_take_their_place(
    place: Place, log: KafkaLog
) -> None:
    append_all(log, drafts_of(traffic(N_ENTRIES, n_sessions=8)))
    folder, data = folded(place, log), Path(place.folder).parent
    before = [rows_at(folder, partition) for partition in range(2)]
    with closing(RocksState(folder)) as wrong:
        store = wrong.store(0)
        position = store.position()
        assert position is not None
        store.commit({b"acme/s0\x00zwrong": b"1"}, position, position)
    with owned(folder) as owner:
        with pytest.raises(Busy, match="of a worker"):
            rebuild(data, "a", "all", log)
        handing_over = threading.Timer(0.5, owner.kill)
        handing_over.start()
        code, said = run(place, *asked(place, "rebuild", "--kafka", "--wait", "30"))
        handing_over.join()
    assert code == 0, said
    done = json.loads(said)
    assert done["records"] == 0  # The first try had folded all of it.
    assert done["waitedSeconds"] > 0
    assert [rows_at(folder, partition) for partition in range(2)] == before
    assert [each.name for each in folder.parent.iterdir()] == [folder.name]


def test_rows_are_rebuilt_in_several_processes_and_after_a_kill_from_where_they_were(
    place: Place, log: KafkaLog
) -> None:
    append_all(log, drafts_of(traffic(6_000, n_sessions=40)))
    data = Path(place.folder).parent
    alone = rebuild(data, "alone", "all", log)
    folder, expected = wiring_folder(data, "a", "all"), wiring_folder(data, "alone", "all")
    words = asked(place, "rebuild", "--kafka", "--processes", "2")
    command = [sys.executable, "-m", "ombus.cli", "--data", str(data), *words]
    n_left = left_midway(command, folder.with_name(f"{folder.name}{BESIDE}"), log)
    assert 0 < n_left < alone.records
    assert not folder.exists()
    code, said = run(place, *words)
    assert code == 0, said
    done = json.loads(said)
    assert (done["partitions"], done["records"], done["lag"]) == (2, n_left, 0)
    for partition in range(2):
        assert rows_at(folder, partition) == rows_at(expected, partition)


def left_midway(command: list[str], beside: Path, log: KafkaLog) -> int:
    """Kill a rebuild that has folded some and not all; return how much is left."""
    partitions = range(log.partitions)
    total = sum(log.end(each) for each in partitions)
    for _ in range(5):  # A fast machine may have folded all before it is looked at.
        shutil.rmtree(beside, ignore_errors=True)
        killed = subprocess.Popen(command)
        until(lambda: folded_in(beside) > 0, 60, "a page is folded")
        killed.kill()
        killed.wait()
        until(lambda: not is_in_use(beside), 30, "its processes have ended with it")
        if folded_in(beside) < total:
            break
    return sum(left_by_partition(beside, log, partitions).values())


def folded_in(folder: Path) -> int:
    """Return the next offsets of all partitions that can be read, together."""
    found = 0
    for partition in partitions_in(folder):
        if (folder / f"{partition:05d}" / "CURRENT").exists():
            with suppress(StoreError), still_rows(folder, partition) as rows:
                position = rows.position()
                found += position.next_offset if position else 0
    return found


@pytest.mark.parametrize(("is_killed", "how"), [(True, "was killed"), (False, "could not go on")])
def test_a_process_that_ends_holds_nobody_up_and_the_operator_is_told(
    place: Place, log: KafkaLog, tmp_path: Path, is_killed: bool, how: str
) -> None:
    append_all(log, drafts_of(traffic(12_000, n_sessions=40)))
    rows, notes = tmp_path / "rows", list[str]()
    left = left_by_partition(rows, log, range(2))
    assert left == {each: log.end(each) for each in range(2)}
    opens = opens_ending_log(place.connection, place.topic, is_killed)
    n_folded = fold_together(rows, opens, left, 2, note=notes.append)
    (note,) = notes
    assert f"a process {how}: what it left of partitions 0 is folded" in note
    assert left_by_partition(rows, log, range(2)) == {0: left[0] - PAGE, 1: 0}
    assert n_folded == PAGE + left[1]


def test_a_log_with_markers_of_transactions_is_folded_rebuilt_and_proved(
    place: Place, log: KafkaLog
) -> None:
    entries = drafts_of(traffic(240, n_sessions=8))
    transact(place.connection, log, entries[:60])
    append_all(log, entries[60:120])
    folder = folded(place, log)
    append_all(log, entries[120:180])
    # What is compared ends amid records, with markers before.
    code, said = run(place, *asked(place, "verify", "--kafka"))
    assert (code, json.loads(said)["lag"]) == (0, 60), said
    transact(place.connection, log, entries[180:], is_aborted=True)
    expected = rows_of(folded(place, log, "b"))
    for words in (("--processes", "1"), ("--processes", "2")):
        code, said = run(place, *asked(place, "rebuild", "--kafka", *words))
        assert code == 0, said
        assert json.loads(said)["records"] == 242
        assert rows_of(folder) == expected
    code, said = run(place, *asked(place, "replica", "--until-caught-up"), "--instance", "warm")
    assert code == 0, said
    assert rows_of(state_folder(Path(place.folder), "warm", "all")) == expected
    code, said = run(place, *asked(place, "verify", "--kafka"))
    assert (code, json.loads(said)["equal"]) == (0, True), said


def rows_of(folder: Path) -> list[dict[bytes, bytes]]:
    return [rows_at(folder, partition) for partition in range(2)]


def test_what_is_folded_already_is_not_counted_again(tmp_path: Path) -> None:
    asked_for: list[Mapping[int, int]] = []

    def together(folder: Path, left: Mapping[int, int], tell: Tell) -> int:
        asked_for.append(left)
        return 0

    with closing(SqliteLog(tmp_path / "log", SystemClock(), partitions=1)) as log:
        entries = drafts_of(traffic(400, n_sessions=4))
        log.append(entries[:300])
        live = wiring_folder(tmp_path, "a", "all")
        beside = live.with_name(f"{live.name}{BESIDE}")
        follow(beside, log, [0], threading.Event(), role="all", ends=True)
        log.append(entries[300:])
        assert rebuild(tmp_path, "a", "all", log, together=together).records == 100
    assert asked_for == [{0: 100}]


def test_many_records_are_worth_a_process_a_core() -> None:
    assert (n_worth(WORTH_PROCESSES - 1), n_worth(WORTH_PROCESSES)) == (1, os.cpu_count())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--processes 2", "--processes is of rows on Kafka: add --kafka"),
        ("--checkpoints depot", "--checkpoints is of rows on Kafka: add --kafka"),
        ("--remove-old", "--remove-old is of rows on Kafka: add --kafka"),
        ("--kafka --remove-old --processes 2", "--processes folds rows, --remove-old only"),
        ("--kafka --remove-old --checkpoints depot", "--checkpoints folds rows, --remove-old"),
    ],
)
def test_options_a_rebuild_would_ignore_are_refused(tmp_path: Path, words: str, said: str) -> None:
    shown = CliRunner().invoke(app, ["--data", str(tmp_path), "rebuild", *words.split()])
    assert shown.exit_code == 2
    assert said in shown.output


@pytest.mark.skipif(N_ROUNDS < 4, reason="make kafka-full")
def test_a_new_fold_version_is_built_beside_the_old_one_and_takes_over_under_load(
    place: Place, log: KafkaLog
) -> None:
    data = Path(place.folder).parent
    feeding = Feed(log, n_sessions=12, seed=5, per_second=150)
    old = Child(Told(place=place), module="tests.kafka.older_version")
    until(lambda: old.status is not None and old.status.n_records > 300, 60, "the old one folds")
    built = rebuild(data, "a", "all", log)
    assert built.partitions == 2
    with pytest.raises(Busy, match="of a worker of an older version"):
        remove_old(data, "a", "all", log)
    serving = Serving([old])
    new = Child(Told(place=place))
    serving.children.append(new)
    until(lambda: new.status is not None and new.status.is_ready, 60, "the new one is ready")
    assert old.stop() == 0
    feeding.end()
    until(lambda: settled(log, [new], 0.3), 60, "all is folded")
    longest = serving.end()
    assert new.stop() == 0
    (gone,) = remove_old(data, "a", "all", log)
    assert (gone.name, gone.exists()) == (f"all-v{older_version.VERSION}", False)
    assert remove_old(data, "a", "all", log) == []
    found = verify_rows(state_folder(Path(place.folder), "a", "all"), log)
    assert (found.is_equal, found.lag) == (True, 0), found.differences
    print(f"\nwithout a worker that answers: {longest * 1_000:.0f} ms at most")


class Serving:
    """Looks again and again whether any worker would answer reads of every partition."""

    def __init__(self, children: list[Child]) -> None:
        self.children, self._longest, self._ending = children, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> float:
        """Return the longest time nobody would have, in seconds."""
        self._ending.set()
        self._thread.join()
        return self._longest

    def _run(self) -> None:
        answered = time.monotonic()
        while not self._ending.wait(0.02):
            now = time.monotonic()
            if any(
                each.is_running and each.status is not None and each.status.is_ready
                for each in self.children
            ):
                answered = now
            self._longest = max(self._longest, now - answered)


@contextmanager
def owned(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """Let another process have the rows open."""
    script = (
        "import pathlib, sys, time; from ombus_streams.engine.kafka.store import RocksState; "
        f"s = RocksState(pathlib.Path({str(folder)!r})); s.store(0); print(1, flush=True); "
        "time.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline()
    try:
        yield owner
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()


def test_a_replica_is_warm_and_its_worker_goes_on_from_there(place: Place, log: KafkaLog) -> None:
    append_all(log, drafts_of(traffic(N_ENTRIES, n_sessions=8)))
    folder, warm = state_folder(Path(place.folder), "warm", "all"), ("--instance", "warm")
    code, said = run(place, *asked(place, "replica", "--until-caught-up"), *warm)
    assert (code, json.loads(said)["lag"]) == (0, 0), said
    stop = threading.Event()
    following = threading.Thread(
        target=lambda: follow(folder, log, [0, 1], stop, role="all"), daemon=True
    )
    following.start()
    until(lambda: lag_of(folder, log) == 0, 30, "the replica has caught up")
    append_all(log, drafts_of(traffic(2 * N_ENTRIES, n_sessions=8))[N_ENTRIES:])
    until(lambda: lag_of(folder, log) == 0, 30, "the replica follows")
    stop.set()
    following.join()
    child = Child(Told(place=place, instance="warm"))
    until(lambda: child.status is not None and child.status.is_ready, 60, "it is promoted")
    assigned = child.events("partitions.assigned")
    assert child.stop() == 0
    assert sum(int(str(each["n_behind"])) for each in assigned) == 0


def test_old_rows_stay_until_the_new_ones_are_there(tmp_path: Path) -> None:
    with closing(SqliteLog(tmp_path / "log", SystemClock(), partitions=1)) as log:
        log.append(drafts_of(traffic(CLOSE_ENOUGH + 100, n_sessions=4)))
        old = wiring_folder(tmp_path, "a", "all").with_name(f"all-v{older_version.VERSION}")
        with closing(RocksState(old)) as state:
            state.store(0)
        with pytest.raises(NotCaughtUp, match="has no rows of partition 0"):
            remove_old(tmp_path, "a", "all", log)
        with closing(RocksState(wiring_folder(tmp_path, "a", "all"))) as state:
            state.store(0)
        with pytest.raises(NotCaughtUp, match="records behind"):
            remove_old(tmp_path, "a", "all", log)
        assert rebuild(tmp_path, "a", "all", log).lag == 0
        assert remove_old(tmp_path, "a", "all", log) == [old]
        assert not old.exists()


def test_rows_are_rebuilt_from_a_checkpoint_and_fold_the_rest(tmp_path: Path) -> None:
    with closing(SqliteLog(tmp_path / "log", SystemClock(), partitions=1)) as log:
        entries = drafts_of(traffic(400, n_sessions=4))
        log.append(entries[:300])
        rebuild(tmp_path, "a", "all", log)
        folder = wiring_folder(tmp_path, "a", "all")
        depot = depot_at(str(tmp_path / "depot"))
        save(depot, folder, "all", "t", SystemClock().now())
        log.append(entries[300:])
        whole = rebuild(tmp_path, "b", "all", log)
        part = rebuild(tmp_path, "c", "all", log, depot=depot)
        assert (whole.from_checkpoint, whole.records) == (0, 401)
        assert (part.from_checkpoint, part.records) == (1, 100)
        assert rows_at(wiring_folder(tmp_path, "c", "all"), 0) == rows_at(
            wiring_folder(tmp_path, "b", "all"), 0
        )


def lag_of(folder: Path, log: KafkaLog) -> int:
    if len(partitions_in(folder)) < log.partitions:
        return -1
    lag = 0
    for partition in range(log.partitions):
        with still_rows(folder, partition) as rows:
            position = rows.position()
        lag += log.end(partition) - (position.next_offset if position else 0)
    return lag
