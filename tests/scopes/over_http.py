"""The grant history over HTTP: gateways that share a log, a granter, and readers at any of them.

``python -m tests.scopes.over_http --reads N`` runs it on servers of its own.
"""

import argparse
import asyncio
import math
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import httpx
import msgspec
import structlog
from ombus.dev import kafka as dev_kafka
from ombus_schemas.codec import encode, key_of
from ombus_schemas.entries import Entry
from ombus_schemas.topics import GRANTS
from ombus_streams.engine.granter import Granter
from ombus_streams.engine.kafka import topics
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.redis.connection import RedisConnection
from ombus_streams.engine.redis.maps import RedisMaps
from ombus_streams.runtime.ports import Draft

from tests.gateway.sharing import JOIN_SECONDS, spawned
from tests.gateway.sharing import sharing as gateways_of
from tests.kafka.logs import declared
from tests.kafka.world import Place, make_place
from tests.scopes.fleet import SCOPE, SystemClock, marker, sharing
from tests.scopes.history import NEVER, Act, Change, History, Read
from tests.scopes.servers import Server, wait_until
from tests.scopes.telling import Telling, summed_up
from tests.scopes.traffic import Reading, Traffic

TENANT = "local"
NAMES = ("g0", "g1", "g2")


class HttpSeat(msgspec.Struct, frozen=True, kw_only=True):
    """See ``traffic``: readers that ask any gateway."""

    urls: Sequence[str]
    names: Sequence[str]

    @contextmanager
    def open(self) -> Iterator[Reading]:
        threads, chance = threading.local(), random.Random(1)

        def read(reader: str, owner: str) -> Read:
            client, began = _client(threads, chance.choice(self.urls)), time.monotonic_ns()
            answer = client.get(f"/v1/sessions/{reader}/view")
            ended = time.monotonic_ns()
            shown = answer.json()["view"]["text"] if answer.status_code == 200 else ""
            others = set(self.names) - {reader}
            seen = frozenset(name for name in others if marker(name) in shown)
            reason = None if seen else "nothing" if answer.status_code == 200 else "unavailable"
            return Read(owner, reader, began, ended, seen, reason)

        yield read


class HttpStand:
    """One owner, some readers, and gateways that answer for them."""

    def __init__(self, urls: list[str], readers: list[str], n_seats: int) -> None:
        self.history, self.owners, self.readers = History(), ["o0"], readers
        self.seats = [HttpSeat(urls=urls, names=["o0", *readers])] * n_seats
        self._urls, self._chance, self._threads = urls, random.Random(2), threading.local()

    def change(self, act: Act, owner: str, *principals: str) -> None:
        began, offset, ended = self.history.begin(owner), None, NEVER
        changed = principals
        try:
            body = {"scopeId": SCOPE, "principals": list(principals)}
            client = _client(self._threads, self._chance.choice(self._urls))
            answer = client.post(f"/v1/sessions/{owner}/scopes/{act}", json=body)
            if answer.status_code == 200:
                position = answer.json().get("position")
                if position is None:  # They held it all, and before this began.
                    changed = ()
                else:
                    offset, ended = int(position.rpartition(":")[2]), time.monotonic_ns()
        except httpx.TransportError:
            pass  # It may have happened, and nobody was told.
        finally:
            changes = [Change(act, owner, each, began, ended, offset) for each in changed]
            self.history.end(owner, changes)


def _client(threads: threading.local, url: str) -> httpx.Client:
    """Return the client that this thread has for a gateway."""
    known: dict[str, httpx.Client] = threads.__dict__.setdefault("clients", {})
    if url not in known:
        known[url] = httpx.Client(base_url=url, timeout=30)
    return known[url]


Gateways = Callable[[Place, str, RedisConnection], AbstractContextManager[list[str]]]
"""Serves a place, with its grants, by gateways of these ``NAMES``; their addresses."""


@contextmanager
def here(place: Place, grants: str, redis: RedisConnection) -> Iterator[list[str]]:
    """Serve by gateways in this process."""
    with gateways_of(place, NAMES, role="projector", grants=grants, redis=redis) as found:
        yield [each.url for each in found]


@contextmanager
def apart(place: Place, grants: str, redis: RedisConnection) -> Iterator[list[str]]:
    """Serve by gateways in processes of their own."""
    config = Path(place.folder) / "redis.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f'[redis]\nurl = "{redis.url}"\n')
    os.environ["OMBUS_CONFIG"] = str(config)
    with ExitStack() as opened:
        opened.callback(os.environ.pop, "OMBUS_CONFIG")
        found = [
            opened.enter_context(spawned(place, name, "--grants", grants, role="projector"))
            for name in NAMES
        ]

        def is_shared() -> bool:
            served = [number for each in found for number in each.served()]
            return sorted(served) == list(range(place.partitions))

        wait_until(is_shared, JOIN_SECONDS)
        yield [each.url for each in found]


@contextmanager
def stand(
    bootstrap: str, redis_url: str, folder: Path, gateways: Gateways = here, n_seats: int = 1
) -> Iterator[HttpStand]:
    """Return once all of it answers."""
    place, redis = make_place(bootstrap, folder), RedisConnection(url=redis_url)
    grants = f"{place.topic}.grants"
    asyncio.run(topics.apply(place.connection, SystemClock(), [declared(grants, 4, GRANTS)]))
    readers = ["r0", "r1", "r2"]
    everybody = ["o0", *readers]
    _make(place, everybody)
    with _granter(place, grants, redis), gateways(place, grants, redis) as urls:

        def is_there() -> bool:
            answers = [httpx.get(f"{urls[0]}/v1/sessions/{name}/view") for name in everybody]
            return all(
                marker(name) in answer.text for name, answer in zip(everybody, answers, strict=True)
            )

        wait_until(is_there, 60)
        yield HttpStand(urls, readers, n_seats)


def _make(place: Place, names: list[str]) -> None:
    log = KafkaLog(place.connection, place.topic)
    try:
        for name in names:
            entries = sharing(name, tenant=TENANT)
            entries.append(_declaring(name))
            log.append([Draft(key=key_of(each), value=encode(each)) for each in entries])
    finally:
        log.close()


def _declaring(name: str) -> Entry:
    body = {
        "type": "om.settings.changed",
        "settings": {"sharedScopes": {SCOPE: {"ownerSessionId": "o0"}}},
    }
    last = sharing(name, tenant=TENANT)[-1]
    return msgspec.structs.replace(last, id="settings", data=body)


@contextmanager
def _granter(place: Place, grants: str, redis: RedisConnection) -> Iterator[None]:
    log, maps = KafkaLog(place.connection, grants), RedisMaps(redis)
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(Granter("granter", place.connection, log, maps).run(stop))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
        maps.close()
        log.close()


def main() -> int:
    asked = argparse.ArgumentParser()
    asked.add_argument("--reads", type=int, default=30_000)
    asked.add_argument(
        "--seconds", type=float, default=0, help="fewer reads than asked: ends with 1"
    )
    said = asked.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with tempfile.TemporaryDirectory(prefix="ombus-http-") as place:
        folder = Path(place)
        cluster, server = dev_kafka.up(folder / "kafka"), Server(folder / "redis")
        try:
            with stand(cluster.bootstrap, server.url, folder / "data", apart) as found:
                telling, began = Telling(said.reads), time.monotonic()
                verdict = Traffic(found, said.reads, said.seconds or math.inf).run(telling.tell)
                seconds = time.monotonic() - began
        finally:
            server.kill()
            dev_kafka.down(folder / "kafka", wipe=True)
    return summed_up(verdict, said.reads, seconds, f"over HTTP through {len(NAMES)} gateways")


if __name__ == "__main__":
    sys.exit(main())
