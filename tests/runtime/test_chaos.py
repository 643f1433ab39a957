"""Providers at their worst: late, broken, cut, babbling, gone. Memory has no gap for it."""

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncGenerator, Iterator

import msgspec
import pytest
import structlog
from ombus_schemas.codec import decode, key_of
from ombus_schemas.entries import Entry
from ombus_schemas.records import (
    ObservationsDropped,
    ObservationsRecorded,
    ReflectionsRecorded,
    record_of,
)
from ombus_streams.memory.head import Rejections
from ombus_streams.providers.scripted import call
from ombus_streams.runtime.ahead import AheadPolicy
from ombus_streams.runtime.breaker import BreakerPolicy
from ombus_streams.runtime.budget import Caps
from ombus_streams.runtime.dispatch import Dispatch
from ombus_streams.runtime.errors import RuntimeFault
from ombus_streams.runtime.interpreter import Interpreter
from ombus_streams.runtime.provider import (
    ModelProvider,
    ModelRequest,
    ToolCall,
    TurnEvent,
    TurnFailed,
    Usage,
)
from ombus_streams.runtime.roster import Fixed
from ombus_streams.runtime.scheduler import Scheduler, Task
from ombus_streams.runtime.staff import Staff

from tests.runtime.virtual import VirtualTime
from tests.support.engine import Driver, ManualClock, diligent
from tests.support.sessions import chat, fact, settings

N_SESSIONS = int(os.environ.get("OMBUS_CHAOS_SESSIONS", "40"))
N_MESSAGES = 12
PASSING: tuple[str | int, ...] = (429, 500, 503, "overloaded")
MAX_ROUNDS = 20_000
MINUTE_MS = 60_000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of failures are the point; nobody wants to read them."""
    with structlog.testing.capture_logs():
        yield


def key(number: int) -> bytes:
    return f"t/s{number}".encode()


def of(number: int, *entries: Entry) -> list[Entry]:
    """Return the entries as those of another session."""
    return [msgspec.structs.replace(entry, session_id=f"s{number}") for entry in entries]


def session_of(number: int, rng: random.Random, n_messages: int) -> list[Entry]:
    entries = [settings("s", None, observe=60, reflect=30, target=40, compact=400, chunk=120)]
    for at in range(n_messages):
        tokens = rng.choice([12, 25, 60, 150])
        entries.append(chat(f"m{at}", f"m{at - 1}" if at else None, tokens=tokens))
    entries.append(fact("f", f"m{n_messages - 1}", "flush.requested"))
    return of(number, *entries)


class Chaos:
    """A diligent model behind everything that can go wrong."""

    name = model = "chaos"

    def __init__(self, rng: random.Random, clock: ManualClock) -> None:
        self._rng, self._clock = rng, clock
        self.seen: Counter[str] = Counter()

    async def turn(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        self._clock.at_ms += self._rng.randrange(5_000)
        good = [event for event in diligent(request) if isinstance(event, ToolCall)]
        kinds = ("good",) * 8 + (
            "error", "cut", "unknown tool", "no arguments", "garbage", "refused",
            "raised", "usage alone", "forged", "bill",
        )  # fmt: skip
        kind = self._rng.choice(kinds)
        self.seen[kind] += 1
        match kind:
            case "error":
                code = self._rng.choice(PASSING)
                yield TurnFailed(message="x", code=code)
            case "cut":
                for event in good[: len(good) // 2 + 1]:
                    yield event
                yield TurnFailed(message="reset", code="ECONNRESET")
            case "unknown tool":
                yield call("delete_everything")
            case "no arguments":
                yield ToolCall(id="c", name=request.tools[0].name)
            case "garbage":
                yield ToolCall(id="c", name=request.tools[0].name, arguments=[[{"a": None}], 7])
            case "refused":
                yield TurnFailed(message="too long", code=400, is_refusal=True)
            case "raised":
                raise ConnectionResetError("peer")
            case "usage alone":
                yield Usage(input_tokens=10)
            case "forged":
                yield call("record_observation", content="x", sourceEntryIds=["zzz"])
            case "bill":
                yield TurnFailed(message="no money", code="insufficient_quota")
            case _:
                for event in good:
                    yield event
                yield Usage(input_tokens=100, output_tokens=10)


def dispatched(driver: Driver, provider: ModelProvider, time: VirtualTime) -> Dispatch:
    made = Dispatch(
        driver.clock,
        caps=Caps(max_runs=16, max_tenant_runs=16),
        breaker=BreakerPolicy(max_in_flight=8),
        random=random.Random(1).random,
        sleep=time.sleep,
    )
    roster = Fixed({"observer": provider, "reflector": provider, "dropper": provider})
    driver.interpreter = Interpreter(Staff(roster, made), driver.clock)
    return made


def tiling_faults(driver: Driver, number: int) -> list[str]:
    """Return where the spans that are recorded leave a gap or overlap."""
    reached: str | None = None
    faults: list[str] = []
    for record in driver.log.records:
        if record.key != key(number) or record.value is None:
            continue
        found = record_of(decode(record.value))
        if isinstance(found, ObservationsRecorded):
            if found.base != reached:
                faults.append(f"s{number}: {found.base} follows {reached}")
            reached = found.covers_up_to_id
    return faults


def unexplained_rejections(driver: Driver, number: int) -> list[str]:
    """Return the leaves that rejected anything but drops which a newer reflection had overtaken.

    Both runs may be under way at once; the drop then names the reflection before. Nothing else
    that is decided from the state, one writer at a time, may turn out not to fit it.
    """
    reflections: list[str] = []
    n_overtaken = 0
    for record in driver.log.records:
        if record.key != key(number) or record.value is None:
            continue
        entry = decode(record.value)
        match record_of(entry):
            case ReflectionsRecorded():
                reflections.append(entry.id)
            case ObservationsDropped(base=base):
                n_overtaken += base in reflections[:-1]
    session = driver.processor.session(key(number))
    found = [(segment, session.leaf(segment).rejections) for segment in session.segments()]
    return [
        f"s{number}/{segment}: {rejections}, {n_overtaken} drops overtaken"
        for segment, rejections in found
        if rejections != Rejections(stale_base=n_overtaken)
    ]


def unserved(driver: Driver, number: int) -> list[str]:
    """Return the leaves that are owed something and nobody says why not."""
    session = driver.processor.session(key(number))
    found: list[str] = []
    for segment in session.segments():
        leaf = session.leaf(segment)
        parked = driver.scheduler.parked(session, segment)
        is_owed = leaf.threshold_ordinal > leaf.coverage_ordinal or leaf.flushes
        if is_owed and not all(parked.values()):
            found.append(f"s{number}/{segment}: parked {parked}")
        if is_owed and not parked:
            found.append(f"s{number}/{segment}: {leaf.flushes}")
    return found


@pytest.mark.parametrize("ahead", [None, AheadPolicy()], ids=["as owed", "ahead"])
def test_chaos_leaves_no_gap_and_every_leaf_is_served_or_says_why(
    ahead: AheadPolicy | None,
) -> None:
    rng = random.Random(7)
    driver = Driver()
    chaos = Chaos(rng, driver.clock)
    dispatched(driver, chaos, _Instant(driver.clock))
    driver.scheduler = Scheduler(driver.processor, ahead=ahead)
    waiting = [session_of(number, rng, N_MESSAGES) for number in range(N_SESSIONS)]
    while any(waiting):
        driver.append(*(entries.pop(0) for entries in waiting if entries))
        driver.settle(1_000_000)
    for _ in range(MAX_ROUNDS):
        if not any(is_due(driver, number) for number in range(N_SESSIONS)):
            break
        driver.clock.at_ms = max(driver.clock.at_ms + 100, driver.scheduler.next_at_ms() or 0)
        driver.settle(1_000_000)

    assert set(chaos.seen) >= {"error", "cut", "refused", "raised", "unknown tool"}
    for number in range(N_SESSIONS):
        assert tiling_faults(driver, number) == []
        assert unserved(driver, number) == []
        assert unexplained_rejections(driver, number) == []


def is_due(driver: Driver, number: int) -> bool:
    return driver.processor.session(key(number)).head.n_due > 0


class _Instant(VirtualTime):
    """Sleeping is time that passes at once: for runs one after the other."""

    async def sleep(self, seconds: float) -> None:
        self.clock.at_ms += round(seconds * 1_000)


N_WAITING = int(os.environ.get("OMBUS_STORM_SESSIONS", "100"))
LATENCY = 0.5
AWAY_MS = (2_000, 2_000 + MINUTE_MS)


class Away:
    """Answers after half a second, but for a minute in which it is gone."""

    name = model = "away"

    def __init__(self, time: VirtualTime) -> None:
        self._time, self.start_ms = time, 0
        self.asked_ms: list[int] = []

    async def turn(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        at_ms = self._time.clock.at_ms - self.start_ms
        self.asked_ms.append(at_ms)
        if AWAY_MS[0] <= at_ms < AWAY_MS[1]:
            yield TurnFailed(message="away", code=503)
            return
        await self._time.sleep(LATENCY)
        for event in diligent(request):
            assert isinstance(event, ToolCall)
            yield event


async def _world(driver: Driver, time: VirtualTime, until_ms: int) -> None:
    """Run what is due as an engine does, side by side, until the virtual time is over."""
    running: set[asyncio.Task[None]] = set()

    async def perform(task: Task) -> None:
        session = driver.processor.session(task.slot[0])
        try:
            entry = await driver.interpreter.perform(session, task.effect)
        except RuntimeFault as error:
            driver.scheduler.failed(task.slot, task.effect, error, driver.clock.at_ms)
            return
        driver.deliver(task, entry)

    while driver.clock.at_ms < until_ms:
        driver.catch_up()
        if not any(is_due(driver, number) for number in range(N_WAITING)):
            break
        running = {each for each in running if not each.done()}
        running |= {asyncio.create_task(perform(task)) for task in driver.due(16 - len(running))}
        await time.pass_ms(100)
    for each in running:
        each.cancel()


def test_nobody_falls_upon_a_provider_that_was_away_for_a_minute() -> None:
    driver = Driver()
    time = VirtualTime(driver.clock)
    away = Away(time)
    dispatched(driver, away, time)
    for number in range(N_WAITING):
        driver.append(*of(number, settings("s", None, observe=10), chat("m0", None, tokens=20)))
    away.start_ms = driver.clock.at_ms

    asyncio.run(_world(driver, time, away.start_ms + 240_000))

    per_second = Counter(at_ms // 1_000 for at_ms in away.asked_ms)
    gone = range(AWAY_MS[0] // 1_000, AWAY_MS[1] // 1_000)
    back = AWAY_MS[1] // 1_000
    assert back <= max(per_second)
    histogram = {second: per_second[second] for second in range(back - 3, back + 30)}
    assert sum(per_second[second] for second in gone) <= 80, histogram
    first = next(second for second in range(back, back + 120) if per_second[second])
    assert first - back <= 60, histogram
    assert per_second[first] <= 4, histogram  # one asks; its run's second turn, and one or two more
    assert max(per_second[s] for s in range(back, back + 120)) <= 8 / LATENCY + 8, histogram
    for number in range(N_WAITING):
        assert driver.processor.session(key(number)).leaf(1).n_pending == 0
        assert tiling_faults(driver, number) == []


def test_keys_are_those_of_the_sessions() -> None:
    assert key_of(of(3, chat("m", None))[0]) == key(3)
