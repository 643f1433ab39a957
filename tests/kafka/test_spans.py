"""Spans over Kafka: the context is in the headers of the record, and catching up leaves none."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")
pytest.importorskip("opentelemetry.sdk", reason="spans need the extra otel")

from ombus.settings import load_settings
from ombus.wiring_worker import WorkerStatus, run_workers
from ombus_schemas.codec import encode, key_of
from ombus_schemas.entries import Entry
from ombus_schemas.headers import headers_of, trace_of
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.runtime.ports import Draft
from ombus_streams.runtime.telemetry import Telemetry

from tests.kafka.world import make_place
from tests.support.brokers import Service
from tests.support.sessions import chat, settings
from tests.telemetry.spans import Recorded, id_of, links_of

WITHIN_S = 60


def drafts(*entries: Entry) -> list[Draft]:
    return [
        Draft(key=key_of(each), value=encode(each), headers=headers_of(each)) for each in entries
    ]


def test_a_worker_links_to_the_appends_of_others_and_not_to_what_it_caught_up_on(
    kafka: Service, tmp_path: Path
) -> None:
    place, fleet, worker = make_place(kafka.address, tmp_path, 1), Recorded(), Recorded()
    log = KafkaLog(place.connection, place.topic, tracer=fleet.tracer)
    said = load_settings({"data": str(tmp_path)}, {}, [])
    old = [settings("set", None, observe=30), chat("m1", None, tokens=20)]
    log.append(drafts(*old))

    async def until(is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not is_so():  # noqa: ASYNC110 - another thread makes it so
                await asyncio.sleep(0.05)

    async def work() -> None:
        stop, seen = asyncio.Event(), list[WorkerStatus]()
        working = asyncio.create_task(
            run_workers(
                said, place.connection, ["all"], "here", stop, lambda now: seen.extend(now),
                place.topic, place.dead_letters, watch_seconds=0.05,
                telemetry=Telemetry(tracer=worker.tracer),
            )
        )  # fmt: skip
        await until(lambda: working.done() or (bool(seen) and seen[-1].is_ready))
        assert worker.names == set()
        await asyncio.to_thread(log.append, drafts(chat("m2", "m1", tokens=20)))
        await until(lambda: working.done() or len(worker.named("fold")) >= 2)
        stop.set()
        await working

    asyncio.run(work())
    records = log.read(0, 1, 10)
    log.close()

    caught_up_on, live = fleet.named("append")
    first, second = worker.named("fold")
    (run,) = worker.named("run observer")
    (recorded,) = worker.named("append")
    assert links_of(first) == links_of(run) == {id_of(live)}
    assert id_of(caught_up_on) not in links_of(run)
    assert recorded.parent is not None
    assert recorded.parent.span_id == id_of(run)[1]
    assert links_of(second) == {id_of(recorded)}
    contexts = [trace_of(record.headers) for record in records]
    parents = [each.traceparent.split("-")[1] for each in contexts if each is not None]
    traces = [id_of(span)[0] for span in (caught_up_on, caught_up_on, live, recorded)]
    assert parents == [f"{trace:032x}" for trace in traces]
    assert msgspec.json.decode(records[-1].value or b"")["id"].startswith("om:observer:")
