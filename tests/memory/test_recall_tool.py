"""S22: the recall tool."""

import pytest
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.recall_tool import Answer, RecallRequest, answer, request_of

from tests.support.ledgers import memory, message, observation, observed

ENTRIES = [message("e1", 'the "key" is k1'), observed("c", observation(1, "a key k1"))]


def reason(arguments: JsonObject) -> object:
    found = request_of(arguments, "s1")
    assert isinstance(found, Answer)
    return found.value["reason"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"sessionId": "s2", "id": "x"}, "wrong_session"),
        ({}, "invalid_request"),
        ({"id": memory(1), "cursor": "e1"}, "invalid_request"),
        ({"cursor": "﻿ "}, "invalid_request"),
        ({"id": f" {memory(1)}"}, "invalid_id"),
    ],
)
def test_what_cannot_be_answered_is_refused_without_a_look(
    arguments: JsonObject, expected: str
) -> None:
    assert reason(arguments) == expected


def test_entries_of_another_session_are_not_looked_at() -> None:
    found = answer(RecallRequest(session_id="s2", cursor="e1"), ENTRIES)

    assert found.value["reason"] == "wrong_session"


def test_the_answer_is_redacted_as_decoded_strings() -> None:
    request = request_of({"id": memory(1)}, "s1")
    assert isinstance(request, RecallRequest)

    found = answer(request, ENTRIES, ['"key" is k1', "k1"])

    assert "k1" not in found.text
    assert '"key' not in str(found.value)


def test_the_model_may_lower_or_raise_the_page_but_not_pass_its_cap() -> None:
    request = request_of({"cursor": "e1", "limit": "2"}, "s1", 101)
    assert isinstance(request, RecallRequest)

    assert answer(request, ENTRIES).value["reason"] == "limit_exceeded"


def test_a_malformed_id_is_told_back_redacted_as_any_answer_is() -> None:
    found = request_of({"id": "hunter2 please"}, "s1", secrets=["hunter2"])

    assert isinstance(found, Answer)
    assert (found.value["reason"], found.value["id"]) == ("invalid_id", "[REDACTED] please")
