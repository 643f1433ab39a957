"""The scripted model says what it was told to."""

import asyncio

from ombus_schemas.settings import WorkerLimits
from ombus_streams.providers.scripted import Scripted, call
from ombus_streams.runtime.workers import run_observer

from tests.support.ledgers import AT, message


def test_after_its_script_every_turn_is_empty() -> None:
    provider = Scripted([[call("record_observation", content="x", sourceEntryIds=["e1"])]])
    run = run_observer(provider, [message("e1", "x")], (), AT, "s1", WorkerLimits())

    assert len(asyncio.run(run).items) == 1
    assert [request.n_calls for request in provider.requests] == [0, 1]


def test_a_function_of_the_request_may_answer() -> None:
    provider = Scripted(
        lambda asked: [
            call("record_observation", content=item.id, sourceEntryIds=[item.id])
            for item in (asked.material.sources if asked.n_calls == 0 else ())
        ],
        model="marker",
    )
    run = run_observer(provider, [message("e1", "x")], (), AT, "s1", WorkerLimits())

    assert [item.content for item in asyncio.run(run).items] == ["e1"]
    assert (provider.name, provider.model) == ("scripted", "marker")
