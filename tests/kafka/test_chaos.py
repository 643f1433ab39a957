"""The short form of ``make chaos``: one round on the broker of the run, and what judges a round."""

import socket
import threading
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from ombus.dev.processes import HOST, free_ports

from tests.kafka.chaos import LEAST_OF_A_KIND, line_of, table
from tests.kafka.chaos_faults import FAULTS, killed_wiped
from tests.kafka.chaos_round import Ground, Round, Tale
from tests.kafka.tcp_proxy import FaultProxy
from tests.support.brokers import Service

GOOD = Tale(
    number=0, kind="clock jumped", workers=1, sent=10, folded=10, lost=0, doubled=0, repeated=1,
    stale=1, restarts=0, caught_up_seconds=1.0, rows=99, differences=0, forged=True,
)  # fmt: skip


def test_a_killed_and_wiped_worker_loses_nothing_and_forged_results_are_refused_and_counted(
    kafka: Service, tmp_path: Path
) -> None:
    ground = Ground(bootstrap=kafka.address, folder=tmp_path, load_seconds=1.0, per_second=50)
    with Round(ground, 1) as round:
        killed_wiped(round)
        tale = round.end("killed, rows wiped")
    assert tale.is_good, tale
    assert tale.sent == tale.folded > 0
    assert tale.repeated >= 1
    assert tale.stale >= 1


def test_forty_rounds_are_every_fault_four_times() -> None:
    assert len(FAULTS) * LEAST_OF_A_KIND == 40


@pytest.mark.parametrize("fault", ["lost", "doubled", "differences"])
def test_a_round_that_lost_doubled_or_differs_is_not_good(fault: str) -> None:
    bad = msgspec.structs.replace(GOOD, **{fault: 1})
    assert GOOD.is_good
    assert not bad.is_good
    assert not msgspec.structs.replace(GOOD, forged=False).is_good
    assert "FORGED" in line_of(msgspec.structs.replace(GOOD, forged=False))


def test_the_table_adds_the_rounds_of_a_kind_up() -> None:
    slow = msgspec.structs.replace(GOOD, number=10, sent=5, folded=5, caught_up_seconds=9.0)
    head, rule, row, total = table([GOOD, slow])
    assert head.count("|") == rule.count("|") == row.count("|")
    assert row.startswith("| clock jumped | 2 | 15 | 15 | 0 | 0 | 2 | 2 | 0 | 9.0 / 9.0 | 2 of 2 |")
    assert total.startswith("| all | 2 |")


@pytest.fixture
def echo() -> int:
    """A server that says what it is told."""
    listening = socket.create_server((HOST, 0))

    def serve() -> None:
        while True:
            near, _ = listening.accept()
            threading.Thread(target=answer, args=(near,), daemon=True).start()

    def answer(near: socket.socket) -> None:
        while said := near.recv(100):
            near.sendall(said)

    threading.Thread(target=serve, daemon=True).start()
    port: int = listening.getsockname()[1]
    return port


def test_a_proxy_forwards_holds_back_and_turns_away(echo: int) -> None:
    (port,) = free_ports(1)
    with FaultProxy({port: echo}) as proxy:
        client = socket.create_connection((HOST, port), 10)
        client.sendall(b"one")
        assert client.recv(3) == b"one"
        proxy.turn("silent")
        client.sendall(b"two")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(3)
        proxy.turn("open")
        client.settimeout(10)
        assert client.recv(3) == b"two"
        proxy.turn("refused")
        assert is_over(client)
        other = socket.create_connection((HOST, port), 10)
        other.settimeout(10)
        assert is_over(other)


def is_over(client: socket.socket) -> bool:
    """Say whether the other side has ended the connection, in order or not."""
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True
