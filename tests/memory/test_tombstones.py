"""S20."""

from ombus_streams.memory.tombstones import tombstone

from tests.support.ledgers import dropped, memory, observation, observed, reflected, reflection


def test_what_the_ids_hit_is_dropped_once_in_ledger_order() -> None:
    entries = [
        observed("c", observation(2, sources=("e2",)), observation(1), observation(3)),
        dropped("d", 3),
        reflected("r", reflection(9)),
    ]

    assert tombstone(entries, ["e1", memory(2), memory(1)]) == {
        "type": "om.observations.dropped",
        "observationIds": [memory(2), memory(1)],
    }
    assert tombstone(entries, [memory(9), memory(3)]) is None
