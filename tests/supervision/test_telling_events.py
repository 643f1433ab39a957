"""What of a page of events is told, by rows that stand where they stand."""

from typing import Any

import msgspec
import pytest
from ombus.operator.delegation_answers import told_of
from ombus_schemas.codec import encode
from ombus_schemas.ids import session_key
from ombus_schemas.supervision import (
    ChildEvent,
    ChildMilestone,
    DelegationAdmitted,
    DelegationStarted,
    ReportPolicy,
    SupervisionEvent,
)
from ombus_streams.memory.rows import MemoryRows
from ombus_streams.runtime.ports import LogRecord, PositionRow
from ombus_streams.supervision.parent import FOLD_VERSION, fold

from tests.supervision.telling import PARENT, TENANT, entry_of, request

KEY = session_key(TENANT, PARENT)
ASKED = request(policy=ReportPolicy(report="stream"))
ABOUT: dict[str, Any] = {"child_id": "scout", "delegation_id": ASKED.delegation_id}
ON_THE_LOG: tuple[SupervisionEvent, ...] = (
    ASKED,
    DelegationAdmitted(**ABOUT, policy=ReportPolicy(report="milestones")),
    DelegationStarted(**ABOUT, epoch=1, lease_ms=1_000),
    ChildEvent(**ABOUT, child_ordinal=1, child_event={}),
    ChildMilestone(**ABOUT, child_ordinal=2, turn=1, child_event={}),
)
RECORDS = tuple(
    LogRecord(
        partition=0, offset=offset, at_ms=offset, key=KEY, value=encode(entry_of(event)), headers=()
    )
    for offset, event in enumerate(ON_THE_LOG)
)


class Rows(MemoryRows):
    """Rows that are folded up to an offset."""

    def __init__(self, next_offset: int) -> None:
        super().__init__()
        self._next_offset = next_offset
        for record, event in zip(RECORDS[:next_offset], ON_THE_LOG, strict=False):
            fold(self, entry_of(event), record.at_ms)

    def position(self) -> PositionRow | None:
        return PositionRow(
            incarnation="log",
            partition=0,
            next_offset=self._next_offset,
            fold_version=FOLD_VERSION,
            last_hash="",
            last_at_ms=0,
        )


@pytest.mark.parametrize("next_offset", [3, 4, 5])
def test_news_that_is_louder_than_the_grant_is_left_out(next_offset: int) -> None:
    found, stopped = told_of(RECORDS, KEY, Rows(next_offset), "log", ())

    assert [each.position for each in found] == ["log:0:0", "log:0:1", "log:0:2", "log:0:4"]
    assert stopped is None


@pytest.mark.parametrize("next_offset", [0, 1, 2])
def test_a_page_ends_before_news_of_a_child_that_is_not_folded_as_claimed(next_offset: int) -> None:
    found, stopped = told_of(RECORDS, KEY, Rows(next_offset), "log", ())

    assert [each.position for each in found] == ["log:0:0", "log:0:1", "log:0:2"]
    assert stopped == 3


def test_news_of_a_child_that_nobody_ever_claimed_is_left_out_and_passed() -> None:
    strange = ChildMilestone(child_id="scout", delegation_id="another", turn=1, child_event={})
    record = msgspec.structs.replace(RECORDS[0], value=encode(entry_of(strange)))

    assert told_of([record], KEY, Rows(1), "log", ()) == ([], None)
