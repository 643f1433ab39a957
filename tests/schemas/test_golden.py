"""What a release wrote decodes for ever, to the same bytes and the same meaning."""

import json

import pytest
from ombus_schemas.admission import KINDS
from ombus_schemas.codec import decode_record, encode, key_of
from ombus_schemas.entries import Entry
from ombus_schemas.facts import FACT_TYPE_BY_NAME, fact_of
from ombus_schemas.records import compaction_of, folded_of, record_of
from ombus_schemas.supervision import EVENT_TYPE_BY_NAME, delegation_of, supervision_event_of

from tests.schemas.golden_lines import ALL_LINES, FILES, lines_of


def entries_of(name: str) -> list[Entry]:
    return [decoded(line) for line in lines_of(name)]


def decoded(line: bytes) -> Entry:
    body = json.loads(line)
    return decode_record(f"{body['tenantId']}/{body['sessionId']}".encode(), line)


@pytest.mark.parametrize("name", FILES)
def test_a_golden_line_decodes_and_encodes_to_itself(name: str) -> None:
    for line in lines_of(name):
        entry = decoded(line)
        assert encode(entry) == line
        assert decode_record(key_of(entry), line) == entry


def test_every_kind_is_among_the_golden_lines() -> None:
    assert {decoded(line).kind for line in ALL_LINES} == set(KINDS)


def test_every_fact_of_ours_is_among_the_golden_lines_and_is_read() -> None:
    facts = [fact_of(entry) for entry in entries_of("facts.jsonl") + entries_of("scopes.jsonl")]
    assert None not in facts
    assert {type(fact) for fact in facts} == set(FACT_TYPE_BY_NAME.values())


def test_every_supervision_event_is_among_the_golden_lines_and_is_read() -> None:
    events = [supervision_event_of(entry) for entry in entries_of("supervision.jsonl")]
    assert None not in events
    assert {type(event) for event in events} == set(EVENT_TYPE_BY_NAME.values())
    assert [delegation_of(entry) is None for entry in entries_of("delegations.jsonl")] == [False]


def test_every_record_is_read_and_a_malformed_item_is_left_out() -> None:
    entries = entries_of("records.jsonl")
    records = [record_of(entry) for entry in entries if entry.kind != "compaction"]
    assert None not in records
    assert len({type(record) for record in records}) == 3
    compactions = [compaction_of(entry) for entry in entries if entry.kind == "compaction"]
    assert [compaction is None for compaction in compactions] == [False]
    assert [folded_of(entry) is None for entry in entries if entry.kind == "compaction"] == [False]
    observations = [len(getattr(record, "observations", ())) for record in records]
    assert observations == [2, 0, 1, 0, 0, 0]
