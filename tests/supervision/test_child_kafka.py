"""Children on a broker: a group shares the delegations of a name, leases are judged by the log."""

import asyncio
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from ombus.client.child import ChildTask, Offer, Work
from ombus.client.children import Ended, serve_children
from ombus.operator.delegations import Delegations
from ombus.settings import ProcessSettings, load_settings
from ombus.wiring_child import kafka_bus
from ombus.wiring_delegations import open_kafka_supervision
from ombus.wiring_worker import run_workers
from ombus_schemas.delegating import DelegateRequest
from ombus_schemas.entries import Entry, Ownership
from ombus_schemas.ids import session_key
from ombus_schemas.supervision import delegation_of
from ombus_streams.engine.kafka.log import KafkaLog

from tests.kafka.world import Place, make_place
from tests.supervision.test_child import TIMEOUT_S
from tests.support.brokers import Service

KEY = session_key("local", "boss")
OWNER = Ownership(account_id="local")
TOML = """
[supervision.limits]
activeChildren = 16
[supervision.children.scout]
"""
N_ASKED = 6


@pytest.fixture
def place(kafka: Service, tmp_path: Path) -> Place:
    return make_place(kafka.address, tmp_path, partitions=3)


def settings_in(folder: Path) -> ProcessSettings:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ombus.toml").write_text(TOML)
    return load_settings({"data": str(folder / "data")}, {}, [folder / "ombus.toml"])


async def look(task: ChildTask) -> str:
    await task.publish({"role": "assistant", "content": f"looked at {task.input}"})
    return task.input


def test_a_group_works_on_what_a_parent_asked_and_each_is_done_once(place: Place) -> None:
    events = make_place(place.bootstrap, Path(place.folder)).topic
    settings = settings_in(Path(place.folder))

    async def child(name: str, work: Work, ended: list[Ended], stop: asyncio.Event) -> None:
        def watch(seen: Offer | Ended) -> None:
            if isinstance(seen, Ended):
                ended.append(seen)

        async with kafka_bus(
            settings, place.connection, "scout", name, topic=place.topic, events=events
        ) as bus:
            await serve_children(bus, "scout", work, slots=2, stop=stop, watch=watch)

    def ask_and_wait() -> list[str]:
        supervision = open_kafka_supervision(settings, place.connection, "parent", topic=events)
        with Delegations(settings, supervision=supervision) as parent:
            asked = [
                parent.delegate(
                    session_key("local", f"boss-{n}"),
                    DelegateRequest(child_id="scout", input=str(n)),
                    OWNER,
                )
                for n in range(N_ASKED)
            ]
            ids = [each.delegation_id for each in asked]
            for n, each in enumerate(ids):
                answer = parent.wait(session_key("local", f"boss-{n}"), each, 4 * TIMEOUT_S)
                assert (answer.state, answer.output) == ("finished", str(n))
            return ids

    async def run() -> tuple[list[str], list[Ended]]:
        stop, ended = asyncio.Event(), list[Ended]()
        running = [
            asyncio.create_task(
                run_workers(
                    settings,
                    place.connection,
                    ["supervisor"],
                    "s",
                    stop,
                    lambda _: None,
                    place.topic,
                    place.dead_letters,
                    events=events,
                )
            ),
            *(asyncio.create_task(child(name, look, ended, stop)) for name in ("one", "two")),
        ]
        try:
            ids = await asyncio.to_thread(ask_and_wait)
        finally:
            stop.set()
            await asyncio.gather(*running)
        return ids, ended

    ids, ended = asyncio.run(run())

    finished = [each.offer.delegation_id for each in ended if each.standing == "finished"]
    assert sorted(finished) == sorted(ids)
    log = KafkaLog(place.connection, place.topic)
    try:
        records = [*log.of_key(session_key("local", f"{ids[0]}-session"))]
        entries = [msgspec.json.decode(each.value or b"", type=Entry) for each in records]
        said = delegation_of(entries[0])
        assert said is not None
        assert said.delegation_id == ids[0]
        assert [entry.kind for entry in entries] == ["message", "message", "event"]
    finally:
        log.close()
