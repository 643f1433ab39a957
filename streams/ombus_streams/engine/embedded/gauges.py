"""How far a data folder is folded, and what waits: for whoever serves ``/metrics``."""

from typing import TYPE_CHECKING

from ombus_streams.runtime import gauges
from ombus_streams.runtime.gauges import Standing
from ombus_streams.runtime.metrics import Sample

if TYPE_CHECKING:
    from ombus_streams.engine.embedded.engine import Engine


def samples(engine: "Engine") -> list[Sample]:
    """Return the gauges, whoever folds the folder; what only its owner knows is left out elsewhere.

    May be called from any thread.
    """
    role, now_ms = engine.telemetry.role, int(engine.clock.now().timestamp() * 1_000)
    standings: list[Standing] = []
    age_ms = 0
    for partition in range(engine.log.partitions):
        end = engine.log.end(partition)
        with engine.state.snapshot(partition) as rows:
            row = rows.position()
            age_ms = max(age_ms, gauges.waited_ms(rows, now_ms))
        next_offset = row.next_offset if row else 0
        waiting = engine.log.read(partition, next_offset, 1)
        standings.append(
            Standing(
                partition=partition,
                next_offset=next_offset,
                end=end,
                waits_since_ms=waiting[0].at_ms if waiting else now_ms,
            )
        )
    found = gauges.of_partitions(role, standings, now_ms)
    found += gauges.of_role(role, age_ms, is_ready=engine.has_caught_up)
    return found + gauges.of_schedulers(role, engine.schedulers.values())
