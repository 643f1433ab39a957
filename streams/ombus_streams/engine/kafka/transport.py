"""Faust's membership with whole batches: each partition's records go to ``Batches`` at once.

Faust's own path costs 200 microseconds a record. Here it keeps what it is good at (the group,
assignments, offset commits, the consumer's thread), and three things are replaced: where reading
starts (the position row of the store, never the committed offset), who gets the records, and which
offset is declared. Offsets are committed for monitoring only: nothing is ever read from them.

It relies on private methods of faust-streaming 0.15.3; ``tests/kafka/test_faust_signatures.py``
pins them.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, cast

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka import errors as kafka_errors
from faust.exceptions import ConsumerNotStarted
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from faust.types.app import AppT
from mode.types import ServiceT

from ombus_streams.engine.kafka.assignor import assignor_of
from ombus_streams.engine.kafka.standing import Standing
from ombus_streams.engine.kafka.unpacking import to_log_records, unpack_to_log_records
from ombus_streams.runtime.ports import LogRecord

POLL_SECONDS: Final = 0.5
"""How long one look for records waits where there are none."""
FETCH_WAIT_MS: Final = 250
"""How long a broker may hold a fetch of partitions that have no news. Meanwhile nothing else is
fetched from it: with Faust's 1,500 a partition far behind, among others at their ends, waits."""

_log = structlog.get_logger("ombus.transport")


class Batches(Protocol):
    """Who folds the partitions of one topic. Everything is called on the app's event loop."""

    @property
    def topic(self) -> str: ...

    @property
    def instance(self) -> str: ...

    async def assigned(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """Open partitions; return where to read each from. Those left out are not read yet."""
        ...

    async def revoked(self, partitions: Iterable[int]) -> None:
        """Close partitions: nothing of them is written after this returns."""
        ...

    async def fold(self, partition: int, records: Sequence[LogRecord]) -> int | None:
        """Fold records; return the next offset once everything below it is durable.

        ``None``: the partition is not open, so nothing was done.
        """
        ...

    async def passed_over(self, partition: int) -> None:
        """Records of the partition were fetched and not handed over: read on from its position."""
        ...

    async def lost(self, partition: int) -> None:
        """The log does not have the offset that was asked for: compare it with the store."""
        ...


def batches_of(app: AppT) -> Batches:
    """Return who folds for this app, which is a ``BatchApp``."""
    return cast("Batches", getattr(app, "batches"))  # noqa: B009 - faust's AppT has no such name


def standing_of(app: AppT) -> Standing:
    """Return how this app, which is a ``BatchApp``, stands in its group."""
    return cast("Standing", getattr(app, "standing"))  # noqa: B009 - as above


class BatchConsumer(driver.Consumer):
    """A consumer for one topic whose records go to ``app.batches``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._durable: dict[TP, int] = {}
        self._passed_over: set[TP] = set()
        self._after: dict[TP, int] = {}
        """Behind the last record that was handed over, else where reading began."""
        self._markers_up_to: dict[TP, int] = {}
        """An end as a fetch saw it, up to which nothing but markers came after that."""
        super().__init__(*args, **kwargs)

    @property
    def _batches(self) -> Batches:
        return batches_of(self.app)

    async def perform_seek(self) -> None:
        """Open what is assigned and read on from its position rows; called once a rebalance."""
        batches = self._batches
        mine = {tp for tp in self.assignment() if tp.topic == batches.topic}
        offsets = await batches.assigned(sorted(tp.partition for tp in mine))
        self.pause_partitions(tp for tp in mine if tp.partition not in offsets)
        await self._seek_to(offsets)

    async def read_from(self, offsets: Mapping[int, int]) -> None:
        """Read partitions on from these offsets: they were opened late, or a batch has failed."""
        assigned = {tp.partition for tp in self.assignment() if tp.topic == self._batches.topic}
        await self._seek_to({each: offsets[each] for each in offsets if each in assigned})

    def end_of(self, partition: int) -> int | None:
        """Return where the records end as the last fetch saw it, if there was one."""
        tp = TP(self._batches.topic, partition)
        with suppress(kafka_errors.IllegalStateError, ConsumerNotStarted):
            end = self.highwater(tp)
            return self._after.get(tp) if self._markers_up_to.get(tp) == end else end
        return None

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Close the partitions first: after that Faust may take its time."""
        batches = self._batches
        await batches.revoked(tp.partition for tp in revoked if tp.topic == batches.topic)
        for tp in revoked:
            for each in (self._durable, self._after, self._markers_up_to):
                each.pop(tp, None)
        await super().on_partitions_revoked(revoked)

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Report nothing: it looks at per-record bookkeeping that batches do without."""

    async def _seek_to(self, offsets: Mapping[int, int]) -> None:
        places = {TP(self._batches.topic, each): offset for each, offset in offsets.items()}
        if places:
            await self.seek_wait(places)
            self._after |= places
            for tp in places:
                self._markers_up_to.pop(tp, None)
            self.resume_partitions(places)

    async def _drain_messages(self, fetcher: ServiceT) -> None:
        try:
            while not (self.should_stop or fetcher.should_stop):
                await self._go_back()
                try:
                    found, active = await self._wait_next_records(POLL_SECONDS)
                except kafka_errors.NoOffsetForPartitionError:
                    # Nothing was committed yet; the position row says where to read from.
                    continue
                except kafka_errors.OffsetOutOfRangeError as error:
                    for tp in error.args[0]:
                        await self._batches.lost(tp.partition)
                    continue
                for tp, records in (found or {}).items():
                    if self.flow_active and (active is None or tp in active):
                        await self._hand_over(TP(tp.topic, tp.partition), records)
                    else:
                        self._passed_over.add(TP(tp.topic, tp.partition))
                await self._pass_markers(found or {})
                await asyncio.sleep(0)
        except kafka_errors.ConsumerStoppedError:
            if not self.app.should_stop:
                raise
        except asyncio.CancelledError:
            if not self.app.should_stop:
                raise

    async def _go_back(self) -> None:
        """Read again what was fetched while a rebalance, already past its seek, held the flow."""
        if not self.flow_active:
            await self.wait(self.can_resume_flow)  # type: ignore[arg-type]  # as Faust waits
        while self._passed_over:
            await self._batches.passed_over(self._passed_over.pop().partition)

    async def _hand_over(self, tp: TP, records: Sequence[LogRecord]) -> None:
        self._after[tp] = records[-1].offset + 1
        next_offset = await self._batches.fold(tp.partition, records)
        if next_offset is not None:
            self._durable[tp] = next_offset
            self._read_offset[tp] = next_offset - 1

    async def _pass_markers(self, found: Mapping[TP, Any]) -> None:
        """Note where nothing but markers came up to the end of the last fetch.

        Only here is it known that nothing that was read waits to be handed over.
        """
        for tp, after in [*self._after.items()]:
            if tp in found or tp in self._passed_over or not self.flow_active:
                continue
            with suppress(kafka_errors.IllegalStateError):  # It was revoked meanwhile.
                end = self.highwater(tp)
                if end is not None and end > after and end != self._markers_up_to.get(tp):
                    offset = await self.position(tp)
                    is_past = offset is not None and offset >= end
                    if is_past and self._after.get(tp) == after:  # Nobody went back meanwhile.
                        self._markers_up_to[tp] = end

    def _filter_tps_with_pending_acks(self, topics: Any = None) -> Iterator[TP]:
        return iter(tuple(self._durable))

    def _new_offset(self, tp: TP) -> int | None:
        return self._durable.get(tp)

    def _new_consumer_thread(self) -> "BatchThread":
        return BatchThread(self, loop=self.loop, beacon=self.beacon)


class BatchThread(driver.AIOKafkaConsumerThread):
    """The consumer's thread, with our assignor in place of Faust's, and the log's records."""

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        unpack_to_log_records()
        consumer = super()._create_worker_consumer(transport)
        consumer._value_deserializer = to_log_records
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        consumer._partition_assignment_strategy = [assignor_of(standing_of(self.app))]
        return consumer

    async def on_start(self) -> None:
        await super().on_start()
        if self._consumer is not None:
            standing_of(self.app).watch(self._consumer)


class BatchTransport(driver.Transport):
    Consumer = BatchConsumer
