"""Servers by their pid file, and what is said when their programs are missing."""

import os
import socket
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from ombus.dev import kafka, redis
from ombus.dev.errors import DevError, NotReady, ToolMissing
from ombus.dev.jars import kafka_version, project
from ombus.dev.kraft import Broker, Security, server_properties
from ombus.dev.metadata import live_brokers
from ombus.dev.processes import HOST, Process, free_ports

SLEEP = "import sys, time; print('started', sys.argv[1], flush=True); time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process("server", tmp_path / "server")


def start(process: Process, program: str = SLEEP) -> None:
    process.start([sys.executable, "-c", program, str(process.folder)])


def has_started(process: Process) -> bool:
    return "started" in process.output.read_text()


def test_it_runs_until_it_is_stopped(process: Process) -> None:
    assert process.pid is None
    start(process)
    process.wait_until(lambda: has_started(process))
    pid = process.pid
    assert pid is not None
    start(process)
    assert process.pid == pid
    assert process.stop()
    assert process.pid is None
    assert not process.stop()


def test_what_does_not_listen_to_a_stop_is_killed(process: Process) -> None:
    start(process, STUBBORN)
    process.wait_until(lambda: has_started(process))
    assert process.stop(within=timedelta(seconds=0.3))
    assert process.pid is None


def test_a_number_that_another_process_has_now_is_left_alone(process: Process) -> None:
    process.folder.mkdir()
    (process.folder / "server.pid").write_text(str(os.getpid()))
    assert process.pid is None
    assert not process.stop()


def test_one_that_ends_at_once_is_told_with_its_last_words(process: Process) -> None:
    start(process, "print('no room'); raise SystemExit(1)")
    with pytest.raises(NotReady, match="no room"):
        process.wait_until(lambda: False)


def test_one_that_never_answers_is_told_in_time(process: Process) -> None:
    start(process)
    with pytest.raises(NotReady, match="does not answer after 0 s"):
        process.wait_until(lambda: False, within=timedelta(seconds=0.2))
    process.kill()


def test_free_ports_are_different() -> None:
    assert len(set(free_ports(8))) == 8


def test_an_open_port_is_no_broker() -> None:
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        listening.listen()
        port = listening.getsockname()[1]
        assert live_brokers(HOST, port, within=timedelta(seconds=0.2)) == ()


def test_nothing_there_is_no_broker() -> None:
    assert live_brokers(HOST, free_ports(1)[0]) == ()


@pytest.mark.parametrize(
    ("tool", "way_out", "up"),
    [
        ("java", "openjdk-17-jre-headless", kafka.up),
        ("redis-server", "apt-get install -y redis-server", redis.up),
    ],
)
def test_a_missing_program_is_named_with_the_package_that_brings_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
    way_out: str,
    up: Callable[[Path], object],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissing, match=way_out) as missing:
        up(tmp_path / "folder")
    assert missing.value.what == tool


def test_maven_is_missed_only_when_there_are_no_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "java").touch(mode=0o755)
    with pytest.raises(ToolMissing, match="maven"):
        kafka.up(tmp_path / "folder")


@pytest.mark.parametrize("n_brokers", [0, 6])
def test_a_cluster_has_one_to_five_brokers(tmp_path: Path, n_brokers: int) -> None:
    with pytest.raises(DevError, match="name 1 to 5"):
        kafka.up(tmp_path, n_brokers)


def test_the_project_names_the_release_it_fetches() -> None:
    assert kafka_version().startswith("4.")
    assert (project() / "log4j2.properties").is_file()


def broker(node_id: int, first_port: int) -> Broker:
    return Broker(
        node_id=node_id,
        client_port=first_port,
        proxied_port=first_port + 1,
        advertised_port=first_port + 2,
        controller_port=first_port + 3,
        secured_port=first_port + 4,
    )


def properties(n_brokers: int, security: Security | None = None) -> dict[str, str]:
    brokers = [broker(number, 1_000 * number) for number in range(1, n_brokers + 1)]
    text = server_properties(brokers[0], brokers, Path("/data"), security)
    return dict(line.split("=", 1) for line in text.splitlines())


def test_every_listener_is_on_loopback_and_the_proxied_one_sends_to_the_proxy() -> None:
    found = properties(1)
    assert found["listeners"] == (
        "CLIENT://127.0.0.1:1000,PROXIED://127.0.0.1:1001,CONTROLLER://127.0.0.1:1003"
    )
    assert found["advertised.listeners"] == ("CLIENT://127.0.0.1:1000,PROXIED://127.0.0.1:1002")


def test_three_brokers_keep_three_copies_of_what_they_need() -> None:
    found = properties(3)
    assert found["controller.quorum.voters"] == (
        "1@127.0.0.1:1003,2@127.0.0.1:2003,3@127.0.0.1:3003"
    )
    assert found["offsets.topic.replication.factor"] == "3"
    assert found["transaction.state.log.min.isr"] == "2"


def test_topics_are_never_made_by_asking_for_them() -> None:
    assert properties(1)["auto.create.topics.enable"] == "false"


def test_a_secured_listener_is_added_to_the_others() -> None:
    found = properties(1, Security(keystore="/k.pem", password_by_user={"a": "b"}))
    assert found["listeners"].endswith(",SECURED://127.0.0.1:1004")
    assert found["listener.security.protocol.map"].endswith(",SECURED:SASL_SSL")
    assert 'user_a="b"' in found["listener.name.secured.plain.sasl.jaas.config"]
