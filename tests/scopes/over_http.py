"""The grant history over HTTP: gateways that share a log, a granter, and readers at any of them.

``python -m tests.scopes.over_http --reads N`` runs it on servers of its own.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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

from tests.gateway.sharing import Shared
from tests.gateway.sharing import sharing as gateways_of
from tests.kafka.logs import declared
from tests.kafka.world import Place, make_place
from tests.scopes.fleet import SCOPE, SystemClock, marker, sharing
from tests.scopes.history import NEVER, Act, Change, History, Read
from tests.scopes.servers import Server, wait_until
from tests.scopes.traffic import Traffic

TENANT = "local"


class HttpStand:
    """One owner, some readers, and gateways that answer for them."""

    def __init__(self, gateways: list[Shared], readers: list[str], seed: int = 1) -> None:
        self.history, self.owners, self.readers = History(), ["o0"], readers
        self.askings = {(reader, "o0"): reader for reader in readers}
        self._gateways, self._chance = gateways, random.Random(seed)
        self._threads = threading.local()

    def change(self, act: Act, owner: str, *principals: str) -> None:
        began, offset, ended = time.monotonic_ns(), None, NEVER
        with suppress(httpx.TransportError):
            body = {"scopeId": SCOPE, "principals": list(principals)}
            answer = self._http().post(f"/v1/sessions/{owner}/scopes/{act}", json=body)
            if answer.status_code == 200:
                position = answer.json().get("position")
                if position is None:  # They held it all, and before this began.
                    return
                offset, ended = int(position.rpartition(":")[2]), time.monotonic_ns()
        for principal in principals:
            self.history.changed(Change(act, owner, principal, began, ended, offset))

    def read(self, reader: str, owner: str) -> Read:
        began = time.monotonic_ns()
        answer = self._http().get(f"/v1/sessions/{reader}/view")
        ended = time.monotonic_ns()
        shown = answer.json()["view"]["text"] if answer.status_code == 200 else ""
        others = {owner, *self.readers} - {reader}
        seen = frozenset(name for name in others if marker(name) in shown)
        reason = None if seen else "nothing" if answer.status_code == 200 else "unavailable"
        found = Read(owner, reader, began, ended, seen, reason)
        self.history.read(found)
        return found

    def _http(self) -> httpx.Client:
        known: dict[str, httpx.Client] = self._threads.__dict__.setdefault("clients", {})
        url = self._chance.choice(self._gateways).url
        if url not in known:
            known[url] = httpx.Client(base_url=url, timeout=30)
        return known[url]


@contextmanager
def stand(bootstrap: str, redis_url: str, folder: Path, n_gateways: int = 3) -> Iterator[HttpStand]:
    """Return once all of it answers."""
    place, redis = make_place(bootstrap, folder), RedisConnection(url=redis_url)
    grants = f"{place.topic}.grants"
    asyncio.run(topics.apply(place.connection, SystemClock(), [declared(grants, 4, GRANTS)]))
    readers = ["r0", "r1", "r2"]
    _make(place, ["o0", *readers])
    names = [f"g{n}" for n in range(n_gateways)]
    with (
        _granter(place, grants, redis),
        gateways_of(place, names, role="projector", grants=grants, redis=redis) as gateways,
    ):
        found = HttpStand(gateways, readers)

        def is_there() -> bool:
            answers = [gateways[0].get(f"{name}/view") for name in ("o0", *readers)]
            return all(
                marker(name) in answer.text
                for name, answer in zip(("o0", *readers), answers, strict=True)
            )

        wait_until(is_there, 60)
        yield found


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
    asked.add_argument("--seconds", type=float, default=3_600)
    said = asked.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with tempfile.TemporaryDirectory(prefix="ombus-http-") as place:
        folder = Path(place)
        cluster, server = dev_kafka.up(folder / "kafka"), Server(folder / "redis")
        try:
            with stand(cluster.bootstrap, server.url, folder / "data") as found:
                began = time.monotonic()
                verdict = Traffic(found, said.reads, said.seconds).run()
                seconds = time.monotonic() - began
        finally:
            server.kill()
            dev_kafka.down(folder / "kafka", wipe=True)
    for line in verdict.served[:10]:
        print(line)
    print(
        f"{verdict.n_reads:,} reads over HTTP through 3 gateways in {seconds:.0f} s "
        f"({verdict.n_granted:,} granted, {verdict.n_unavailable:,} unavailable), "
        f"{verdict.n_changes:,} grants and revocations; {verdict.n_counted:,} counted after an "
        f"acknowledged revocation of one who had read: {len(verdict.served)} served"
    )
    return 1 if verdict.served else 0


if __name__ == "__main__":
    sys.exit(main())
