"""The client that appends to Kafka itself: once, in order, also while the brokers are away.

``OMBUS_TEST_BUS_DOWN_SECONDS`` makes the outage as long as one wants.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from ombus import Client, message
from ombus.client.errors import BadRequest, Conflict, EntryRejected
from ombus.client.http import HttpTransport
from ombus.dev import kafka as dev_kafka
from ombus.direct import Direct
from ombus.settings import load_settings
from ombus.wiring_kafka import Connection, apply_topics, open_kafka_log
from ombus_schemas.codec import decode
from ombus_streams.engine.kafka.log import KafkaLog

from tests.gateway.sharing import Shared, sharing
from tests.kafka.world import Place, make_place
from tests.support.brokers import Service

DOWN_SECONDS: Final = float(os.environ.get("OMBUS_TEST_BUS_DOWN_SECONDS", "20"))
N_SESSIONS: Final = 20
N_EACH: Final = 40
WITHIN: Final = 120.0


@pytest.fixture(scope="module")
def place(kafka: Service, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(kafka.address, tmp_path_factory.mktemp("direct"))


@pytest.fixture(scope="module")
def gateway(place: Place) -> Iterator[Shared]:
    with sharing(place, ("a",)) as found:
        yield found[0]


def direct(place: Place, gateway: Shared | None = None, toml: Path | None = None) -> Client:
    settings = load_settings({}, {}, [] if toml is None else [toml])
    reads = None if gateway is None else HttpTransport(gateway.url)
    return Client(transport=Direct(place.connection, settings, reads, topic=place.topic))


def ids_of(log: KafkaLog, session: str) -> list[str]:
    return [decode(each.value or b"").id for each in log.of_key(f"local/{session}".encode())]


@pytest.fixture
def log(place: Place) -> Iterator[KafkaLog]:
    found = open_kafka_log(place.connection, place.topic)
    yield found
    found.close()


def test_a_host_reads_its_own_writes_and_follows_them(place: Place, gateway: Shared) -> None:
    async def main() -> None:
        async with direct(place, gateway) as client:
            session = client.session("own")
            for number in range(20):
                await session.append(message("user", f"word-{number}"))
                context = await session.context(recent=1)
                assert f"word-{number}" in context.blocks[-1].content
            async with session.run():
                assert len((await session.branches()).branches) == 1
            async for event in session.tail("start"):
                assert event.kind == "entry"
                break

    asyncio.run(main())


def test_who_comes_later_goes_on_at_the_newest_entry(place: Place, gateway: Shared) -> None:
    async def main() -> None:
        for number, reads in enumerate((gateway, None, gateway)):
            async with direct(place, reads) as client:
                await client.session("later").append(message("user", "hello", id=f"m{number}"))
        async with direct(place, gateway) as client:
            session = client.session("later")
            # This handle has written nothing: what it reads at least is the end of the log.
            await session.append(message("user", "last", id="m3"))
            found = (await session.entries()).entries
            assert [each["parentId"] for each in found] == [None, "m0", "m1", "m2"]

    asyncio.run(main())


def test_an_id_is_on_the_log_once_whoever_sends_it(
    place: Place, gateway: Shared, log: KafkaLog
) -> None:
    async def main() -> None:
        statuses = []
        for reads in (None, gateway):
            async with direct(place, reads) as client:
                for name in ("m1", "m1", "m2"):
                    done = await client.session("again").append(message("user", "x", id=name))
                    statuses.append(done.status)
        assert statuses == ["appended", "duplicate", "appended", *["duplicate"] * 3]

    asyncio.run(main())
    assert ids_of(log, "again") == ["m1", "m2"]


def test_admission_is_the_gateway_s(place: Place, gateway: Shared) -> None:
    async def main() -> None:
        async with direct(place, gateway) as client:
            session = client.session("judged")
            with pytest.raises(EntryRejected):
                await session.append({"id": "om:observer:x", "kind": "event"})
            with pytest.raises(EntryRejected):
                await session.append({"kind": "custom", "data": {"type": "om.flush.requested"}})
            await session.append(message("user", "root", id="root"))
            await session.append(message("user", "one", id="one", expectedLeaf="root"))
            with pytest.raises(Conflict):
                await session.append(message("user", "two", id="two", expectedLeaf="root"))

    asyncio.run(main())


def test_a_session_begins_with_the_settings_of_its_host(
    place: Place, log: KafkaLog, tmp_path: Path
) -> None:
    file = tmp_path / "ombus.toml"
    file.write_text("[observational-memory.observation]\nmessageTokens = 1234\n")

    async def main() -> None:
        for number in range(2):
            async with direct(place, toml=file) as client:
                await client.session("set").append(message("user", "hi", id=f"m{number}"))

    asyncio.run(main())
    first, *rest = ids_of(log, "set")
    assert first.startswith("settings.changed:")
    assert rest == ["m0", "m1"]


def test_without_a_gateway_nothing_is_read(place: Place) -> None:
    async def main() -> None:
        async with direct(place) as client:
            await client.session("unread").append(message("user", "hello"))
            with pytest.raises(BadRequest, match="needs a gateway"):
                await client.session("unread").context()

    asyncio.run(main())


def test_a_url_that_is_none_of_ours_is_refused() -> None:
    with pytest.raises(BadRequest, match="no URL"):
        Client("amqp://localhost")
    with pytest.raises(BadRequest, match="kafka:// alone"):
        Client("http://localhost", gateway="http://localhost")


PUBLISHER = """
import asyncio, sys
from pathlib import Path
from ombus import Client, message

async def main(url, spool, n_sessions, n_each, pause):
    async with Client(url, spool=Path(spool), spool_after_seconds=0.1) as client:
        async def publish(s):
            for n in range(n_each):
                done = await client.session(f"s{s}").append(
                    message("user", f"{s} {n}", id=f"s{s}-m{n}")
                )
                print(done.status, flush=True)
                await asyncio.sleep(pause)
        await asyncio.gather(*(publish(s) for s in range(n_sessions)))
        while True:
            try:
                await client.spooled()
                break
            except Exception as error:
                print(type(error).__name__, flush=True)
                await asyncio.sleep(0.5)

url, spool, n_sessions, n_each, pause = sys.argv[1:]
asyncio.run(main(url, spool, int(n_sessions), int(n_each), float(pause)))
"""


def test_brokers_away_and_the_host_killed_everything_is_there_once_and_in_order(
    kafka: Service, tmp_path: Path
) -> None:
    """``kafka`` is asked for so that this is skipped where no broker can be."""
    cluster = dev_kafka.up(tmp_path / "kafka")
    try:
        connection = Connection(bootstrap_servers=cluster.bootstrap)
        apply_topics(connection)
        pause = DOWN_SECONDS / N_EACH / 2
        command = (
            sys.executable, "-c", PUBLISHER, f"kafka://{cluster.bootstrap}",
            str(tmp_path / "spool"), str(N_SESSIONS), str(N_EACH), str(pause),
        )  # fmt: skip
        (broker,) = cluster.brokers
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
            assert first.stdout is not None
            before = [first.stdout.readline().strip() for _ in range(3 * N_SESSIONS)]
            cluster.process(broker.node_id).kill()
            down_since = time.monotonic()
            while (status := first.stdout.readline().strip()) != "spooled":
                before.append(status)
            time.sleep(DOWN_SECONDS / 10)
            first.kill()
        assert set(before) == {"appended"}
        # The host comes back and, knowing nothing, publishes everything once more.
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second:
            time.sleep(max(0.0, DOWN_SECONDS - (time.monotonic() - down_since)))
            down = time.monotonic() - down_since
            cluster.start(broker.node_id)
            cluster.wait()
            said, _ = second.communicate(timeout=WITHIN + DOWN_SECONDS)
        assert second.returncode == 0
        assert "spooled" in said
        log = open_kafka_log(connection)
        found: dict[str, list[str]] = defaultdict(list)
        for s in range(N_SESSIONS):
            found[f"s{s}"] = ids_of(log, f"s{s}")
        log.close()
        wanted = {f"s{s}": [f"s{s}-m{n}" for n in range(N_EACH)] for s in range(N_SESSIONS)}
        assert found == wanted
        print(
            f"brokers away {down:.0f} s, the host killed once: {N_SESSIONS * N_EACH:,} entries of "
            f"{N_SESSIONS} sessions on the log, each once and in order; "
            f"{said.split().count('spooled'):,} were spooled by the second host"
        )
    finally:
        dev_kafka.down(tmp_path / "kafka", wipe=True)
