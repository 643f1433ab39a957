"""How far a worker on Kafka is, and what waits there: for whoever serves ``/metrics``."""

from contextlib import suppress

from ombus_streams.engine.kafka.worker import Worker
from ombus_streams.runtime.errors import Closed
from ombus_streams.runtime.gauges import (
    Standing,
    of_partitions,
    of_role,
    of_schedulers,
    waited_ms,
)
from ombus_streams.runtime.metrics import Sample
from ombus_streams.runtime.ports import Clock


class WorkerGauges:
    """Of one worker. May be asked from any thread: what is torn is a number that was true just now.

    The consumer does not say when the record was appended that it fetches next, so how long it has
    waited is told from when nothing waited: the longer ago somebody looked, the more too high.
    """

    def __init__(self, worker: Worker, clock: Clock) -> None:
        self._worker, self._clock = worker, clock
        self._level_ms: dict[int, int] = {}
        """When nothing waited in a partition, as last seen."""

    def samples(self) -> list[Sample]:
        """Return the gauges."""
        status, now_ms = self._worker.status(), int(self._clock.now().timestamp() * 1_000)
        standings: list[Standing] = []
        schedulers, age_ms = [], 0
        for each in status.partitions:
            opened = self._worker.partition(each.partition)
            if opened is None:
                continue
            if each.lag == 0:
                self._level_ms[each.partition] = now_ms
            row = opened.processor.position
            last_ms = row.last_at_ms if row else 0
            standings.append(
                Standing(
                    partition=each.partition,
                    next_offset=each.next_offset,
                    end=each.end,
                    waits_since_ms=max(last_ms, self._level_ms.get(each.partition, 0)),
                )
            )
            if opened.scheduler is not None:
                schedulers.append(opened.scheduler)
            with suppress(Closed):
                age_ms = max(age_ms, waited_ms(opened.processor.store, now_ms))
        role = self._worker.role.name
        return [
            *of_partitions(role, standings, now_ms),
            *of_role(role, age_ms, is_ready=status.is_ready),
            *of_schedulers(role, schedulers),
        ]
