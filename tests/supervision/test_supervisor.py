"""The supervisor: what it answers, what it ends, and that a restart changes nothing."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ombus_schemas.ids import session_key
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.supervision import (
    ChildFailed,
    ChildMilestone,
    DelegationError,
    DelegationFinished,
    DelegationHeartbeat,
    DelegationRequested,
    DelegationStarted,
    ParentAlive,
    ParentGone,
    SupervisionEvent,
)
from ombus_streams.engine.embedded.store import StateFile
from ombus_streams.memory.rows import MemoryRows
from ombus_streams.runtime.delegation_fold import DelegationFold, Ended
from ombus_streams.runtime.hooks import HostHooks
from ombus_streams.runtime.supervisor import KEPT_UNTOLD, Supervisor
from ombus_streams.supervision import keys
from ombus_streams.supervision.handle import Handle, child_session_id
from ombus_streams.supervision.parent import claimable, fold, handles_of
from ombus_streams.supervision.summary import ChildSummary, summary

from tests.supervision.office import HOST, SECRET, Office
from tests.supervision.refold import check_fold
from tests.supervision.refold import summed as summed_anew
from tests.supervision.telling import PARENT, TENANT, entry_of, request

Open = Callable[..., Office]
BEFORE = f"{__name__}:before"
AFTER = f"{__name__}:after"
TOLD: list[JsonObject] = []


def before(asked: JsonObject) -> object:
    """Say what the input asks for, as a host's function would."""
    match asked["input"]:
        case "deny":
            return {"allow": False, "reason": f"not today: {SECRET}"}
        case "tell":
            return {"input": f"use {SECRET}"}
        case "raise":
            raise RuntimeError("broken")
        case "lower":
            return {"limits": {"steps": 2}, "input": "changed", "permissions": [{"deny": ["sh"]}]}
        case "yes":
            return "yes"
        case _:
            return True


def after(told: JsonObject) -> None:
    TOLD.append(told)


@pytest.fixture
def open_office(tmp_path: Path) -> Iterator[Open]:
    opened: list[Office] = []

    def open_it(hooks: HostHooks | None = None) -> Office:
        opened.append(Office(tmp_path, HOST, hooks))
        return opened[-1]

    yield open_it
    for each in opened:
        each.close()


def summed(office: Office, session: str = PARENT) -> dict[str, ChildSummary]:
    def children(below: str) -> Iterator[Handle]:
        key = session_key(TENANT, below)
        with office.supervision.rows(key) as rows:
            yield from [*handles_of(rows, key)]

    rows = summary(office.parent(session), children)
    return {row.child_id: row for row in rows}


def test_a_request_is_admitted_and_its_child_session_learns_its_lineage(open_office: Open) -> None:
    office = open_office()
    id = office.ask(child_id="lead")
    handle = office.handle(id)
    assert handle.state == "admitted"
    assert handle.limits["activeChildren"] == 2
    lineage = office.parent(child_session_id(id)).lineage
    assert lineage is not None
    assert (lineage.path, lineage.depth, lineage.delegation_id) == (("lead",), 1, id)


HUGE = 10**29


@pytest.mark.parametrize(
    "said",
    [
        lambda about: DelegationRequested(
            **about, input="x", request_entry_id="ask-1", limits={"tokens": HUGE}
        ),
        lambda about: ChildFailed(**about, epoch=1, reason="x", usage={"totalTokens": HUGE}),
        lambda about: ChildMilestone(**about, turn=1, child_event={"turn": HUGE}),
        lambda about: ChildMilestone(**about, turn=HUGE, child_event={}),
        lambda about: DelegationHeartbeat(**about, epoch=HUGE),
        lambda about: ParentAlive(lease_ms=HUGE),
    ],
)
def test_an_event_that_no_row_holds_is_illegal_and_passed_over(
    open_office: Open, said: Callable[[dict[str, Any]], SupervisionEvent]
) -> None:
    office = open_office()
    id = office.ask()
    office.claim(id)
    before = office.handle(id)

    office.say(said({"child_id": "scout", "delegation_id": id}))

    assert office.handle(id) == before
    assert office.parent().ignored == {"illegal": 1}
    office.restart()
    office.finish(id)
    assert office.handle(id).state == "finished"
    check_fold(office.folder)


def test_a_request_that_no_row_holds_leaves_no_row() -> None:
    rows = MemoryRows()

    assert fold(rows, entry_of(request(input="\ud800", input_bytes=3)), 1) == "illegal"

    assert [*rows.rows] == [keys.parent(session_key(TENANT, PARENT))]
    assert fold(rows, entry_of(request(2)), 1) is None
    (handle,) = handles_of(rows, session_key(TENANT, PARENT))
    assert handle.request_id == "ask-2"


def test_the_end_of_a_lease_is_said_by_its_holder(open_office: Open) -> None:
    office = open_office()
    id = office.ask()
    about: dict[str, Any] = {"child_id": "scout", "delegation_id": id, "epoch": 1}
    office.say(DelegationStarted(**about, holder="A", lease_ms=5_000))
    office.say(DelegationFinished(**about, holder="B", status="completed"))
    office.say(ChildFailed(**about, holder="B", reason="x"))
    office.say(DelegationError(**about, holder="B", error="x"))
    assert office.handle(id).state == "started"
    assert office.parent().ignored == {"stale": 3}
    office.say(DelegationFinished(**about, holder="A", status="completed"))
    assert office.handle(id).state == "finished"


def test_slots_are_taken_by_admission_and_given_back_by_every_end(open_office: Open) -> None:
    office = open_office()
    first, second = office.ask(1), office.ask(2)
    assert office.handle(office.ask(3)).reason == "slots"
    office.cancel(first)
    fourth = office.ask(4)
    assert office.handle(fourth).state == "admitted"
    office.claim(second)
    office.finish(second)
    office.claim(fourth)
    office.fail(fourth)
    assert office.handle(fourth).state == "failed"
    assert office.parent().open_ids == ()
    assert [office.handle(office.ask(n)).state for n in (5, 6, 7)] == [
        "admitted",
        "admitted",
        "rejected",
    ]


def test_requests_that_come_together_share_the_slots_there_are(open_office: Open) -> None:
    office = open_office()
    # More than are answered in one go.
    office.supervision.append([entry_of(request(n)) for n in range(12)])
    office.settle()
    key = session_key(TENANT, PARENT)
    with office.supervision.rows(key) as rows:
        states = [handle.state for handle in handles_of(rows, key)]
    assert states == ["admitted", "admitted", *["rejected"] * 10]


def test_a_task_over_its_time_fails_and_one_that_outlives_its_task_does_not(
    open_office: Open,
) -> None:
    office = open_office()
    task = office.ask(1)
    lasting = office.ask(2, lifetime="session", mode="async")
    office.claim(task)
    office.claim(lasting, lease_ms=300_000)
    office.clock.move(60_000)
    office.settle()
    assert (office.handle(task).state, office.handle(task).reason) == ("failed", "timeout")
    assert office.handle(lasting).state == "started"


def test_a_lost_lease_fails_or_waits_to_be_taken_over_as_asked(open_office: Open) -> None:
    office = open_office()
    failing, waiting = office.ask(1, on_lost="fail"), office.ask(2)
    office.claim(failing)
    office.claim(waiting)
    office.clock.move(5_000)
    office.settle()
    assert office.handle(failing).state == "started"
    office.clock.move(1)
    office.settle()
    assert (office.handle(failing).state, office.handle(failing).reason) == (
        "failed",
        "lease_lost",
    )
    office.claim(waiting, epoch=2)
    office.finish(waiting, epoch=1)
    assert office.handle(waiting).state == "started"
    office.finish(waiting, epoch=2)
    assert office.handle(waiting).state == "finished"
    assert office.parent().ignored == {"stale": 1}


def test_a_heartbeat_keeps_the_lease(open_office: Open) -> None:
    office = open_office()
    id = office.ask(1, on_lost="fail")
    office.claim(id)
    for _ in range(3):
        office.clock.move(4_000)
        office.beat(id)
    assert office.handle(id).state == "started"


def test_the_end_of_a_parent_ends_its_tasks_down_the_tree(open_office: Open) -> None:
    office = open_office()
    lead = office.ask(1, "lead")
    office.claim(lead, lease_ms=60_000)
    below = child_session_id(lead)
    task = office.ask(1, "scout", below)
    lasting = office.ask(2, "scout", below, lifetime="session", mode="async")
    assert office.handle(task, below).depth == 2
    office.cancel(lead)
    office.clock.move(1_000)
    office.settle()
    assert office.handle(task, below).state == "cancelled"
    assert office.handle(task, below).reason == "parent_ended"
    assert office.handle(lasting, below).state == "admitted"
    late = office.ask(3, "scout", below)
    assert office.handle(late, below).state == "cancelled"


def test_a_parent_that_stops_saying_that_it_lives_loses_its_tasks(open_office: Open) -> None:
    office = open_office()
    office.say(ParentAlive(holder="one", lease_ms=3_000))
    id = office.ask(1)
    office.clock.move(3_000)
    office.settle()
    assert office.handle(id).state == "admitted"
    office.clock.move(1)
    office.settle()
    assert (office.handle(id).state, office.handle(id).reason) == ("cancelled", "lease_lost")
    office.say(ParentAlive(holder="two", lease_ms=3_000))
    assert office.handle(office.ask(2)).state == "admitted"
    office.say(ParentGone(reason="done"))
    assert office.parent().open_ids == ()


def test_a_hook_may_deny_lower_and_replace_and_a_broken_one_denies(open_office: Open) -> None:
    office = open_office(HostHooks(BEFORE, None))
    lowered = office.handle(office.ask(1, input="lower"))
    assert (lowered.state, lowered.limits["steps"], lowered.input) == ("admitted", 2, "changed")
    assert [permission.deny for permission in lowered.permissions] == [("sh",)]
    for n, said in enumerate(("deny", "raise", "yes"), 2):
        handle = office.handle(office.ask(n, input=said))
        assert (handle.state, handle.reason) == ("rejected", "hook")
    assert summed(office)["scout"] == ChildSummary(
        child_id="scout", attempts=3, retries=0, failures=0, failure_radius=0, outcome="rejected"
    )


def test_what_a_hook_says_gets_onto_the_log_without_secrets(
    open_office: Open, tmp_path: Path
) -> None:
    office = open_office(HostHooks(BEFORE, None))
    assert office.handle(office.ask(1, input="tell")).input == "use [REDACTED]"
    office.ask(2, input="deny")
    raw = b"".join(path.read_bytes() for path in (tmp_path / "supervision").glob("log.db*"))
    assert b"not today: [REDACTED]" in raw
    assert SECRET.encode() not in raw


def test_the_hook_after_is_told_every_end_also_after_a_restart(open_office: Open) -> None:
    TOLD.clear()
    office = open_office(HostHooks(None, AFTER))
    id = office.ask(1)
    office.cancel(id)
    rejected = office.ask(2, "nobody")
    assert [told["delegationId"] for told in TOLD] == [id, rejected]
    assert [told["state"] for told in TOLD] == ["cancelled", "rejected"]


class Fold(DelegationFold):
    """Counts how often it was asked for what is to be told."""

    n_asked = 0

    def untold(self, limit: int) -> Sequence[tuple[int, Ended]]:
        self.n_asked += 1
        return super().untold(limit)


class Beside:
    """A supervisor with rows of its own beside the one in the office, which decides on command."""

    def __init__(self, office: Office, *, history_ms: int = 0) -> None:
        TOLD.clear()
        log = office.supervision.log
        self.is_mine: bool | None = False
        self._office, self._state = office, StateFile(office.folder / "beside")
        self.folds = [
            Fold(self._state.store(each), log, each, tells=True, history_ms=history_ms)
            for each in range(2)
        ]
        self._supervisor = Supervisor(
            log, dict(enumerate(self.folds)), HOST, HostHooks(None, AFTER), office.clock,
            lambda text: text, lambda _: self.is_mine,
        )  # fmt: skip

    def told(self) -> list[JsonValue]:
        """Fold and act; return what the host was told so far."""
        while self._supervisor.fold():
            pass
        self._office.runner.run(self._supervisor.act())
        return [each["delegationId"] for each in TOLD]

    def close(self) -> None:
        self._state.close()


@pytest.fixture
def open_beside() -> Iterator[Callable[..., Beside]]:
    opened: list[Beside] = []

    def open_it(office: Office, **said: int) -> Beside:
        opened.append(Beside(office, **said))
        return opened[-1]

    yield open_it
    for each in opened:
        each.close()


LONG_MS = KEPT_UNTOLD // timedelta(milliseconds=1)


def test_an_end_is_told_by_whoever_decides_next_if_the_one_before_may_have_died(
    open_office: Open, open_beside: Callable[..., Beside]
) -> None:
    office = open_office()
    beside = open_beside(office)
    old, new = office.ask(1), office.ask(2)
    office.cancel(old)
    office.clock.move(LONG_MS - 1_000)
    office.cancel(new)
    assert beside.told() == []
    office.clock.move(1_000)
    assert beside.told() == []
    beside.is_mine = True
    assert beside.told() == beside.told() == [new]


def test_an_end_is_kept_however_old_until_it_is_known_who_decides(
    open_office: Open, open_beside: Callable[..., Beside]
) -> None:
    office = open_office()
    beside = open_beside(office)
    beside.is_mine = None
    id = office.ask(1)
    office.cancel(id)
    office.clock.move(LONG_MS + 60_000)
    assert beside.told() == []
    beside.is_mine = True
    assert beside.told() == [id]


def test_rows_that_begin_anew_tell_what_has_ended_of_late_alone(
    open_office: Open, open_beside: Callable[..., Beside]
) -> None:
    office = open_office()
    old, new = office.ask(1), office.ask(2)
    office.cancel(old)
    office.clock.move(1_000)
    now_ms = int(office.clock.now().timestamp() * 1_000)
    office.cancel(new)
    beside = open_beside(office, history_ms=now_ms)
    beside.is_mine = True
    assert beside.told() == [new]


def test_rows_that_go_on_tell_everything_that_has_ended_meanwhile(
    open_office: Open, open_beside: Callable[..., Beside]
) -> None:
    office = open_office()
    id = office.ask(1)
    before_it = open_beside(office)
    before_it.told()
    before_it.close()
    office.cancel(id)
    office.clock.move(LONG_MS)
    now_ms = int(office.clock.now().timestamp() * 1_000)
    beside = open_beside(office, history_ms=now_ms)
    beside.is_mine = True
    assert beside.told() == [id]


def test_ends_that_another_is_to_tell_are_looked_at_again_when_they_are_old(
    open_office: Open, open_beside: Callable[..., Beside]
) -> None:
    office = open_office()
    beside = open_beside(office)
    office.cancel(office.ask(1))
    (fold,) = (each for each in beside.folds if not beside.told() and each.untold(1))

    def n_asked(is_mine: bool | None) -> int:
        beside.is_mine, before_it = is_mine, fold.n_asked
        assert beside.told() == []
        return fold.n_asked - before_it

    assert [n_asked(False), n_asked(None)] == [0, 0]
    office.clock.move(LONG_MS)
    assert n_asked(False) == 1
    assert fold.untold(1) == []


def test_a_summary_counts_attempts_retries_failures_and_the_last_radius(
    open_office: Open,
) -> None:
    office = open_office()
    first = office.ask(1, "lead")
    office.claim(first, lease_ms=60_000)
    below = child_session_id(first)
    for n in (1, 2):
        office.claim(office.ask(n, "scout", below), below, lease_ms=60_000)
    assert summed(office)["lead"].outcome == "running"
    office.fail(first)
    assert summed(office)["lead"] == ChildSummary(
        child_id="lead", attempts=1, retries=0, failures=1, failure_radius=2, outcome="failed"
    )
    office.clock.move(1_000)
    office.settle()
    second = office.ask(2, "lead")
    office.claim(second)
    office.fail(second)
    assert summed(office)["lead"] == ChildSummary(
        child_id="lead", attempts=2, retries=1, failures=2, failure_radius=0, outcome="failed"
    )
    third = office.ask(3, "lead")
    office.claim(third)
    office.finish(third)
    assert summed(office)["lead"].outcome == "completed"


def test_what_may_be_claimed_is_found_by_the_child_s_name(open_office: Open) -> None:
    office = open_office()
    id = office.ask(1)
    key = session_key(TENANT, PARENT)

    def found(child_id: str) -> list[str]:
        with office.supervision.rows(key) as rows:
            return [handle.id for _, handle in claimable(rows, child_id)]

    assert (found("scout"), found("lead")) == ([id], [])
    office.cancel(id)
    assert found("scout") == []


def test_a_restart_folds_on_and_decides_nothing_twice(open_office: Open) -> None:
    office = open_office()
    ids = [office.ask(1), office.ask(2, "nobody")]
    before_it = [office.handle(id) for id in ids]
    n_events = sum(office.supervision.log.end(each) for each in range(2))
    office.restart()
    office.settle()
    assert [office.handle(id) for id in ids] == before_it
    assert sum(office.supervision.log.end(each) for each in range(2)) == n_events


def test_the_rows_are_what_a_fresh_fold_of_the_log_gives(open_office: Open, tmp_path: Path) -> None:
    office = open_office()
    lead = office.ask(1, "lead")
    office.claim(lead)
    below = child_session_id(lead)
    office.claim(office.ask(1, "scout", below), below)
    office.ask(2, "nobody")
    office.fail(lead)
    office.clock.move(1_000)
    office.settle()
    assert check_fold(tmp_path) == {"failed": 1, "cancelled": 1, "rejected": 1}
    assert {row.child_id: row for row in summed_anew(tmp_path, b"acme/boss")} == summed(office)
