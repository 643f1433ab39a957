"""Real servers through the command line: up, ready, down, up again with what was stored."""

import json
import socket
from pathlib import Path
from unittest import mock
from uuid import UUID

import pytest
from ombus.cli.app import app
from ombus.dev import kafka
from ombus.dev.metadata import live_brokers
from ombus.dev.processes import HOST
from typer.testing import CliRunner

from tests.support.brokers import Service


def run(*words: str) -> str:
    shown = CliRunner().invoke(app, list(words))
    assert shown.exit_code == 0, shown.output
    return shown.output


@pytest.fixture
def redis_folder(redis: Service, tmp_path: Path) -> str:
    assert redis.label
    return str(tmp_path / "redis")


def ask(port: int, command: bytes) -> bytes:
    with socket.create_connection((HOST, port), 5) as connection:
        connection.sendall(command)
        return connection.recv(4_096)


def test_redis_comes_up_as_the_grant_cache_wants_it_and_keeps_what_it_has(
    redis_folder: str,
) -> None:
    folder = ("--folder", redis_folder)
    try:
        found = json.loads(run("dev", "redis", "up", *folder, "--json"))
        assert found["url"] == f"redis://127.0.0.1:{found['port']}"
        assert b"noeviction" in ask(found["port"], b"CONFIG GET maxmemory-policy\r\n")
        ask(found["port"], b"SET a 1\r\n")
        assert run("dev", "redis", "down", *folder) == "stopped\n"

        again = json.loads(run("dev", "redis", "up", *folder, "--json"))
        assert again["port"] == found["port"]
        assert ask(found["port"], b"GET a\r\n") == b"$1\r\n1\r\n"
    finally:
        run("dev", "redis", "down", *folder, "--wipe")
    assert not Path(redis_folder).exists()
    assert run("dev", "redis", "down", *folder) == "was not running\n"


def test_kafka_comes_up_again_with_the_same_ports_and_a_second_listener(
    kafka: Service, tmp_path: Path
) -> None:
    assert kafka.label
    folder = ("--folder", str(tmp_path / "kafka"))
    try:
        found = json.loads(run("dev", "kafka", "up", *folder, "--json"))
        (broker,) = found["brokers"]
        for port in (broker["client_port"], broker["proxied_port"]):
            assert live_brokers(HOST, port) == (1,)
        assert run("dev", "kafka", "down", *folder) == "1 broker(s) stopped\n"
        assert live_brokers(HOST, broker["client_port"]) == ()

        again = json.loads(run("dev", "kafka", "up", *folder, "--json"))
        assert again == found
        refused = CliRunner().invoke(app, ["dev", "kafka", "up", *folder, "--brokers", "3"])
        assert refused.exit_code == 3
        assert "holds a cluster of 1 brokers" in refused.output
    finally:
        run("dev", "kafka", "down", *folder, "--wipe")


def test_a_folder_without_a_cluster_has_nothing_to_stop(tmp_path: Path) -> None:
    assert kafka.down(tmp_path) == 0
    assert kafka.find(tmp_path) is None


def test_no_cluster_id_looks_like_an_option() -> None:
    """One random id in 64 begins with a dash, which ``kafka-storage`` reads as an option."""
    dashed, fine = bytes([0xF8] * 16), bytes(16)
    with mock.patch("uuid.uuid4", side_effect=[UUID(bytes=dashed), UUID(bytes=fine)]):
        assert kafka._cluster_id() == "A" * 22
