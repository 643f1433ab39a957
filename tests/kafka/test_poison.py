"""Poison on every partition (case B35): the partition goes on, and each is in the dead letters."""

import asyncio
import inspect
import struct
from collections.abc import Callable, Sequence
from typing import Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition, codec
from aiokafka.consumer import fetcher
from aiokafka.record.util import calc_crc32c
from ombus_schemas.headers import APPENDED_AT
from ombus_schemas.topics import DEAD_LETTERS
from ombus_streams.engine.kafka.connection import Connection, client_options
from ombus_streams.engine.kafka.leniency import LenientRecords
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.unpacking import LogRecords, unpack_to_log_records
from ombus_streams.runtime.dead_letters import NULL_VALUE, draft_of
from ombus_streams.runtime.ports import LogRecord
from ombus_streams.runtime.processor import Processor

from tests.kafka.conftest import Apply, OpenLog
from tests.kafka.logs import declared
from tests.support.engine import MemoryStore
from tests.support.replays import entry_draft

Raw = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

KEY: Final = b"t/s0"
GOOD: Final = entry_draft("s0", 0)
POISON: Final[dict[str, Raw]] = {
    "not json": (KEY, b"{nope", ()),
    "no object": (KEY, b"[1, 2]", ()),
    "not utf-8": (KEY, b"\xff\xfe\x00", ()),
    "empty": (KEY, b"", ()),
    "null value": (KEY, None, (("why", b"tombstone"),)),
    "null key": (None, GOOD.value, ()),
    "key that contradicts": (b"t/another", GOOD.value, ()),
    "key that is none": (b"\x00\xff", GOOD.value, ()),
    "no id": (KEY, b'{"sessionId": "s0", "tenantId": "t", "kind": "message"}', ()),
    "too deep": (KEY, b"[" * 50_000 + b"]" * 50_000, ()),
    "no parent": (KEY, GOOD.value.replace(b'"parentId":null,', b""), ()),
    "oversize": (KEY, b'{"a": "' + b"x" * 3_145_728 + b'"}', ()),
    "null header": (KEY, b"{", (("h", None), ("h", b"2"))),
    "header that is no time": (KEY, b"{", ((APPENDED_AT, b"soon"),)),
}


@pytest.fixture
def poisoned(log: KafkaLog, connection: Connection) -> KafkaLog:
    """Good, poison, good on every partition."""
    sessions = _a_session_per_partition(log)
    for partition, session in enumerate(sessions):
        log.append([entry_draft(session, 0)])
        _put(connection, log.topic, partition, list(POISON.values()))
        log.append([entry_draft(session, 1)])
    return log


def test_every_partition_goes_on_and_every_poison_is_kept_whole(poisoned: KafkaLog) -> None:
    for partition, session in enumerate(_a_session_per_partition(poisoned)):
        store = MemoryStore()
        processor = Processor(store, poisoned, partition)
        while processor.step(5).n_records:
            pass
        assert processor.lag() == 0
        found = processor.session(f"t/{session}".encode())
        assert found.head.arrivals == 2
        assert [found.entry(f"{session}-{number}") is not None for number in range(2)] == [True] * 2

        letters = [draft_of(value) for _, value in store.outbox(100)]
        assert len(letters) == len(POISON)
        for (key, value, headers), letter in zip(POISON.values(), letters, strict=True):
            assert (letter.key, letter.value) == (key or b"", value or b"")
            originals = [(name, content or b"") for name, content in headers]
            assert list(letter.headers[: len(headers)]) == originals
            facts = dict(letter.headers)
            assert facts["__streams.errors.partition"] == str(partition).encode()
            assert facts["ombus-failure-reason"]
            assert (NULL_VALUE in facts) == (value is None)


def test_dead_letters_reach_their_topic_as_they_came(
    poisoned: KafkaLog, apply: Apply, open_log: OpenLog
) -> None:
    dead = declared(f"{poisoned.topic}.dead", 2)
    apply([dead])
    letters = open_log(dead.name)
    store = MemoryStore()
    processor = Processor(store, poisoned, 1)
    while processor.step(100).n_records:
        pass
    sent = [draft_of(value) for _, value in store.outbox(100)]
    letters.append(sent)

    found = [record for record in _all(letters) if record.offset > 0]
    assert sorted((record.key, record.value) for record in found) == sorted(
        (draft.key, draft.value) for draft in sent
    )
    places = {dict(record.headers)["__streams.errors.offset"] for record in found}
    assert places == {str(offset).encode() for offset in range(2, 2 + len(POISON))}


def test_the_topic_of_dead_letters_needs_no_opening(
    connection: Connection, apply: Apply, open_log: OpenLog
) -> None:
    apply([declared(DEAD_LETTERS, 4, like=DEAD_LETTERS)])
    letters = open_log(DEAD_LETTERS)
    (position,) = letters.append([GOOD])
    (record,) = letters.read(position.partition, position.offset, 1)
    assert record.value == GOOD.value


@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
def test_a_header_name_that_is_no_utf8_stops_nobody(
    log: KafkaLog, connection: Connection, compression: str | None
) -> None:
    async def put() -> None:
        producer = AIOKafkaProducer(**client_options(connection), compression_type=compression)
        await producer.start()
        try:
            batch = producer.create_batch()
            for number, name in enumerate(["fine", "STRAY", "fine"]):
                headers = [(name, b"%d" % number), ("null", None)]
                batch.append(timestamp=None, key=KEY, value=b"STRAY", headers=headers)
            batch.close()
            batch._buffer = _with_stray_bytes(bytes(batch._build()), compression)
            await (await producer.send_batch(batch, log.topic, partition=0))
        finally:
            await producer.stop()

    asyncio.run(put())
    _put(connection, log.topic, 0, [(KEY, b"after", ())])
    found = log.read(0, 1, 10)
    assert [record.value for record in found] == [b"STRAY", b"STRAY", b"STRAY", b"after"]
    assert [record.headers[0][0] for record in found[:3]] == ["fine", r"\xff\xfeRAY", "fine"]
    assert found[1].headers[1:] == (("null", b""),)
    assert found[0].at_ms > 1_000_000_000_000
    assert {record.key for record in found} == {KEY}
    assert log.read(0, 2, 1) == found[1:2]


def test_the_library_s_fetcher_unpacks_by_the_name_that_is_replaced() -> None:
    assert "MemoryRecords(" in inspect.getsource(fetcher.Fetcher._proc_fetch_request)
    assert "PartitionRecords(" in inspect.getsource(fetcher.Fetcher._proc_fetch_request)
    assert "self._consumer_record(tp, record)" in inspect.getsource(LogRecords._unpack_records)
    unpack_to_log_records()
    assert fetcher.MemoryRecords is LenientRecords
    assert fetcher.PartitionRecords is LogRecords


def test_a_consumer_that_did_not_ask_gets_the_library_s_records(
    log: KafkaLog, connection: Connection
) -> None:
    async def consumed() -> ConsumerRecord[bytes, bytes]:
        where = TopicPartition(log.topic, 0)
        consumer = AIOKafkaConsumer(**client_options(connection), auto_offset_reset="earliest")
        consumer.assign([where])
        await consumer.start()
        try:
            return await consumer.getone()
        finally:
            await consumer.stop()

    (ours,) = log.read(0, 0, 1)
    theirs = asyncio.run(consumed())
    assert isinstance(theirs, ConsumerRecord)
    assert (theirs.topic, theirs.offset, theirs.timestamp) == (log.topic, ours.offset, ours.at_ms)
    assert (theirs.key, theirs.value) == (ours.key, ours.value)


def _with_stray_bytes(built: bytes, compression: str | None) -> bytes:
    """Spoil the header name of the second record, and make the checksum right again."""
    head, body = built[:61], built[61:]
    unpack: dict[str | None, Callable[[bytes], bytes]] = {
        None: bytes,
        "gzip": codec.gzip_decode,
        "zstd": codec.zstd_decode,
    }
    pack: dict[str | None, Callable[[bytes], bytes]] = {
        None: bytes,
        "gzip": codec.gzip_encode,
        "zstd": codec.zstd_encode,
    }
    plain = unpack[compression](body)
    # The value of the first record, of the second, then the name.
    at = -1
    for _ in range(3):
        at = plain.index(b"STRAY", at + 1)
    spoilt = pack[compression](plain[:at] + b"\xff\xfe" + plain[at + 2 :])
    length = struct.pack(">i", len(head) - 12 + len(spoilt))
    checked = head[21:] + spoilt
    checksum = struct.pack(">I", calc_crc32c(checked))
    return head[:8] + length + head[12:17] + checksum + checked


def _a_session_per_partition(log: KafkaLog) -> list[str]:
    sessions: dict[int, str] = {}
    for number in range(1_000):
        sessions.setdefault(log.partition_of(f"t/p{number}".encode()), f"p{number}")
    return [sessions[partition] for partition in range(log.partitions)]


def _put(connection: Connection, topic: str, partition: int, records: Sequence[Raw]) -> None:
    """Append what no producer of ours would."""

    async def run() -> None:
        producer = AIOKafkaProducer(**client_options(connection), max_request_size=8_000_000)
        await producer.start()
        try:
            for key, value, headers in records:
                await producer.send_and_wait(
                    topic, value, key, partition=partition, headers=list(headers)
                )
        finally:
            await producer.stop()

    asyncio.run(run())


def _all(log: KafkaLog) -> list[LogRecord]:
    return [
        record for partition in range(log.partitions) for record in log.read(partition, 0, 1_000)
    ]
