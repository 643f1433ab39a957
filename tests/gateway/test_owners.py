"""What readers see while gateways die, stand still and come back: the whole truth, or a 503.

``OMBUS_TEST_OWNER_SECONDS`` reads for longer before the owner is killed.
"""

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Final

import httpx
import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from ombus import Client
from ombus.gateway import routing
from ombus_streams.engine.kafka.log import KafkaLog

from tests.gateway.sharing import (
    JOIN_SECONDS,
    Gone,
    joined,
    one,
    sharing,
    spawned,
)
from tests.kafka.traffic import drafts_of, traffic
from tests.kafka.world import Place, append_all, make_place, until
from tests.support.brokers import Service

LOAD_SECONDS: Final = float(os.environ.get("OMBUS_TEST_OWNER_SECONDS", "1"))
N_SESSIONS: Final = 8
N_READERS: Final = 3
MOVED_WITHIN: Final = 120.0
"""Session timeout, rebalance and catching up, on a machine that does other things."""


@pytest.fixture
def place(kafka: Service, tmp_path: Path) -> Place:
    return make_place(kafka.address, tmp_path)


def both_serve(gateways: list[Gone], partitions: int) -> None:
    def is_shared() -> bool:
        served = [each.served() for each in gateways]
        return all(served) and sorted(each for one in served for each in one) == [
            *range(partitions)
        ]

    until(is_shared, JOIN_SECONDS, "gateways share the partitions")


def ids_in(answer: httpx.Response) -> list[str]:
    return [entry["id"] for entry in answer.json()["entries"]]


class Load:
    """Readers and a writer on one gateway; each answer is compared with what was acknowledged."""

    def __init__(self, url: str) -> None:
        self._url, self._stop = url, threading.Event()
        self._acknowledged: dict[str, list[str]] = {f"s{n}": [] for n in range(N_SESSIONS)}
        self.n_good, self.n_refused, self.wrong = 0, 0, list[str]()
        self.answered_by: dict[str, str] = {}
        self.killed_at: float | None = None
        self.back_at: dict[str, float] = {}
        """When each session was first answered by somebody who was asked after the kill."""
        self._threads = [
            threading.Thread(target=self._write),
            *(threading.Thread(target=self._read, args=(n,)) for n in range(N_READERS)),
        ]

    def start(self) -> None:
        with httpx.Client(base_url=self._url, timeout=30) as http:
            for session in self._acknowledged:
                self._append(http, session, "first")
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _append(self, http: httpx.Client, session: str, entry_id: str) -> None:
        entry = {"id": entry_id, "role": "user", "content": entry_id}
        path = f"/v1/sessions/{session}/entries"
        while not self._stop.is_set():
            answer = http.post(path, json={"entries": [entry]})
            if answer.status_code == 200:
                self._acknowledged[session].append(entry_id)
                return
            if answer.status_code != 503:
                self.wrong.append(f"append: {answer.status_code} {answer.text}")
            time.sleep(0.1)

    def _write(self) -> None:
        with httpx.Client(base_url=self._url, timeout=30) as http:
            number = 0
            while not self._stop.wait(0.05):
                self._append(http, f"s{number % N_SESSIONS}", f"e{number}")
                number += 1

    def _read(self, number: int) -> None:
        with httpx.Client(base_url=self._url, timeout=30) as http:
            while not self._stop.is_set():
                session = f"s{number % N_SESSIONS}"
                number += 1
                expected, killed_at = [*self._acknowledged[session]], self.killed_at
                answer = http.get(f"/v1/sessions/{session}/entries", params={"limit": 500})
                if answer.status_code == 503:
                    self.n_refused += 1
                    time.sleep(0.02)
                    continue
                found = ids_in(answer) if answer.status_code == 200 else []
                # Exactly what was acknowledged before, then perhaps what came meanwhile.
                if found[: len(expected)] != expected:
                    self.wrong.append(f"{session}: {answer.status_code} {found} for {expected}")
                self.n_good += 1
                self.answered_by[session] = answer.headers["ombus-answered-by"]
                if killed_at is not None:
                    self.back_at.setdefault(session, time.monotonic() - killed_at)


class Follower:
    """The client's tail of one session, from its start to its entry ``last``."""

    def __init__(self, url: str, session: str) -> None:
        self._url, self._session = url, session
        self.ids: list[str] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._follow()))
        self._thread.start()

    async def _follow(self) -> None:
        async with Client(self._url) as client:
            async for event in client.session(self._session).tail("start"):
                self.ids.append(str(event.data["id"]))
                if event.data["id"] == "last":
                    return

    def ended(self) -> bool:
        return not self._thread.is_alive()


def test_an_owner_is_killed_under_load_and_nobody_is_told_less_than_everything(
    place: Place,
) -> None:
    with spawned(place, "a") as a, spawned(place, "b", "--replicas") as b:
        both_serve([a, b], place.partitions)
        load = Load(b.url)
        load.start()
        try:
            until(lambda: len(load.answered_by) == N_SESSIONS, 30, "all are read")
            time.sleep(LOAD_SECONDS)
            orphans = [session for session, by in load.answered_by.items() if by == "a"]
            assert orphans
            before, follower = load.n_good, Follower(b.url, orphans[0])
            a.kill()
            load.killed_at = time.monotonic()
            until(lambda: len(load.back_at) == N_SESSIONS, MOVED_WITHIN, "all are read again")
            until(lambda: b.served() == [*range(place.partitions)], MOVED_WITHIN, "b owns all")
            owned = time.monotonic() - load.killed_at
            time.sleep(LOAD_SECONDS)
        finally:
            load.end()
        entries = {"entries": [{"id": "last", "role": "user", "content": "last"}]}
        b.http.post(f"/v1/sessions/{orphans[0]}/entries", json=entries).raise_for_status()
        until(follower.ended, MOVED_WITHIN, "the tail has come to the last entry")
        on_log = ids_in(b.http.get(f"/v1/sessions/{orphans[0]}/entries?limit=500"))
    assert load.wrong == []
    assert follower.ids == on_log
    waits = [load.back_at[each] for each in orphans]
    print(
        f"owner killed under load: {before:,} answers before and {load.n_good - before:,} after, "
        f"{load.n_refused:,} times 503, wrong or partial 0; first good answer of what it owned "
        f"after {min(waits):.1f} s, all after {max(waits):.1f} s, owned again after {owned:.1f} s "
        "(session timeout 6 s)"
    )


def test_an_owner_that_stood_still_says_nothing_old_when_it_wakes(place: Place) -> None:
    with spawned(place, "a") as a, spawned(place, "b") as b:
        both_serve([a, b], place.partitions)
        sessions = [f"s{number}" for number in range(N_SESSIONS)]
        for session in sessions:
            body = {"entries": [{"id": "old", "role": "user", "content": "old"}]}
            assert b.http.post(f"/v1/sessions/{session}/entries", json=body).status_code == 200
        a.process.send_signal(signal.SIGSTOP)
        waiting: dict[str, httpx.Response] = {}

        def ask(session: str) -> None:
            # Taken in by the socket of the process that stands still; answered when it wakes.
            path = f"{a.url}/v1/sessions/{session}/entries"
            waiting[session] = httpx.get(path, timeout=MOVED_WITHIN)

        asking = [threading.Thread(target=ask, args=(session,)) for session in sessions]
        for thread in asking:
            thread.start()
        try:
            until(lambda: b.served() == [*range(place.partitions)], MOVED_WITHIN, "b has all")
            for session in sessions:
                body = {"entries": [{"id": "new", "role": "user", "content": "new"}]}
                path = f"/v1/sessions/{session}/entries"
                assert b.http.post(path, json=body).status_code == 200
        finally:
            a.process.send_signal(signal.SIGCONT)
        for thread in asking:
            thread.join()
    assert len(waiting) == N_SESSIONS
    for answer in waiting.values():
        assert answer.status_code == 503 or ids_in(answer) == ["old", "new"], answer.text


def test_a_partition_that_catches_up_says_how_far_it_is_and_never_shows_a_part(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "FIND_SECONDS", 0.0)
    log = KafkaLog(place.connection, place.topic)
    drafts = drafts_of(traffic(3_000, 6, seed=5))
    append_all(log, drafts)
    ends = {number: log.end(number) for number in range(place.partitions)}
    log.close()
    key = drafts[-1].key
    partition = log.partition_of(key)
    tenant, _, session = key.decode().partition("/")
    seen: list[tuple[str, int, int]] = []
    with one(place, "late", "projector", f'tenant = "{tenant}"') as late:
        while (answer := late.get(f"{session}/status")).status_code == 503:
            said = answer.json()
            assert said["code"] in ("moving", "behind")
            if said["code"] == "behind":
                folded, end = (int(said[each].rpartition(":")[2]) for each in ("folded", "end"))
                seen.append((said["code"], folded, end))
        assert answer.status_code == 200, answer.text
        assert answer.json()["position"].rpartition(":")[2] == str(ends[partition])
    assert seen
    # The last of it may be folded between the look that refused and the answer.
    assert all(folded <= end == ends[partition] for _, folded, end in seen)


def test_one_that_joins_takes_a_share_and_readers_notice_nothing_but_a_wait(
    place: Place,
) -> None:
    with sharing(place, ("a",), role="projector") as gateways:
        for number in range(N_SESSIONS):
            gateways[0].append(f"s{number}", "hello")
        with one(place, "b", "projector") as b:
            joined([*gateways, b], place.partitions)
            by = set[str]()
            for number in range(N_SESSIONS):
                for each in (*gateways, b):
                    answer = each.get(f"s{number}/entries")
                    assert len(ids_in(answer)) == 1
                    by.add(answer.headers["ombus-answered-by"])
            assert by == {"a", "b"}
