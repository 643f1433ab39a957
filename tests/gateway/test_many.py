"""Many readers that wait: what they hold is small, and others are served."""

import asyncio
import shutil
import socket
import ssl
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from ombus.gateway.limits import Limits
from ombus.gateway.serving import Listening, Server, open_gateway, serve
from ombus.settings import load_settings

from tests.gateway.serving import MAX_WAIT_S, Running

N_TAILS = 400
"""5,000 is the target; the descriptors of one test process do not reach so far."""
MAX_KB_EACH = 200


def test_idle_tails_hold_little_and_all_of_them_hear(served: Running) -> None:
    served.append("many", "first")
    port = int(served.url.rpartition(":")[2])
    before = _resident_kb()
    with ExitStack() as opened:
        tails = [
            opened.enter_context(socket.create_connection(("127.0.0.1", port), MAX_WAIT_S))
            for _ in range(N_TAILS)
        ]
        for each in tails:
            each.sendall(b"GET /v1/sessions/many/tail HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for each in tails:
            _read_until(each, b"event: open")
        held = (_resident_kb() - before) / N_TAILS
        started = time.perf_counter()
        position = served.append("many", "second")["position"]
        assert served.get("many/context", atLeast=position).status_code == 200
        answered = time.perf_counter() - started
        for each in tails:
            _read_until(each, position.encode())
        print(f"{N_TAILS} tails: {held:.0f} KB each, append and read in {answered * 1e3:.0f} ms")
        assert held < MAX_KB_EACH
        assert answered < MAX_WAIT_S / 4


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
