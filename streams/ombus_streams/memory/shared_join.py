"""The memory of a leaf and what others share with it, as one ledger over rows (S19)."""

from collections.abc import Sequence

from ombus_schemas.records import Observation, Reflection

from ombus_streams.memory.head import LeafHead
from ombus_streams.memory.items import name_of
from ombus_streams.memory.ledger import Ledger
from ombus_streams.memory.projection import Projection
from ombus_streams.memory.session import Session
from ombus_streams.memory.shared import SharedMemory, join


def joined(
    session: Session,
    leaf: LeafHead,
    observations: Sequence[Observation],
    reflections: Sequence[Reflection],
    shared: SharedMemory,
) -> Ledger:
    """Return what is visible on the leaf and what is shared; what the leaf has wins, by id.

    What the leaf has dropped, or what is invalidated in its session, is not brought back. Only
    names of shared items are looked up, so the cost follows what is shared.
    """
    rests_on = (
        one for item in shared.reflections for one in (item.id, *item.supporting_observation_ids)
    )
    wanted = dict.fromkeys((*(item.id for item in shared.observations), *rests_on))
    names = {each: name_of(session, leaf, each) for each in wanted}
    invalidated = session.invalid_from().keys() | {
        each
        for each, name in names.items()
        if name.observation and name.observation_state == "invalidated"
    }
    projection = Projection(
        full=Ledger(pruned_ids=frozenset(each for each, name in names.items() if name.pruned)),
        observations=tuple(observations),
        reflections=tuple(reflections),
        dropped_ids=tuple(each for each, name in names.items() if name.dropped),
    )
    return join(projection, shared, frozenset(invalidated))
