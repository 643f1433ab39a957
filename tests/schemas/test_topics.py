"""Topics are those of design.md section 13, and hold what an entry may be."""

import re

import pytest
from ombus_schemas.limits import MAX_ENTRY_BYTES, MAX_FOLDED_BYTES, MAX_SUMMARY_BYTES
from ombus_schemas.topics import (
    DEAD_LETTERS,
    TOPIC_BY_NAME,
    TOPICS,
    Topic,
    configs,
    production_configs,
)


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_no_topic_is_compacted_or_trusts_the_producers_clock(topic: Topic) -> None:
    config = production_configs(topic)
    assert config["cleanup.policy"] == "delete"
    assert config["message.timestamp.type"] == "LogAppendTime"
    assert config["min.insync.replicas"] == "2"
    assert config["unclean.leader.election.enable"] == "false"
    assert "min.insync.replicas" not in configs(topic)


def test_only_dead_letters_are_ever_deleted() -> None:
    kept = {topic.name for topic in TOPICS if configs(topic)["retention.ms"] == "-1"}
    assert set(TOPIC_BY_NAME) - kept == {DEAD_LETTERS}
    assert configs(TOPIC_BY_NAME[DEAD_LETTERS])["retention.ms"] == str(30 * 24 * 3_600_000)


def test_a_record_may_hold_the_largest_compaction() -> None:
    assert MAX_ENTRY_BYTES >= MAX_FOLDED_BYTES + 6 * MAX_SUMMARY_BYTES + 100_000
    assert all(int(configs(topic)["max.message.bytes"]) > MAX_ENTRY_BYTES for topic in TOPICS)


def test_names_have_dots_and_no_underscores() -> None:
    assert all(re.fullmatch(r"ombus(\.[a-z-]+){2}", topic.name) for topic in TOPICS)
