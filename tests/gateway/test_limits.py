"""Large, endless, many and slow: each is bounded, and others are served meanwhile."""

import socket
import time
from pathlib import Path

import msgspec
from ombus.gateway.limits import Limits, Rate
from ombus_schemas.publish import FOLDER, OPENAPI_FILE, documents

from tests.gateway.serving import MAX_WAIT_S, Running, running

HEAD = b"POST /v1/sessions/s/entries HTTP/1.1\r\nHost: localhost\r\n"


def test_a_body_of_ten_megabytes_is_refused_before_it_is_read(served: Running) -> None:
    body = b'{"entries":[{"role":"user","content":"' + b"x" * 10_000_000 + b'"}]}'
    with socket.create_connection(("127.0.0.1", _port(served)), MAX_WAIT_S) as caller:
        caller.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body))
        assert b"413" in caller.recv(4_096).split(b"\r\n")[0]


def test_an_endless_body_is_cut_at_the_limit(served: Running) -> None:
    with socket.create_connection(("127.0.0.1", _port(served)), MAX_WAIT_S) as caller:
        caller.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        n_sent = 0
        try:
            while n_sent < 64_000_000:
                caller.sendall(chunk)
                n_sent += len(chunk)
        except OSError:
            pass
        assert n_sent < 64_000_000
    assert served.http.get("/live").status_code == 200


def test_a_body_that_does_not_come_is_given_up(folder: Path) -> None:
    with (
        running(folder, Limits(body_seconds=0.3)) as served,
        socket.create_connection(("127.0.0.1", _port(served)), MAX_WAIT_S) as caller,
    ):
        caller.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        assert b"408" in caller.recv(4_096).split(b"\r\n")[0]


def test_a_reader_that_takes_nothing_holds_little_and_is_told_of_the_gap(folder: Path) -> None:
    limits = Limits(tail_buffer_records=8, tail_buffer_bytes=300_000, max_catch_up=40)
    text = "All boats are late. " * 3_000
    with running(folder, limits) as served:
        served.append("s", "first")
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
            slow.connect(("127.0.0.1", _port(served)))
            slow.settimeout(MAX_WAIT_S)
            slow.sendall(b"GET /v1/sessions/s/tail HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200" in slow.recv(512)
            n_sent = 0
            held = _buffered(served)
            deadline = time.monotonic() + MAX_WAIT_S
            while held.n_missed <= 60 and time.monotonic() < deadline:
                served.append("s", *(text for _ in range(20)))
                n_sent += 20
            assert held.n_missed > 60
            last = served.append("s", "the last one")["position"]
            assert served.get("s/status", atLeast=last).status_code == 200
            seen = b""
            while b"event: gap" not in seen:
                seen = seen[-16:] + slow.recv(262_144)
            said = seen[seen.index(b"event: gap") :]
            while b"\n\n" not in said.replace(b"\r", b""):
                said += slow.recv(262_144)
            said = said.split(b"data: ")[1]
            gap = msgspec.json.decode(said.split(b"\r\n")[0].split(b"\n")[0])
            assert 60 < gap["records"] <= n_sent + 1


def test_too_many_requests_are_told_when_to_come_again(folder: Path) -> None:
    with running(folder, Limits(requests_per_second=1, burst=3)) as served:
        answers = [served.http.get("/v1/sessions") for _ in range(5)]
        assert [each.status_code for each in answers] == [200, 200, 200, 429, 429]
        assert answers[-1].headers["retry-after"] == "1"


def test_a_tenant_has_a_rate_of_its_own(folder: Path) -> None:
    with running(folder, Limits(tenant_requests_per_second=1, tenant_burst=2)) as served:
        mine = [{"Authorization": f"Bearer {served.token('reader')}"} for _ in range(4)]
        theirs = {"Authorization": f"Bearer {served.token('reader', tenant='other')}"}
        answers = [served.http.get("/v1/sessions", headers=each) for each in mine]
        assert [each.status_code for each in answers] == [200, 200, 429, 429]
        assert served.http.get("/v1/sessions", headers=theirs).status_code == 200


def test_a_bucket_fills_again_up_to_its_burst() -> None:
    rate = Rate(per_second=10, burst=2)
    assert [rate.wait_of("a", 0.0) for _ in range(2)] == [0, 0]
    assert rate.wait_of("a", 0.0) > 0
    assert rate.wait_of("b", 0.0) == 0
    assert rate.wait_of("a", 0.1) == 0
    assert [rate.wait_of("a", 100.0) for _ in range(3)][:2] == [0, 0]


def test_routes_are_published_as_they_are_served(served: Running) -> None:
    shown = served.http.get("/openapi.json").json()
    published = msgspec.json.decode((FOLDER / OPENAPI_FILE).read_bytes())
    assert shown == published == msgspec.json.decode(documents()[OPENAPI_FILE])


def test_an_unknown_method_or_path_is_a_problem(served: Running) -> None:
    answer = served.http.delete("/v1/sessions/s/entries")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert served.http.get("/v2").json()["code"] == "not_found"


def test_what_is_counted_names_no_session(served: Running) -> None:
    served.append("counted-session", "one")
    text = served.http.get("/metrics").text
    assert 'ombus_gateway_entries_total{status="appended"}' in text
    assert "ombus_lag_records" in text
    assert "counted-session" not in text


def _port(served: Running) -> int:
    return int(served.url.rpartition(":")[2])


def _buffered(served: Running):  # type: ignore[no-untyped-def]  # of a private table
    (held,) = served.gateway.hub._by_key[b"local/s"]
    return held
