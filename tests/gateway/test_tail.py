"""The tail: cut and resumed by curl, slow readers, what ends it."""

import asyncio
import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ombus.gateway.limits import Limits
from ombus.gateway.tailing import Gap, Subscription
from ombus_streams.runtime.ports import LogRecord

from tests.gateway.serving import MAX_WAIT_S, Running, running

N_ENTRIES = 120
CUTS = 4


def curl(url: str, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["curl", "-sN", *options, url], stdout=subprocess.PIPE)


def read_events(process: subprocess.Popen[bytes], n_entries: int) -> list[dict[str, Any]]:
    """Return events until so many are entries, then kill the reader in the middle of things."""
    assert process.stdout is not None
    found: list[dict[str, Any]] = []
    event: dict[str, Any] = {}
    while sum(each["event"] == "entry" for each in found) < n_entries:
        line = process.stdout.readline().decode()
        assert line, "the stream ended"
        name, _, value = line.strip().partition(": ")
        if name in ("event", "id", "data"):
            event[name] = value
        elif not line.strip() and "event" in event:
            found.append(event)
            event = {}
    process.kill()
    process.wait()
    process.stdout.close()
    return found


def test_a_tail_cut_and_resumed_loses_and_repeats_nothing(served: Running) -> None:
    served.append("tail-1", "first")
    url = f"{served.url}/v1/sessions/tail-1/tail"
    ids: list[str] = []
    last: str | None = None
    n_sent = 1
    for _ in range(CUTS):
        options = ("-H", f"Last-Event-ID: {last}") if last else ()
        process = curl(url if last else f"{url}?after=start", *options)
        n_more = N_ENTRIES // CUTS
        served.append("tail-1", *(f"entry {n_sent + n}" for n in range(n_more)))
        served.append("tail-other", "noise")
        n_sent += n_more
        # Killed with entries under way: those come again after the resume, and only those.
        entries = [each for each in read_events(process, n_more - 5) if each["event"] == "entry"]
        ids += [json.loads(each["data"])["id"] for each in entries]
        last = entries[-1]["id"]
    process = curl(url, "-H", f"Last-Event-ID: {last}")
    rest = read_events(process, n_sent - len(ids))
    ids += [json.loads(each["data"])["id"] for each in rest if each["event"] == "entry"]
    written = served.get("tail-1/entries", limit=500).json()["entries"]
    assert ids == [each["id"] for each in written]
    assert len(set(ids)) == len(ids) == N_ENTRIES + 1


def test_a_burst_larger_than_the_buffer_loses_nothing(folder: Path) -> None:
    with running(folder, Limits(tail_buffer_records=4)) as served:
        served.append("s", "first")
        process = curl(f"{served.url}/v1/sessions/s/tail?after=start")
        served.append("s", *(str(n) for n in range(60)))
        served.append("s", *(str(n) for n in range(60, 100)))
        events = read_events(process, 101)
        assert [each["event"] for each in events] == ["open"] + ["entry"] * 101
        written = served.get("s/entries", limit=500).json()["entries"]
        ids = [json.loads(each["data"])["id"] for each in events[1:]]
        assert ids == [each["id"] for each in written]


def test_facts_of_compaction_and_runs_are_in_the_tail(served: Running) -> None:
    served.append("tail-2", "The ferry leaves at 9:15.")
    process = curl(f"{served.url}/v1/sessions/tail-2/tail?after=start")
    served.post("tail-2/runs/r1/started", {})
    served.post("tail-2/runs/r1/finished", {})
    served.post("tail-2/compact", {})
    events = read_events(process, 5)
    said = "".join(each["data"] for each in events)
    assert "om.run.started" in said
    assert "om.run.finished" in said
    assert "om.compact.failed" in said


def test_an_idle_tail_says_where_it_is_and_that_it_lives(folder: Path) -> None:
    with running(folder, Limits(heartbeat_seconds=1)) as served:
        position = served.append("s", "one")["position"]
        with served.http.stream("GET", "/v1/sessions/s/tail") as stream:
            text = ""
            for chunk in stream.iter_text():
                text += chunk
                if re.search(r"^: ping", text, re.MULTILINE):
                    break
        assert f"id: {position}" in text


def test_a_revoked_token_reads_no_further(folder: Path) -> None:
    with running(folder, Limits(heartbeat_seconds=1)) as served:
        token = served.token("operator")
        headers = {"Authorization": f"Bearer {token}"}
        served.append("s", "one", headers=headers)
        path = "/v1/sessions/s/tail?after=start"
        with served.http.stream("GET", path, headers=headers) as stream:
            chunks = stream.iter_text()
            assert "open" in next(chunks)
            served.gateway.tokens.revoke(token.split("_")[1], served.gateway.host.desk.clock.now())
            started = time.monotonic()
            for _ in chunks:
                assert time.monotonic() - started < MAX_WAIT_S


def test_too_many_tails_are_refused_and_gone_ones_are_forgotten(folder: Path) -> None:
    with running(folder, Limits(max_tails=2)) as served:
        served.append("s", "one")
        path = "/v1/sessions/s/tail"
        with served.http.stream("GET", path) as one, served.http.stream("GET", path) as two:
            # Kept, because a reader that is collected hangs up.
            held = one.iter_text(), two.iter_text()
            assert all("open" in next(each) for each in held)
            assert served.http.get(path).json()["code"] == "busy"
        deadline = time.monotonic() + MAX_WAIT_S
        while served.gateway.hub.n_tails:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def record(offset: int, size: int = 10) -> LogRecord:
    return LogRecord(partition=0, offset=offset, key=b"t/s", value=b"x" * size, at_ms=0)


def test_what_a_buffer_has_no_room_for_is_one_gap() -> None:
    async def run() -> list[LogRecord | Gap]:
        buffer = Subscription(b"t/s", 0, 0, Limits(tail_buffer_records=3))
        for offset in range(10):
            buffer.push(record(offset))
        taken = await buffer.take(1)
        buffer.push(record(10))
        return [*taken, *await buffer.take(1)]

    found = asyncio.run(run())
    assert found == [record(0), record(1), record(2), Gap(3, 9, 7), record(10)]


def test_a_buffer_is_bounded_in_bytes_and_holds_one_large_record() -> None:
    async def run() -> list[LogRecord | Gap]:
        buffer = Subscription(b"t/s", 0, 0, Limits(tail_buffer_bytes=100))
        buffer.push(record(0, 5_000))
        buffer.push(record(1, 1))
        return await buffer.take(1)

    assert asyncio.run(run()) == [record(0, 5_000), Gap(1, 1, 1)]


@pytest.mark.parametrize("after", ["nonsense", "0123456789abcdef:0:1"])
def test_a_tail_begins_at_a_position_of_this_log(served: Running, after: str) -> None:
    served.append("tail-3", "one")
    answer = served.get("tail-3/tail", after=after)
    assert answer.json()["code"] in ("bad_position", "position_gone")
