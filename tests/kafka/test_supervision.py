"""Delegations on a broker: two supervisors, one killed, handles that answer the same everywhere."""

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ombus.operator.delegations import Delegations
from ombus.settings import ProcessSettings, load_settings
from ombus.wiring_delegations import open_kafka_supervision
from ombus.wiring_worker import WorkerStatus, run_workers
from ombus_schemas.delegating import DelegateRequest
from ombus_schemas.entries import Ownership
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.supervision import (
    ChildFailed,
    DelegationFinished,
    DelegationStarted,
    SupervisionEvent,
)
from ombus_schemas.topics import SUPERVISION, TOPIC_BY_NAME, Topic
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.runtime.ports import Draft
from ombus_streams.runtime.supervisor import KEPT_UNTOLD
from structlog.testing import capture_logs

from tests.gateway.sharing import sharing
from tests.kafka.conftest import Apply
from tests.kafka.logs import declared
from tests.kafka.transactions import transact
from tests.kafka.world import make_place
from tests.supervision.telling import entry_of
from tests.support.brokers import Service

KEY = b"local/boss"
OWNER = Ownership(account_id="local")
TOML = """
[supervision.limits]
activeChildren = 2
[supervision.children.scout]
[supervision.children.lead]
children = ["scout"]
"""
WITHIN_S = 60.0
DONE: dict[str, Any] = {"status": "completed", "output": "found"}


class Deciding:
    """A worker of the role `supervisor`, in a thread of its own."""

    def __init__(
        self, settings: ProcessSettings, connection: Connection, topic: str, name: str
    ) -> None:
        self._loop, self._stop = asyncio.new_event_loop(), asyncio.Event()
        self.statuses: Sequence[WorkerStatus] = ()
        self._failure: BaseException | None = None
        working = run_workers(
            settings, connection, ["supervisor"], name, self._stop, self._watch, topic, topic,
            events=topic, watch_seconds=0.1,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, args=(working,), daemon=True)
        self._thread.start()

    @property
    def is_ready(self) -> bool:
        return any(status.is_ready for status in self.statuses)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    def _watch(self, statuses: Sequence[WorkerStatus]) -> None:
        self.statuses = statuses

    def _run(self, working: Coroutine[None, None, None]) -> None:
        try:
            self._loop.run_until_complete(working)
        except BaseException as error:
            self._failure = error


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture
def settings(tmp_path: Path) -> ProcessSettings:
    file = tmp_path / "ombus.toml"
    file.write_text(TOML)
    return load_settings({"data": str(tmp_path / "data")}, {}, [file])


@contextmanager
def delegating(
    settings: ProcessSettings, connection: Connection, topic: Topic, name: str
) -> Iterator[Delegations]:
    supervision = open_kafka_supervision(settings, connection, name, topic=topic.name)
    with Delegations(settings, supervision=supervision) as opened:
        yield opened


TOLD: list[JsonValue] = []


def after(told: JsonObject) -> None:
    TOLD.append(told["delegationId"])


class AheadClock:
    """Shows a time that is still to come."""

    def __init__(self, ahead: timedelta) -> None:
        self._ahead = ahead

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead


@contextmanager
def deciding_later(
    settings: ProcessSettings, connection: Connection, topic: Topic, name: str, ahead: timedelta
) -> Iterator[Delegations]:
    supervision = open_kafka_supervision(
        settings, connection, name, instance=name, topic=topic.name, clock=AheadClock(ahead)
    )
    with Delegations(settings, supervision=supervision) as opened:
        yield opened


def say(asked: Delegations, kind: Any, id: str, child_id: str = "scout", **said: Any) -> None:
    body: SupervisionEvent = kind(child_id=child_id, delegation_id=id, epoch=1, **said)
    asked.append([entry_of(body, "boss", "local")])


def ask(asked: Delegations, n: int, child_id: str = "scout", **said: Any) -> str:
    request = DelegateRequest(child_id=child_id, input="look", id=f"ask-{n}", **said)
    return asked.delegate(KEY, request, OWNER).delegation_id


def test_whoever_decides_a_delegation_ends_once_and_answers_everywhere(
    settings: ProcessSettings, connection: Connection, topic: Topic, apply: Apply
) -> None:
    apply([topic])

    first, second = (Deciding(settings, connection, topic.name, name) for name in ("one", "two"))
    until(lambda: first.is_ready or second.is_ready, "somebody decides")
    with delegating(settings, connection, topic, "gateway") as asked:
        ids = [ask(asked, n) for n in range(3)]
        until(lambda: asked.get(KEY, ids[2]).state != "requested", "the last one is answered")
        states = [asked.wait(KEY, id, 0).state for id in ids]
        assert states == ["admitted", "admitted", "rejected"]
        say(asked, DelegationStarted, ids[0], holder="h", lease_ms=60_000)
        # No row holds such a number: its record is passed over.
        say(asked, ChildFailed, ids[0], reason="crash", usage={"totalTokens": 10**29})
        say(asked, DelegationFinished, ids[0], status="completed", output="found")
        assert asked.wait(KEY, ids[0], WITHIN_S).output == "found"
        say(asked, DelegationStarted, ids[1], holder="h", lease_ms=60_000)
        first.stop()
        say(asked, ChildFailed, ids[1], reason="crash")
        # Only a supervisor ends it: the one that is left, whatever was its own before.
        assert asked.wait(KEY, ids[1], WITHIN_S).state == "failed"
        fourth = ask(asked, 3)
        until(lambda: asked.get(KEY, fourth).state == "admitted", "the slot is free again")
        assert asked.cancel(KEY, fourth)
        answers = [asked.get(KEY, id) for id in (*ids, fourth)]
        summary, tree = asked.summary(KEY), asked.tree(KEY)
    second.stop()
    with delegating(settings, connection, topic, "another") as asked:
        until(lambda: asked.tree(KEY) == tree, "another machine folds the same")
        assert [asked.get(KEY, id) for id in (*ids, fourth)] == answers
        assert asked.summary(KEY) == summary


def test_whoever_decides_is_ready_and_decides_though_every_partition_ends_in_a_marker(
    settings: ProcessSettings, connection: Connection, topic: Topic, apply: Apply
) -> None:
    apply([topic])
    with closing(KafkaLog(connection, topic.name)) as log:
        strange = [Draft(key=b"local/%d" % n, value=b"{}", headers=()) for n in range(12)]
        assert {log.partition_of(draft.key) for draft in strange} == set(range(log.partitions))
        transact(connection, log, strange)
    deciding = Deciding(settings, connection, topic.name, "one")
    until(lambda: deciding.is_ready, "it decides")
    with delegating(settings, connection, topic, "gateway") as asked:
        id = ask(asked, 1)
        until(lambda: asked.get(KEY, id).state == "admitted", "it is admitted")
    deciding.stop()


def test_an_end_is_told_however_long_after_it_the_only_supervisor_comes_back(
    tmp_path: Path, connection: Connection, topic: Topic, apply: Apply
) -> None:
    TOLD.clear()
    file = tmp_path / "ombus.toml"
    file.write_text(f'[supervision]\nafter = "{__name__}:after"\n{TOML}')
    settings = load_settings({"data": str(tmp_path / "data")}, {}, [file])
    apply([topic])
    with deciding_later(settings, connection, topic, "one", timedelta(0)) as asked:
        id = ask(asked, 1)
        until(lambda: asked.get(KEY, id).state == "admitted", "it is admitted")

    with delegating(settings, connection, topic, "gateway") as asked:
        until(lambda: asked.tree(KEY).nodes != (), "it is folded here, too")
        assert asked.cancel(KEY, id)
    with deciding_later(settings, connection, topic, "one", KEPT_UNTOLD + timedelta(minutes=1)):
        until(lambda: TOLD != [], "it is told")

    assert [id] == TOLD


def test_a_supervisor_that_is_assigned_nothing_knows_it(
    settings: ProcessSettings, connection: Connection, apply: Apply
) -> None:
    topic = declared(f"test.{uuid.uuid4().hex[:16]}", 1)
    apply([topic])

    def is_idle() -> bool:
        return any(
            each["event"] == "partitions.assigned" and not each["partitions"] for each in log
        )

    with capture_logs() as log, ExitStack() as open_ones:
        for name in ("one", "two"):
            open_ones.enter_context(deciding_later(settings, connection, topic, name, timedelta(0)))
        until(is_idle, "one of two has nothing to decide about")


def test_a_gateway_on_kafka_delegates_and_waits(
    kafka: Service, connection: Connection, apply: Apply, tmp_path: Path
) -> None:
    apply([TOPIC_BY_NAME[SUPERVISION]])
    place = make_place(kafka.address, tmp_path / "data", partitions=1)
    session = f"boss-{time.time_ns()}"
    with sharing(place, ("a",), role="projector", toml=TOML) as (gateway,):
        settings = gateway.gateway.host.desk.settings
        deciding = Deciding(settings, connection, SUPERVISION, "decider")
        answer = gateway.post(f"{session}/delegations", {"childId": "scout", "input": "look"})
        assert answer.status_code == 200, answer.text
        id = answer.json()["delegationId"]
        path = f"{session}/delegations/{id}"
        until(lambda: gateway.get(path).json()["state"] == "admitted", "it is admitted")
        children = gateway.gateway.delegating.delegations()
        for kind, said in ((DelegationStarted, {"lease_ms": 60_000}), (DelegationFinished, DONE)):
            body: Any = kind(child_id="scout", delegation_id=id, epoch=1, **said)
            children.append([entry_of(body, session, "local")])
        assert gateway.get(path, waitSeconds=WITHIN_S).json()["output"] == "found"
        summary = gateway.get(f"{session}/delegations/summary").json()
        assert summary["children"] == [{"childId": "scout", "attempts": 1, "outcome": "completed"}]
        deciding.stop()
