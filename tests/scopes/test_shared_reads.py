"""The seven steps of a shared read, over the logs and rows of one folder."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from ombus_schemas.ids import observation_id
from ombus_schemas.settings import SharedScope
from ombus_streams.engine.embedded.access import AccessFile
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.memory.scopes import EMPTY
from ombus_streams.memory.shared_rows import SharedBranch
from ombus_streams.runtime.errors import RetryableError
from ombus_streams.runtime.grants import (
    Decision,
    GrantSnapshot,
    GrantStore,
    GrantsUnavailable,
    Watermark,
)
from ombus_streams.runtime.metrics import GRANT_DENIALS, Tally
from ombus_streams.runtime.shared_reads import SharedReads

from tests.scopes.fleet import (
    SCOPE,
    Owner,
    SharedFolder,
    SystemClock,
    asking,
    make_sessions,
    marker,
    markers,
    sharing,
)

QUICK = timedelta(milliseconds=20)


class World(SharedFolder):
    """Sessions ``owner``, ``peer``, ``reader`` that have the scope open, nobody granted yet."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, QUICK)
        make_sessions(self.engine, ["owner", "peer", "reader"])
        self.owner = Owner(self.log, "owner")
        self.owner.take()

    def read(self, reader: str = "reader", owner: str = "owner") -> set[str]:
        return markers(self.reads.resolve(asking(self.engine, reader, owner)))

    def last(self) -> Decision:
        return self.access.decisions[-1]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    yield found
    found.close()


def test_a_grant_is_effective_with_its_acknowledgement_and_so_is_a_revocation(
    world: World,
) -> None:
    assert world.read() == set()
    assert world.last().access.reason == "not_granted"
    world.owner.grant("reader")
    assert world.read() == {marker("owner")}
    assert world.last().access.granted
    world.owner.revoke("reader")
    assert world.read() == set()
    assert world.last().access.reason == "not_granted"


def test_a_granted_reader_sees_the_peers_that_are_granted_and_no_other(world: World) -> None:
    world.owner.grant("reader", "peer")
    assert world.read() == {marker("owner"), marker("peer")}
    world.owner.revoke("peer")
    assert world.read() == {marker("owner")}


def test_the_owner_needs_a_grant_to_read_its_peers(world: World) -> None:
    world.owner.grant("peer")
    assert world.read("owner") == set()
    world.owner.grant("owner")
    assert world.read("owner") == {marker("peer")}


def test_every_decision_is_logged_both_ways_with_what_was_shared(world: World) -> None:
    world.owner.grant("reader", "peer")
    world.read()
    access = world.last().access
    assert (access.scope_id, access.owner_session_id) == (SCOPE, "owner")
    assert (access.principal_id, access.reader_session_id) == ("reader", "reader")
    assert (access.granted, access.branches, access.observations) == (True, 2, 2)
    world.read("peer", "reader")
    assert world.last().access.granted is False
    assert len(world.access.decisions) == 2


def reasons(world: World, *declared: SharedScope, opened: bool = True) -> list[str | None]:
    asked = asking(world.engine, "reader", "owner")
    asked = msgspec.structs.replace(
        asked, declared=declared, scope_map=asked.scope_map if opened else EMPTY
    )
    world.reads.resolve(asked)
    return [each.access.reason for each in world.access.decisions[-len(declared) :]]


def test_denials_come_in_their_order(world: World) -> None:
    bad = SharedScope(scope_id="..", owner_session_id="owner")
    good = SharedScope(scope_id=SCOPE, owner_session_id="owner")
    nobody = SharedScope(scope_id=SCOPE, owner_session_id="nobody")
    padded = SharedScope(scope_id=SCOPE, owner_session_id="a/b")
    assert reasons(world, bad, good, opened=False) == ["invalid_config", "not_opened"]
    assert reasons(world, nobody) == ["unavailable"]
    assert reasons(world, padded) == ["unavailable"]
    assert reasons(world, good) == ["not_granted"]


def test_a_scope_the_owner_never_opened_is_unknown(world: World) -> None:
    make_sessions(world.engine, ["elsewhere"])
    world.engine.append(sharing("plain")[:1])
    while world.engine.fold():
        pass
    assert reasons(world, SharedScope(scope_id=SCOPE, owner_session_id="plain")) == [
        "unknown_scope"
    ]


def test_a_grant_for_another_opening_of_the_scope_is_inert(world: World) -> None:
    world.owner.grant("reader", opening="another-branch")
    assert world.read() == set()
    assert world.last().access.reason == "not_granted"


def test_a_grant_to_another_tenant_is_inert(world: World) -> None:
    make_sessions(world.engine, ["reader"], tenant="rival")
    world.owner.grant("rival/reader", "reader")
    foreign = asking(world.engine, "reader", "owner", tenant="rival")
    assert markers(world.reads.resolve(foreign)) == set()
    assert world.last().access.reason == "unavailable"
    assert world.read() == {marker("owner")}


def test_recall_gets_the_sources_of_the_one_memory_it_names(world: World) -> None:
    world.owner.grant("reader", "peer")
    memory_id = observation_id(marker("peer"), ["m1"])
    found = world.reads.resolve(asking(world.engine, "reader", "owner", memory_id=memory_id))
    assert [(each.session_id, each.id) for each in found.entries] == [("peer", "m1")]
    assert world.reads.resolve(asking(world.engine, "reader", "owner")).entries == ()


class Behind:
    """A store that is not where it says it should be."""

    def __init__(self, world: World, lag: int, incarnation: str | None = None) -> None:
        self.world, self.lag, self.incarnation = world, lag, incarnation

    def snapshot(
        self, incarnation: str, partition: int, owner: bytes, scope_id: str
    ) -> GrantSnapshot | None:
        found = self.world.folds.snapshot(incarnation, partition, owner, scope_id)
        assert found is not None
        mark = found.watermark
        behind = Watermark(self.incarnation or mark.incarnation, mark.next_offset - self.lag)
        return GrantSnapshot(behind, found.scope)


class Nothing:
    def snapshot(
        self, incarnation: str, partition: int, owner: bytes, scope_id: str
    ) -> GrantSnapshot | None:
        return None


class Away:
    def snapshot(
        self, incarnation: str, partition: int, owner: bytes, scope_id: str
    ) -> GrantSnapshot | None:
        raise GrantsUnavailable("nobody answers")


@pytest.mark.parametrize("kind", ["behind", "another log", "empty", "away"])
def test_a_store_that_cannot_say_denies(world: World, kind: str) -> None:
    world.owner.grant("reader")
    stores: dict[str, GrantStore] = {
        "behind": Behind(world, 1),
        "another log": Behind(world, 0, "another"),
        "empty": Nothing(),
        "away": Away(),
    }
    store = stores[kind]
    tally = Tally()
    reads = SharedReads(world.log, store, world.branches, world.access, SystemClock(), QUICK, tally)
    assert markers(reads.resolve(asking(world.engine, "reader", "owner"))) == set()
    assert world.last().access.reason == "unavailable"
    assert tally.counted(GRANT_DENIALS) == {("unavailable",): 1}


class NoEnd:
    """A log whose leader does not answer."""

    def __init__(self, log: SqliteLog) -> None:
        self.incarnation, self.partition_of = log.incarnation, log.partition_of

    def end(self, partition: int) -> int:
        raise RetryableError("no leader")


def test_a_log_that_does_not_say_where_it_ends_denies(world: World) -> None:
    world.owner.grant("reader")
    log = NoEnd(world.log)
    reads = SharedReads(log, world.folds, world.branches, world.access, SystemClock(), QUICK)
    assert markers(reads.resolve(asking(world.engine, "reader", "owner"))) == set()
    assert world.last().access.reason == "unavailable"


class Failing:
    """Branches of which one cannot be read."""

    def __init__(self, world: World, failing: bytes) -> None:
        self.world, self.failing = world, failing

    def fetch(self, key: bytes, scope_id: str, memory_id: str | None) -> SharedBranch | None:
        if key == self.failing:
            raise GrantsUnavailable("the owner of the partition is away")
        return self.world.branches.fetch(key, scope_id, memory_id)


def test_a_peer_that_cannot_be_read_is_left_out_and_an_owner_denies(world: World) -> None:
    world.owner.grant("reader", "peer")
    for failing, seen in ((b"acme/peer", {marker("owner")}), (b"acme/owner", set())):
        branches = Failing(world, failing)
        reads = SharedReads(world.log, world.folds, branches, world.access, SystemClock(), QUICK)
        assert markers(reads.resolve(asking(world.engine, "reader", "owner"))) == seen


class GrantsMeanwhile:
    """Branches during whose reading somebody else is granted, and somebody revoked."""

    def __init__(self, world: World) -> None:
        self.world, self.is_done = world, False

    def fetch(self, key: bytes, scope_id: str, memory_id: str | None) -> SharedBranch | None:
        if not self.is_done:
            self.is_done = True
            self.world.owner.revoke("peer")
            self.world.owner.grant("late")
        return self.world.branches.fetch(key, scope_id, memory_id)


def test_peers_are_filtered_by_the_snapshot_that_is_read_last(world: World) -> None:
    make_sessions(world.engine, ["late"])
    world.owner.grant("reader", "peer")
    branches = GrantsMeanwhile(world)
    reads = SharedReads(world.log, world.folds, branches, world.access, SystemClock(), QUICK)
    found = markers(reads.resolve(asking(world.engine, "reader", "owner")))
    assert found == {marker("owner"), marker("late")}


def test_a_wait_of_zero_still_looks_after_the_end_was_asked(world: World) -> None:
    world.owner.grant("reader", "peer")
    zero = timedelta(0)
    behind, meanwhile = Behind(world, 1), GrantsMeanwhile(world)
    for store, seen in ((behind, set()), (world.folds, {marker("owner")})):
        reads = SharedReads(world.log, store, meanwhile, world.access, SystemClock(), zero)
        assert markers(reads.resolve(asking(world.engine, "reader", "owner"))) == seen


class Unwritable:
    def record(self, decisions: object) -> None:
        raise RetryableError("the disk is full")


def test_what_cannot_be_logged_is_not_shared(world: World) -> None:
    world.owner.grant("reader")
    reads = SharedReads(world.log, world.folds, world.branches, Unwritable(), SystemClock(), QUICK)
    assert markers(reads.resolve(asking(world.engine, "reader", "owner"))) == set()


class Counting:
    def __init__(self, world: World) -> None:
        self.world = world
        self.keys: list[bytes] = []

    def fetch(self, key: bytes, scope_id: str, memory_id: str | None) -> SharedBranch | None:
        self.keys.append(key)
        return self.world.branches.fetch(key, scope_id, memory_id)


def test_fifty_branches_are_read_once_each_and_no_log_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = [f"peer{n}" for n in range(48)]
    make_sessions(world.engine, peers)
    world.owner.grant("reader", "peer", *peers)
    world.read()
    asked = asking(world.engine, "reader", "owner")
    branches = Counting(world)
    reads = SharedReads(world.log, world.folds, branches, world.access, SystemClock(), QUICK)
    with monkeypatch.context() as patched:
        # The reads below must not need it; appends of the fixture did.
        for name in ("read", "of_key"):
            patched.delattr(SqliteLog, name)
        found = reads.resolve(asked)
    assert len(markers(found)) == 50
    assert len(branches.keys) == len(set(branches.keys)) == 50


def test_the_access_log_is_asked_by_owner_or_reader_newest_first(
    world: World, tmp_path: Path
) -> None:
    access = AccessFile(tmp_path)
    reads = SharedReads(world.log, world.folds, world.branches, access, SystemClock(), QUICK)
    reads.resolve(asking(world.engine, "reader", "owner"))
    world.owner.grant("reader")
    reads.resolve(asking(world.engine, "reader", "owner"))
    reads.resolve(asking(world.engine, "peer", "reader"))
    access.close()
    access = AccessFile(tmp_path)
    granted = [each.access.granted for each in access.decisions("acme", "owner")]
    assert granted == [True, False]
    assert len(access.decisions("acme", "reader")) == 3
    assert len(access.decisions("acme", "peer")) == 1
    assert len(access.decisions("acme", "reader", limit=1)) == 1
    assert access.decisions("rival", "owner") == []
    assert access.decisions("acme", "owner", "another") == []
    access.close()


class Asked:
    """A store that counts how often it is asked."""

    def __init__(self, world: World) -> None:
        self.world, self.n_asked = world, 0

    def snapshot(
        self, incarnation: str, partition: int, owner: bytes, scope_id: str
    ) -> GrantSnapshot | None:
        self.n_asked += 1
        return self.world.folds.snapshot(incarnation, partition, owner, scope_id)


def test_the_store_is_asked_again_only_if_something_was_appended_meanwhile(world: World) -> None:
    world.owner.grant("reader", "peer")
    for branches, n_asked in ((world.branches, 1), (GrantsMeanwhile(world), 2)):
        store = Asked(world)
        reads = SharedReads(world.log, store, branches, world.access, SystemClock(), QUICK)
        reads.resolve(asking(world.engine, "reader", "owner"))
        assert store.n_asked == n_asked
        assert world.last().access.granted
