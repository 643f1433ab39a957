"""A consumer of the topic needs a Kafka client and ``schemas/published/``, and nothing of ours.

``plain_consumer.py`` is that consumer; it runs as a program of its own, which ends with the names
of the modules it has loaded.
"""

import json
import subprocess
import sys
from pathlib import Path

from ombus.cli import demo
from ombus.operator.replay import Selection, replay
from ombus.operator.replay_logs import LogSource, LogTarget
from ombus.wiring import open_log
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.log import KafkaLog

ROOT = Path(__file__).parents[2]


def test_it_follows_a_session_entry_by_entry_and_checks_each_against_the_schema(
    log: KafkaLog, connection: Connection, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    demo.run(folder)
    source = open_log(folder)
    copied = replay(LogSource(source), LogTarget(log), Selection(), tmp_path / "progress").copied
    expected = [json.loads(record.value or b"") for record in source.of_key(b"local/ferry")]
    source.close()

    program = str(Path(__file__).with_name("plain_consumer.py"))
    schemas = str(ROOT / "schemas" / "published")
    told = [connection.bootstrap_servers, log.topic, "local/ferry", str(copied), schemas]
    ran = subprocess.run(
        [sys.executable, "-I", program, *told],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    *lines, modules = map(json.loads, ran.stdout.splitlines())
    assert not [name for name in modules if name.startswith("ombus")]

    assert [line["id"] for line in lines] == [entry["id"] for entry in expected]
    kinds = {line["type"] for line in lines}
    assert {"ombus.entry.message", "om.observations.recorded", "om.reflections.recorded"} <= kinds
    observed = [text for line in lines for text in line["observations"]]
    assert observed
    assert len(observed) == sum(
        len(entry.get("data", {}).get("observations", []))
        for entry in expected
        if entry.get("data", {}).get("type") == "om.observations.recorded"
    )
