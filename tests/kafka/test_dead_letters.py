"""``ombus dlq`` on a broker: the same letters, the same audited decisions."""

import uuid
from pathlib import Path

import pytest
from ombus.cli.app import app
from ombus_schemas.errors import BadRecord
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.runtime.dead_letters import draft_of, emission
from typer.testing import CliRunner

from tests.kafka.conftest import Apply, OpenLog
from tests.kafka.logs import declared
from tests.support.brokers import Service
from tests.support.replays import entry_draft


@pytest.fixture
def letters(apply: Apply, open_log: OpenLog) -> KafkaLog:
    topic = declared(f"test.{uuid.uuid4().hex[:16]}.dead", 2)
    apply([topic])
    return open_log(topic.name)


def test_a_letter_on_kafka_is_listed_shown_retried_and_refused_a_second_time(
    log: KafkaLog, letters: KafkaLog, kafka: Service, tmp_path: Path
) -> None:
    draft = entry_draft("s0", 0)
    (position,) = log.append([draft])
    (record,) = log.read(position.partition, position.offset, 1)
    letters.append([draft_of(emission(record, log.topic, BadRecord("json", "was cut")))])
    letter = f"{position.partition}:{position.offset}"
    runner = CliRunner(env={"OMBUS_DATA": str(tmp_path)})

    def dlq(command: str, *more: str) -> tuple[int, str]:
        where = ["--bootstrap-servers", kafka.address, "--topic", log.topic]
        done = runner.invoke(app, ["dlq", command, *more, *where, "--dead-letters", letters.topic])
        return done.exit_code, done.output

    assert letter in dlq("list")[1]
    assert draft.value.decode() in dlq("show", letter)[1]
    code, said = dlq("retry", letter)
    assert code == 0
    retried = said.split()[-1].split(":")
    (again,) = log.read(int(retried[1]), int(retried[2]), 1)
    assert (again.key, again.value) == (draft.key, draft.value)
    assert dlq("list")[1].strip() == "no open dead letters"
    assert dlq("retry", letter)[0] == 2
    assert dlq("discard", letter, "--again")[0] == 0
    assert "discarded by" in dlq("show", letter)[1]
