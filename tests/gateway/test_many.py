"""Many readers that wait: what they hold is small, and others are served."""

import asyncio
import os
import resource
import shutil
import socket
import ssl
import statistics
import subprocess
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from ombus.gateway.limits import Limits
from ombus.gateway.serving import Listening, Server, open_gateway, serve
from ombus.settings import load_settings

from tests.gateway.serving import MAX_WAIT_S, Running, running
from tests.gateway.test_limits import HEAD

N_TAILS = int(os.environ.get("OMBUS_TEST_TAILS", "400"))
"""5,000 is the target (`make gateway-full`): both ends of each are descriptors of this process."""
WAVE = 200
"""Of them opened at once."""
PATIENCE_S = MAX_WAIT_S + N_TAILS / 50
MAX_KB_EACH = 200
N_HOSTILE = 30
MAX_HELD_KB = 60_000
"""Of all hostile callers together; what they send is ten times that."""


def test_idle_tails_hold_little_and_all_of_them_hear(served: Running) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * N_TAILS + 500)), hard))
    served.http.timeout = PATIENCE_S
    served.append("many", "first")
    port = int(served.url.rpartition(":")[2])
    before = _resident_kb()
    with ExitStack() as opened:
        tails: list[socket.socket] = []
        while len(tails) < N_TAILS:
            wave = [
                opened.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
                for _ in range(min(WAVE, N_TAILS - len(tails)))
            ]
            for each in wave:
                each.sendall(b"GET /v1/sessions/many/tail HTTP/1.1\r\nHost: localhost\r\n\r\n")
            for each in wave:
                _read_until(each, b"event: open")
            tails += wave
        held = (_resident_kb() - before) / N_TAILS
        started = time.perf_counter()
        position = served.append("many", "second")["position"]
        assert served.get("many/context", atLeast=position, waitSeconds=30).status_code == 200
        answered = time.perf_counter() - started
        for each in tails:
            _read_until(each, position.encode())
        print(f"{N_TAILS} tails: {held:.0f} KB each, append and read in {answered * 1e3:.0f} ms")
        assert held < MAX_KB_EACH
        assert answered < PATIENCE_S


def test_hostile_callers_together_hold_little_and_others_are_served(tmp_path: Path) -> None:
    limits = Limits(max_body_bytes=262_144, tail_buffer_bytes=65_536, body_seconds=MAX_WAIT_S)
    with running(tmp_path / "data", limits) as served, ExitStack() as opened:
        served.append("s", "first")
        port = int(served.url.rpartition(":")[2])
        before = _resident_kb()

        def connected() -> socket.socket:
            return opened.enter_context(socket.create_connection(("127.0.0.1", port), MAX_WAIT_S))

        def endless() -> None:
            caller = connected()
            caller.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            with suppress(OSError):
                for _ in range(320):
                    caller.sendall(b"10000\r\n" + b"x" * 65_536 + b"\r\n")

        for _ in range(N_HOSTILE):
            waiting, slow = connected(), connected()
            waiting.sendall(HEAD + b"Content-Length: 200000\r\n\r\n" + b"x" * 100_000)
            slow.sendall(b"GET /v1/sessions/s/tail?after=start HTTP/1.1\r\nHost: localhost\r\n\r\n")
        threads = [threading.Thread(target=endless) for _ in range(N_HOSTILE)]
        for each in threads:
            each.start()
        taken: list[float] = []
        while any(each.is_alive() for each in threads) or len(taken) < 50:
            started = time.perf_counter()
            served.append("other", "All boats are late. " * 500)
            assert served.get("other/context").status_code == 200
            taken.append(time.perf_counter() - started)
        for each in threads:
            each.join(MAX_WAIT_S)
        held = _resident_kb() - before
        print(
            f"{3 * N_HOSTILE} hostile callers: {held:,} KB, meanwhile {len(taken)} appends and "
            f"reads, {statistics.median(taken) * 1e3:.0f} ms each"
        )
        assert held < MAX_HELD_KB


def _read_until(tail: socket.socket, wanted: bytes) -> None:
    seen = b""
    while wanted not in seen:
        chunk = tail.recv(65_536)
        assert chunk, seen
        seen += chunk


def _resident_kb() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def test_tls_is_spoken_with_a_certificate(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key),
         "-out", str(cert), "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    settings = load_settings({"data": str(tmp_path / "data")}, {}, [])
    listening = Listening(port=0, cert=cert, key=key)
    gateway = open_gateway(settings, listening, Limits())
    is_up, ports = threading.Event(), list[int]()

    def ready(port: int) -> None:
        ports.append(port)
        is_up.set()

    server = Server(gateway, listening, ready)
    thread = threading.Thread(target=lambda: asyncio.run(serve(server, gateway)))
    thread.start()
    try:
        assert is_up.wait(MAX_WAIT_S)
        trusted = ssl.create_default_context(cafile=str(cert))
        answer = httpx.get(f"https://localhost:{ports[0]}/live", verify=trusted)
        assert answer.json() == {"live": True}
    finally:
        server.should_exit = True
        thread.join(MAX_WAIT_S)
