"""Where partitions end: behind the last record, whatever the broker counts beyond it.

A transaction ends in a marker, an offset that no reader is ever given. A fold goes from record to
record, so one that has them all does not get past the marker, and whoever compared it with the
broker's end would wait for good. So everybody who asks for an end is given this one.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors

_POLL_MS: Final = 20
"""How long a look waits before it asks how far it is: markers wake nobody."""
_WIDER: Final = 8
"""How much further back the next look goes when there was nothing but markers."""


class Ends:
    """The ends of one topic, as its consumers find them."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._seen: dict[int, tuple[int, int]] = {}
        """By partition an end as the broker gave it, and where the records below it end.

        What lies below an end never changes, so one that was looked at is not looked at again.
        """

    def note(self, partition: int, end: int) -> None:
        """Take it from somebody who has read or written it: a record lies right below ``end``."""
        seen = self._seen.get(partition)
        if seen is None or end > seen[0]:
            self._seen[partition] = (end, end)

    async def ask(self, consumer: AIOKafkaConsumer, partitions: Iterable[int]) -> dict[int, int]:
        """Return the ends as they are now; the consumer may stand elsewhere afterwards.

        It must have no group. Every record that was acknowledged before lies below them.
        """
        places = [TopicPartition(self._topic, partition) for partition in partitions]
        given = await consumer.end_offsets(places)
        found = {place: self._seen.get(place.partition) for place in places}
        known = {
            place: seen[1]
            for place, seen in found.items()
            if seen is not None and seen[0] == given[place]
        }
        unknown = {place: given[place] for place in places if place not in known}
        if unknown:
            looked = await _look(consumer, unknown)
            for place, end in looked.items():
                self._seen[place.partition] = (given[place], end)
            known |= looked
        return {place.partition: known[place] for place in places}


async def _look(
    consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return where the last record below each of ``ends`` ends; where there is none, the start."""
    found: dict[TopicPartition, int] = {}
    starts: dict[TopicPartition, int] = {}
    consumer.assign([*ends])
    places, n_offsets = {*ends}, 1
    while places:
        for place in places:
            consumer.seek(place, max(starts.get(place, 0), ends[place] - n_offsets))
            consumer.resume(place)
        found |= await _read_up_to(consumer, {place: ends[place] for place in places})
        places -= found.keys()
        if not places:
            break
        # Right below most ends lies a record: where nothing was found, the start is asked for.
        starts = starts or await consumer.beginning_offsets([*places])
        bare = {place for place in places if starts[place] >= ends[place] - n_offsets}
        found |= {place: starts[place] for place in bare}
        places -= bare
        n_offsets *= _WIDER
    return found


async def _read_up_to(
    consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Read on to ``ends``; return where the last record that came ends, if one did."""
    found: dict[TopicPartition, int] = {}
    waiting = {*ends}
    try:
        while True:
            for place in [*waiting]:
                # The consumer's place and not the last record's: that is what passes markers.
                if await consumer.position(place) >= ends[place]:
                    consumer.pause(place)
                    waiting.discard(place)
            if not waiting:
                return found
            try:
                records = await consumer.getmany(*waiting, timeout_ms=_POLL_MS)
            except kafka_errors.OffsetOutOfRangeError:
                # Retention has taken what lay there.
                for place, start in (await consumer.beginning_offsets([*waiting])).items():
                    consumer.seek(place, max(start, await consumer.position(place)))
                continue
            found |= {place: batch[-1].offset + 1 for place, batch in records.items() if batch}
    finally:
        for place in waiting:
            consumer.pause(place)
