"""A gateway on a loopback socket, in a thread of the test's process."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from ombus.gateway.app import Gateway
from ombus.gateway.limits import Limits
from ombus.gateway.serving import Listening, Server, open_gateway, serve
from ombus.settings import load_settings

MAX_WAIT_S = 20.0
MAX_STOP_S = 90.0
"""Thousands of readers are let go one after the other."""


class Running:
    """A gateway that listens, and a client on it."""

    def __init__(self, gateway: Gateway, url: str) -> None:
        self.gateway, self.url = gateway, url
        self.http = httpx.Client(base_url=url, timeout=MAX_WAIT_S)

    def token(self, *roles: str, **options: Any) -> str:
        said: dict[str, Any] = {
            "tenant": "local",
            "sessions": ["*"],
            "now": datetime.now(UTC),
            "lifetime": timedelta(hours=1),
            **options,
        }
        tenant = said.pop("tenant")
        name = " ".join((tenant, *roles, *said["sessions"]))
        return self.gateway.tokens.create(name, tenant, roles, **said)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return self.http.post(f"/v1/sessions/{path}", json=body, **options)

    def get(self, path: str, **params: Any) -> httpx.Response:
        return self.http.get(f"/v1/sessions/{path}", params=params)

    def append(self, session: str, *texts: str, **options: Any) -> dict[str, Any]:
        entries = [{"role": "user", "content": text} for text in texts]
        answer = self.post(f"{session}/entries", {"entries": entries}, **options)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@contextmanager
def running(
    folder: Path, limits: Limits | None = None, *, folds: bool = True, toml: str = ""
) -> Iterator[Running]:
    """Serve a data folder until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "settings.toml"
    file.write_text(toml)
    settings = load_settings({"data": str(folder)}, {}, [file])
    listening = Listening(port=0)
    gateway = open_gateway(settings, listening, limits or Limits(), folds=folds)
    ports: list[int] = []
    is_up = threading.Event()

    def ready(port: int) -> None:
        ports.append(port)
        is_up.set()

    server = Server(gateway, listening, ready)
    thread = threading.Thread(target=lambda: asyncio.run(serve(server, gateway)))
    thread.start()
    try:
        assert is_up.wait(MAX_WAIT_S)
        found = Running(gateway, f"http://127.0.0.1:{ports[0]}")
        with found.http:
            yield found
    finally:
        server.should_exit = True
        thread.join(MAX_STOP_S)
        assert not thread.is_alive()
