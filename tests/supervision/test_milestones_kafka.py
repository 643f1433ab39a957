"""The milestones role on a real broker: the same events as anywhere, whoever has the partitions."""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from ombus_schemas.codec import encode, key_of
from ombus_schemas.entries import Entry
from ombus_schemas.supervision import ChildEventsClosed, supervision_event_of
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.milestones import MilestonesWorker
from ombus_streams.engine.kafka.store import RocksState
from ombus_streams.runtime.deriver import Deriver
from ombus_streams.runtime.ports import Draft

from tests.kafka.transactions import transact
from tests.kafka.world import Place, make_place, until
from tests.supervision.children import call, delegation, first, result, spoken, told
from tests.support.brokers import Service
from tests.support.engine import ManualClock, MemoryLog, MemoryStore

N_CHILDREN = 12
HUGE = 10**29
"""No row holds it: who says it is not told, and stops nobody."""
WAIT_S = 90.0


def transcripts() -> list[Entry]:
    """Return the sessions of children, one entry of each after the other."""
    sessions: list[list[Entry]] = []
    for n in range(N_CHILDREN):
        said = delegation(request=f"ask-{n}", parent=f"p{n % 3}")
        sessions.append(
            [
                first(said),
                told(said, "e0t", "turn_started", turn=HUGE),
                spoken(said, "e1", "assistant", call("c1")),
                spoken(said, "e2", "tool", result("c1", result="fine")),
                told(said, "e3", "agent_finished", status="completed"),
            ]
        )
    nobody = first(msgspec.structs.replace(delegation(request="ask-x"), depth=HUGE))
    return [nobody, *(entry for entries in zip(*sessions, strict=True) for entry in entries)]


def drafts(entries: Sequence[Entry]) -> list[Draft]:
    return [Draft(key=key_of(entry), value=encode(entry)) for entry in entries]


def events_on(log: KafkaLog) -> dict[str, Entry]:
    """Return the events, each once, by their ids."""
    found: dict[str, Entry] = {}
    for partition in range(log.partitions):
        for record in log.read(partition, 0, 10_000):
            entry = msgspec.json.decode(record.value or b"", type=Entry)
            if supervision_event_of(entry) is not None:
                found.setdefault(entry.id, entry)
    return found


def expected(entries: Sequence[Entry]) -> dict[str, Entry]:
    clock = ManualClock()
    log, heard = MemoryLog(clock), MemoryLog(clock)
    log.append(drafts(entries))
    deriver = Deriver(MemoryStore(), log, heard, 0)
    while deriver.step():
        pass
    found = [msgspec.json.decode(record.value or b"", type=Entry) for record in heard.records]
    return {entry.id: entry for entry in found}


@pytest.fixture
def place(kafka: Service, tmp_path: Path) -> Place:
    return make_place(kafka.address, tmp_path, partitions=3)


def n_closed(log: KafkaLog) -> int:
    events = events_on(log).values()
    return sum(isinstance(supervision_event_of(event), ChildEventsClosed) for event in events)


def test_members_share_the_partitions_and_one_goes_on_where_another_stopped(place: Place) -> None:
    entries = transcripts()
    half = len(entries) // 2

    async def run(log: KafkaLog, events: KafkaLog) -> None:
        stops = {name: asyncio.Event() for name in ("one", "two")}
        states = {name: RocksState(Path(place.folder) / name) for name in stops}
        members = {
            name: MilestonesWorker(
                name, place.connection, log, events, states[name], group_prefix=place.topic
            )
            for name in stops
        }
        running = {
            name: asyncio.create_task(each.run(stops[name])) for name, each in members.items()
        }

        async def until(n: int) -> None:
            async with asyncio.timeout(WAIT_S):
                while await asyncio.to_thread(lambda: len(events_on(events))) < n:
                    for task in running.values():
                        assert not task.done() or task.result() is None
                    await asyncio.sleep(0.2)

        try:
            await asyncio.to_thread(log.append, drafts(entries[:half]))
            await until(len(expected(entries[:half])))
            stops["one"].set()
            await running["one"]
            await asyncio.to_thread(log.append, drafts(entries[half:]))
            await until(len(expected(entries)))
            assert members["two"].status().is_ready
        finally:
            for stop in stops.values():
                stop.set()
            await asyncio.gather(*running.values())
            for state in states.values():
                state.close()

    with_events = make_place(place.bootstrap, Path(place.folder), partitions=3)
    log = KafkaLog(place.connection, place.topic)
    events = KafkaLog(place.connection, with_events.topic)
    try:
        asyncio.run(run(log, events))
        assert events_on(events) == expected(entries)
        assert n_closed(events) == N_CHILDREN
    finally:
        log.close()
        events.close()


def test_a_member_is_ready_where_every_partition_ends_in_a_marker(place: Place) -> None:
    said = drafts(transcripts())

    async def run(log: KafkaLog) -> None:
        stop, state = asyncio.Event(), RocksState(Path(place.folder) / "one")
        member = MilestonesWorker(
            "one", place.connection, log, log, state, group_prefix=place.topic
        )
        running = asyncio.create_task(member.run(stop))
        try:
            await asyncio.to_thread(until, lambda: member.status().is_ready, WAIT_S, "it is ready")
        finally:
            stop.set()
            await running
            state.close()

    with closing(KafkaLog(place.connection, place.topic)) as log:
        assert {log.partition_of(draft.key) for draft in said} == set(range(log.partitions))
        transact(place.connection, log, said)
        asyncio.run(run(log))
