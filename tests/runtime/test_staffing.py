"""A run that cannot start parks its leaf under a reason, or waits without counting as a failure."""

import msgspec
from ombus_streams.providers.scripted import Scripted
from ombus_streams.runtime.breaker import BreakerPolicy
from ombus_streams.runtime.budget import Caps
from ombus_streams.runtime.dispatch import Dispatch
from ombus_streams.runtime.interpreter import Interpreter
from ombus_streams.runtime.provider import TurnFailed, WorkerName
from ombus_streams.runtime.roster import Configured, Fixed, Opening, ProviderSpec, WorkerSpec
from ombus_streams.runtime.staff import Staff
from ombus_streams.runtime.usage import read_day

from tests.support.engine import KEY, Driver, ManualClock, diligent, worker
from tests.support.sessions import chat, custom, fact, settings

SPEC = {"p": ProviderSpec(kind="openai", api_key_env="KEY")}


def driver(staff: Staff) -> Driver:
    found = Driver()
    found.interpreter = Interpreter(staff, found.clock)
    return found


def parked(found: Driver) -> dict[str, str]:
    session = found.processor.session(KEY)
    return found.scheduler.parked(session, session.head.default_segment)


def written(found: Driver, kind: bytes) -> list[bytes]:
    """Return the records of the log that name ``kind``."""
    return [value for each in found.log.records if (value := each.value) and kind in value]


def opened(opening: Opening) -> Scripted:
    provider = worker(diligent)
    provider.name, provider.model = opening.name, opening.model
    return provider


def test_a_missing_credential_parks_the_leaf_and_fails_its_flush_by_name() -> None:
    environ: dict[str, str] = {}
    spec: dict[WorkerName, WorkerSpec] = {"observer": WorkerSpec(provider="p", model="m")}
    found = driver(Staff(Configured(SPEC, spec, environ, opened)))

    found.tell(
        settings("s", None, observe=50),
        chat("m1", None, tokens=60),
        fact("f", "m1", "flush.requested"),
    )

    assert parked(found) == {"observer": "missing_credentials"}
    (ended,) = written(found, b"om.flush.failed")
    assert b'"reason":"missing_credentials"' in ended

    environ["KEY"] = "k"
    found.clock.at_ms += 60_000
    found.settle()
    assert parked(found) == {}
    assert found.session().leaf(1).n_observations == 1


def test_the_sessions_model_is_that_of_the_views_last_change() -> None:
    found = driver(Staff(Configured(SPEC, {}, {"KEY": "k"}, opened)))
    change = custom("c", None, None, kind="model_change", side=False)
    change = msgspec.structs.replace(change, model={"provider": "p", "model": "gpt-x"})

    found.tell(change, chat("m1", "c", tokens=60), settings("s", "m1", observe=50))

    (record,) = written(found, b"om.observations.recorded")
    assert b'"provider":"p"' in record
    assert b'"model":"gpt-x"' in record


def test_without_a_model_the_leaf_says_so() -> None:
    found = driver(Staff(Configured(SPEC, {}, {"KEY": "k"}, opened)))

    found.tell(settings("s", None, observe=50), chat("m1", None, tokens=60))

    assert parked(found) == {"observer": "missing_model"}


def test_a_provider_that_is_shut_costs_other_sessions_no_attempt() -> None:
    clock = ManualClock()
    away = Scripted(lambda _: [TurnFailed(message="x", code=503)])
    made = Dispatch(clock, breaker=BreakerPolicy(failures=1), random=lambda: 0.0)
    found = driver(Staff.of({"observer": away}))
    found.clock = found.log.clock = clock
    found.interpreter = Interpreter(Staff(_fixed(away), made), clock)
    found.tell(settings("s", None, observe=50), chat("m1", None, tokens=60))
    n_asked = len(away.requests)

    clock.at_ms += 1_000  # the attempt's delay is over, the breaker's is not
    found.settle()

    assert len(away.requests) == n_asked
    assert parked(found) == {}
    assert found.scheduler.next_at_ms() is not None


def test_an_exhausted_budget_parks_until_the_day_ends_and_is_no_loss() -> None:
    clock = ManualClock()
    provider = worker(diligent)
    made = Dispatch(clock, caps=Caps(max_tenant_tokens_per_day=10), random=lambda: 0.0)
    found = Driver(provider)
    found.clock = found.log.clock = clock
    found.interpreter = Interpreter(Staff(_fixed(provider), made), clock)
    found.interpreter.staff.keep_accounts(lambda _: 0, {0: found.store})

    found.tell(settings("s", None, observe=50), chat("m1", None, tokens=60))
    assert parked(found) == {"observer": "budget_exhausted"}
    assert not list(read_day(found.store, "1970-01-01"))


def _fixed(provider: Scripted) -> Fixed:
    return Fixed({"observer": provider, "reflector": provider, "dropper": provider})
