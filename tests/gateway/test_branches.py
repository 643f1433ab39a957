"""What a gateway reads of another for a shared read."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import cast

import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from ombus.gateway.branches import GatewayBranches, Owned
from ombus.gateway.hosting import Host
from ombus.gateway.peers import Peers
from ombus_streams.engine.kafka.standing import Owner
from ombus_streams.runtime.grants import GrantsUnavailable


class OfAnotherVersion(BaseHTTPRequestHandler):
    """Answers with what is no branch, as the gateway of another version may."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"observations": 7}')

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), OfAnotherVersion)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_what_is_no_branch_is_unavailable(address: str) -> None:
    owner = Owner(instance="b", address=address, partitions=(0,))
    engine = SimpleNamespace(
        log=SimpleNamespace(partition_of=lambda _: 0), owner_of=lambda _: owner
    )
    host = SimpleNamespace(desk=SimpleNamespace(engine=SimpleNamespace(reading=None)))
    branches = GatewayBranches(
        cast("Host", host), cast("Owned", engine), Peers(b"x" * 32), "http://127.0.0.1:1"
    )
    with pytest.raises(GrantsUnavailable):
        branches.fetch(b"t/s", "release", None)
    branches.close()
