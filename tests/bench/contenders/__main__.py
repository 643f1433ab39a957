"""``python -m tests.bench.contenders JSON``: one contender, once; its seconds as JSON."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from ombus_streams.engine.kafka.admission import RunLimits
from ombus_streams.engine.kafka.app import MAX_POLL_RECORDS, Membership, create_app
from ombus_streams.engine.kafka.areas import POSITION, ROWS, position_bytes
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.partition import MAX_BATCH_BEHIND
from ombus_streams.engine.kafka.records import KafkaRecord, log_record
from ombus_streams.engine.kafka.rocks import Memory
from ombus_streams.engine.kafka.roles import ROLES
from ombus_streams.engine.kafka.store import RocksState, RocksStore
from ombus_streams.engine.kafka.worker import Worker, WorkerOptions
from ombus_streams.memory.head import FOLD_VERSION
from ombus_streams.providers.extractive import Extractive
from ombus_streams.runtime.interpreter import Interpreter
from ombus_streams.runtime.ports import LogRecord, PositionRow
from ombus_streams.runtime.processor import Processor
from rocksdict import WriteBatch

from tests.bench.contenders.counting import Stopwatch, Told, count_batch, counted, row_bytes
from tests.kafka.world import Place, SystemClock

WITHIN_SECONDS: Final = 600
COMMIT_SECONDS: Final = 1.0
Fold = Callable[[int, list[KafkaRecord]], None]


def position_at(told: Told, partition: int, offset: int) -> PositionRow:
    return PositionRow(
        incarnation=told.topic,
        partition=partition,
        next_offset=offset,
        fold_version=FOLD_VERSION,
        last_hash="",
        last_at_ms=0,
    )


async def bare(told: Told, watch: Stopwatch, fold: Fold) -> None:
    """A plain client and nothing else: batches of partitions, offsets declared once a second."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=told.bootstrap,
        group_id=told.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=Membership().max_fetch_bytes,
        max_poll_records=MAX_POLL_RECORDS,
    )
    consumer.subscribe([told.topic])
    await consumer.start()
    declared, durable = time.monotonic(), dict[TopicPartition, int]()
    try:
        while watch.n_left > 0:
            for place, found in (await consumer.getmany(timeout_ms=500)).items():
                watch.begin()
                records = cast("list[KafkaRecord]", found)
                fold(place.partition, records)
                durable[place] = records[-1].offset + 1
                watch.done(len(records))
            if time.monotonic() - declared > COMMIT_SECONDS:
                await consumer.commit(durable)
                declared = time.monotonic()
    finally:
        await consumer.stop()


async def bare_counting(told: Told, watch: Stopwatch) -> None:
    memory, folder = Memory(), Path(told.folder)
    databases = {n: memory.open(folder / str(n)) for n in range(told.partitions)}
    sessions: dict[int, dict[bytes, list[int]]] = {n: {} for n in databases}

    def fold(partition: int, records: list[KafkaRecord]) -> None:
        rows = sessions[partition]
        for record in records:
            count_batch(rows, record.key, record.value)
        batch = WriteBatch(raw_mode=True)
        for key in {record.key for record in records if record.key}:
            batch.put(ROWS + key, row_bytes(rows.get(key, [0, 0])))
        at = position_at(told, partition, records[-1].offset + 1)
        batch.put(POSITION, position_bytes(at))
        databases[partition].write(batch)

    await bare(told, watch, fold)
    for each in databases.values():
        each.close()


class Named(msgspec.Struct):
    """What must be read of an entry to know where its id is written."""

    id: str


async def bare_writing(told: Told, watch: Stopwatch) -> None:
    """Consume, and write two rows an entry: its bytes by place, and its place by id.

    Any store that finds an entry by its id holds as much; a recovery writes more. Of an entry the
    id alone is decoded, and no id is looked up.
    """
    entries = msgspec.json.Decoder(Named)

    def rows(record: KafkaRecord) -> Iterator[tuple[bytes, bytes]]:
        key, value = record.key or b"", record.value or b""
        place = record.offset.to_bytes(8, "big")
        yield key + place, value
        if value:
            yield key + entries.decode(value).id.encode(), place

    await _writing(told, watch, rows)


async def bare_raw(told: Told, watch: Stopwatch) -> None:
    """Consume, and write each record as it is: nothing of it could be found again by its id."""

    def rows(record: KafkaRecord) -> Iterator[tuple[bytes, bytes]]:
        yield (record.key or b"") + record.offset.to_bytes(8, "big"), record.value or b""

    await _writing(told, watch, rows)


async def _writing(
    told: Told, watch: Stopwatch, rows: Callable[[KafkaRecord], Iterable[tuple[bytes, bytes]]]
) -> None:
    memory, folder = Memory(), Path(told.folder)
    databases = {n: memory.open(folder / str(n)) for n in range(told.partitions)}

    def fold(partition: int, records: list[KafkaRecord]) -> None:
        batch = WriteBatch(raw_mode=True)
        for record in records:
            for key, value in rows(record):
                batch.put(ROWS + key, value)
        at = position_at(told, partition, records[-1].offset + 1)
        batch.put(POSITION, position_bytes(at))
        databases[partition].write(batch)

    await bare(told, watch, fold)
    for each in databases.values():
        each.close()


async def bare_real(told: Told, watch: Stopwatch) -> None:
    """The real fold in the plain client; a role differs in what it decides, which is later."""
    place = place_of(told)
    log = await asyncio.to_thread(KafkaLog, place.connection, place.topic)
    state = RocksState(Path(told.folder))
    processors = {
        number: await asyncio.to_thread(
            Processor, state.store(number), log, number, topic=log.topic
        )
        for number in range(told.partitions)
    }

    def fold(partition: int, records: list[KafkaRecord]) -> None:
        found = [log_record(record.partition, record) for record in records]
        for start in range(0, len(found), MAX_BATCH_BEHIND):
            processors[partition].fold(found[start : start + MAX_BATCH_BEHIND])

    await bare(told, watch, fold)
    state.close()
    log.close()


class Counting:
    """The counting fold behind our transport; its state is our store."""

    instance: Final = "bench"

    def __init__(self, told: Told, watch: Stopwatch, ended: asyncio.Event) -> None:
        self.topic, self._told, self._watch, self._ended = told.topic, told, watch, ended
        self._state = RocksState(Path(told.folder))
        self._stores: dict[int, RocksStore] = {}
        self._positions: dict[int, PositionRow | None] = {}
        self._rows: dict[int, dict[bytes, list[int]]] = {}

    async def assigned(self, partitions: Sequence[int]) -> Mapping[int, int]:
        for number in partitions:
            store = self._stores[number] = self._state.store(number)
            self._positions[number] = store.position()
            self._rows[number] = {}
        positions = {number: self._positions[number] for number in partitions}
        return {number: row.next_offset if row else 0 for number, row in positions.items()}

    async def revoked(self, partitions: Iterable[int]) -> None:
        for number in partitions:
            if number in self._stores:
                self._stores.pop(number).close()

    async def fold(self, partition: int, records: Sequence[LogRecord]) -> int | None:
        self._watch.begin()
        rows = self._rows[partition]
        for record in records:
            count_batch(rows, record.key, record.value)
        changed = {
            key: row_bytes(rows.get(key, [0, 0]))
            for key in {record.key for record in records if record.key}
        }
        at = position_at(self._told, partition, records[-1].offset + 1)
        self._stores[partition].commit(changed, self._positions[partition], at)
        self._positions[partition] = at
        if self._watch.done(len(records)):
            self._ended.set()
        return at.next_offset

    async def passed_over(self, partition: int) -> None: ...

    async def lost(self, partition: int) -> None: ...

    def close(self) -> None:
        self._state.close()


async def ours_counting(told: Told, watch: Stopwatch) -> None:
    ended = asyncio.Event()
    batches = Counting(told, watch, ended)
    app = create_app("bench", place_of(told).connection, batches, group_prefix=told.group)
    await app.start()
    await asyncio.wait_for(ended.wait(), WITHIN_SECONDS)
    await app.stop()
    batches.close()


async def ours_real(told: Told, watch: Stopwatch) -> None:
    """The worker as it ships, from nothing until it has caught up; it begins no run of a model."""
    place, clock = place_of(told), SystemClock()
    log = await asyncio.to_thread(KafkaLog, place.connection, place.topic)
    dead = await asyncio.to_thread(KafkaLog, place.connection, place.dead_letters)
    state, stop, provider = RocksState(Path(told.folder)), asyncio.Event(), Extractive()
    worker = Worker(
        ROLES[told.name.removeprefix("ours-")],
        WorkerOptions(instance="bench", group_prefix=told.group, limits=RunLimits(max_runs=0)),
        place.connection,
        log,
        dead,
        state,
        Interpreter({"observer": provider, "reflector": provider, "dropper": provider}, clock),
        clock,
    )
    running = asyncio.create_task(worker.run(stop))
    n_seen = 0
    while watch.n_left > 0 and not running.done():
        await asyncio.sleep(0.002)
        n_records = worker.status().n_records
        if n_records > n_seen:
            watch.begin()
            watch.done(n_records - n_seen)
            n_seen = n_records
    stop.set()
    await running
    state.close()
    log.close()
    dead.close()


async def stock(told: Told, watch: Stopwatch) -> None:
    """An agent with a table, as its documentation shows it: one event, one row."""
    import faust

    ended = asyncio.Event()
    app: Any = faust.App(
        told.group,
        broker=f"kafka://{told.bootstrap}",
        store="rocksdb://?driver=rocksdict",
        datadir=told.folder,
        topic_partitions=told.partitions,
        topic_replication_factor=1,
        topic_disable_leader=True,
        value_serializer="raw",
        web_enabled=False,
    )
    topic = app.topic(told.topic, key_type=bytes, value_type=bytes, value_serializer="raw")
    table = app.Table("counts", key_type=bytes, value_type=bytes, partitions=told.partitions)

    async def count(stream: Any) -> None:
        async for key, value in stream.items():
            watch.begin()
            table[key] = counted(value, table.get(key))
            if watch.done(1):
                ended.set()

    app.agent(topic)(count)
    await app.start()
    await asyncio.wait_for(ended.wait(), WITHIN_SECONDS)
    await app.stop()


def place_of(told: Told) -> Place:
    return Place(
        bootstrap=told.bootstrap,
        topic=told.topic,
        dead_letters=told.dead_letters,
        folder=told.folder,
        partitions=told.partitions,
    )


CONTENDERS: Final[dict[str, Callable[[Told, Stopwatch], Awaitable[None]]]] = {
    "bare-counting": bare_counting,
    "bare-raw": bare_raw,
    "bare-writing": bare_writing,
    "bare-real": bare_real,
    "ours-counting": ours_counting,
    "ours-observer": ours_real,
    "ours-projector": ours_real,
    "stock": stock,
}


async def main(said: str) -> None:
    told = msgspec.json.decode(said, type=Told)
    watch = Stopwatch(told.n_records)
    await asyncio.wait_for(CONTENDERS[told.name](told, watch), WITHIN_SECONDS)
    print(msgspec.json.encode(watch.read()).decode(), flush=True)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    asyncio.run(main(sys.argv[1]))
