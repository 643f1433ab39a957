"""What a member of the group of supervisors knows about who decides. No broker."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

pytest.importorskip("aiokafka", reason="the Kafka engine needs the extra kafka")

from ombus_schemas.topics import SUPERVISION
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.kafka.supervision import Deciders

from tests.supervision.office import ManualClock


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    with closing(SqliteLog(tmp_path, ManualClock(), partitions=2, topic=SUPERVISION)) as opened:
        yield opened


@pytest.fixture
def deciders(log: SqliteLog) -> Deciders:
    # Of a log it asks for the ends alone, which any engine answers.
    return Deciders(cast(KafkaLog, log), "one")


def test_before_the_group_has_said_anything_nobody_knows(deciders: Deciders) -> None:
    assert [deciders.decides(each, 100) for each in (0, 1)] == [None, None]


def test_what_is_assigned_is_decided_about_once_it_is_folded_and_the_rest_is_another_s(
    deciders: Deciders, log: SqliteLog
) -> None:
    asyncio.run(deciders.assigned([1]))
    end = log.end(1)
    assert end > 0
    assert [deciders.decides(1, each) for each in (end - 1, end)] == [None, True]
    assert deciders.decides(0, end) is False


def test_while_the_group_assigns_anew_nobody_knows(deciders: Deciders) -> None:
    asyncio.run(deciders.assigned([1]))
    asyncio.run(deciders.revoked([1]))
    assert [deciders.decides(each, 100) for each in (0, 1)] == [None, None]


def test_a_member_that_is_given_nothing_knows_that_others_decide(deciders: Deciders) -> None:
    asyncio.run(deciders.given(None, ()))
    assert [deciders.decides(each, 100) for each in (0, 1)] == [False, False]
