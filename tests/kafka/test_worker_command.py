"""``ombus worker``: a process as an operator starts it, on a real broker."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from ombus.cli.app import app
from ombus.dev.processes import free_ports
from ombus_streams.engine.kafka.log import KafkaLog
from typer.testing import CliRunner

from tests.kafka.traffic import drafts_of, traffic
from tests.kafka.world import Place, append_all, ids_on, make_place, until
from tests.support.brokers import Service

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture
def place(kafka: Service, tmp_path: Path) -> Place:
    return make_place(kafka.address, tmp_path)


@pytest.fixture
def log(place: Place) -> Iterator[KafkaLog]:
    opened = KafkaLog(place.connection, place.topic)
    yield opened
    opened.close()


def command(place: Place, *arguments: str) -> list[str]:
    return [
        sys.executable, "-m", "ombus.cli", "--data", place.folder, "worker", *arguments,
        "--bootstrap-servers", place.bootstrap, "--topic", place.topic,
        "--dead-letters", place.dead_letters, "--instance", "here",
    ]  # fmt: skip


def probe(port: int, path: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
    except urllib.error.URLError:
        return 0, {}


def test_a_worker_process_catches_up_works_answers_probes_and_ends_in_order(
    place: Place, log: KafkaLog
) -> None:
    append_all(log, drafts_of(traffic(300, n_sessions=4)))
    (port,) = free_ports(1)
    process = subprocess.Popen(
        command(place, "observer", "projector", "--json", "--health", f"127.0.0.1:{port}"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: probe(port, "/ready")[0] == 503, 30, "probes are answered before it is ready")
        assert probe(port, "/live")[0] == 200
        until(lambda: probe(port, "/ready")[0] == 200, 60, "it is ready")
        until(lambda: any(each.startswith("om:observer:") for each in ids_on(log)), 60, "it works")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            metrics = answer.read().decode()
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    said = [json.loads(line) for line in out.splitlines()]
    assert [each["ready"] for each in said] == [True]
    assert [each["role"] for each in said[0]["workers"]] == ["observer", "projector"]
    assert sum(len(each["partitions"]) for each in said[0]["workers"]) == 2 * place.partitions
    assert not any(each.startswith("om:reflector:") for each in ids_on(log))
    assert "Traceback" not in err
    assert 'ombus_lag_records{partition="0",role="observer"} 0.0' in metrics
    assert 'ombus_ready{role="projector"} 1.0' in metrics
    assert 'ombus_runs_total{outcome="recorded",worker="observer"}' in metrics
    assert "local/" not in metrics


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["observers"], 2, "observers is none of observer, reflector"),
        (["all", "observer"], 2, "name it alone"),
        (["observer", "observer"], 2, "is named twice"),
        (["observer", "--health", "9090"], 2, "give HOST:PORT"),
        (["observer", "--topic", "missing"], 3, "create it with `ombus topics apply`"),
    ],
)
def test_a_worker_that_cannot_be_says_so_in_one_line(
    place: Place, arguments: list[str], code: int, says: str
) -> None:
    name, *options = arguments
    ran = CliRunner().invoke(app, [*command(place, name)[3:], *options])
    assert ran.exit_code == code
    (line,) = ran.stderr.splitlines()
    assert line.startswith("ombus: ")
    assert says in line
